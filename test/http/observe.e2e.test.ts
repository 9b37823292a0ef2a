import { afterAll, beforeAll, expect, test } from "bun:test";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { eventually, framesOf, TestDaemon } from "../support/daemon.ts";
import { CLOSE, FINISHED, OPEN } from "../support/scripted-harness.ts";

const GOLDEN = join(import.meta.dir, "golden");

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await TestDaemon.start({ env: { DAEMON_BOOT_ID: "boot-of-the-test", KEEPALIVE_MS: "100" } });
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

/** What differs from run to run, told by its kind. */
function masked(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value), (key, inner: unknown) => {
    if (/At$|Since$/.test(key) && typeof inner === "string" && new Date(inner).toISOString() === inner) return "<time>";
    if (/Ms$/.test(key) && typeof inner === "number" && inner >= 0) return "<ms>";
    if (key === "version") return "<version>";
    if (key === "proof" && typeof inner === "string" && /^[0-9a-f]{64}$/.test(inner)) return "<hmac>";
    return inner;
  });
}

async function expectGolden(name: string, value: unknown): Promise<void> {
  const text = `${JSON.stringify(masked(value), null, 2)}\n`;
  expect(text).toBe(await readFile(join(GOLDEN, name), "utf8"));
}

const get = async (path: string): Promise<unknown> => (await daemon.fetch(path)).json();

test("the shapes of /runs, /runs/:id, /health and /idle", async () => {
  await expectGolden("health.json", await get("/health?nonce=n"));
  await expectGolden("idle.json", await get("/idle"));
  const go = daemon.path("go");
  const response = await daemon.dispatch({
    runId: "one",
    threadId: "t",
    steps: [OPEN, { waitFor: go }, CLOSE, FINISHED],
  });
  const frames = framesOf(response);
  await frames.next();
  await frames.next();
  await expectGolden("run-running.json", await get("/runs/one"));
  await writeFile(go, "");
  for await (const _ of frames);
  await daemon.run({ runId: "two", steps: [OPEN, { exit: 3 }] });
  await eventually(async () => ((await get("/runs/two")) as { readers: number }).readers === 0);
  await expectGolden("runs.json", await get("/runs"));
  expect(((await get("/runs")) as { runs: unknown[] }).runs).toEqual([await get("/runs/one"), await get("/runs/two")]);
});

test("a detached run says since when", async () => {
  const left = new AbortController();
  const go = daemon.path("detached goes on");
  await daemon.dispatch({ runId: "alone", steps: [OPEN, { waitFor: go }], signal: left.signal });
  await eventually(async () => ((await get("/runs/alone")) as { lastSeq: number }).lastSeq === 2);
  left.abort();
  await eventually(async () => "detachedAt" in ((await get("/runs/alone")) as object));
  await expectGolden("run-detached.json", await get("/runs/alone"));
  const reader = daemon.fetch("/runs/alone/frames");
  await eventually(async () => !("detachedAt" in ((await get("/runs/alone")) as object)));
  await writeFile(go, "");
  await (await reader).text();
});

test("idle time is counted from the last frame or keepalive, and not while a run is at work", async () => {
  const idle = async (): Promise<{ idleSince: string; idleMs: number }> =>
    (await get("/idle")) as { idleSince: string; idleMs: number };
  const go = daemon.path("idle");
  const running = daemon.run({ runId: "working", steps: [OPEN, { waitFor: go }] });
  await daemon.event("harness started", 0, ({ run }) => run === "working");
  await Bun.sleep(60); // For a wrong idle time to grow.
  expect((await idle()).idleMs).toBeLessThan(50);
  await writeFile(go, "");
  await running;
  await eventually(async () => (await idle()).idleMs >= 100);
  const first = await idle();
  const later = await idle();
  expect(later.idleSince).toBe(first.idleSince);
  expect(Math.abs(Date.now() - Date.parse(later.idleSince) - later.idleMs)).toBeLessThan(1000);
});

test("metrics are Prometheus text that counts runs by outcome, readers and refusals", async () => {
  const sample = async (line: RegExp): Promise<number> => {
    const response = await daemon.fetch("/metrics");
    expect(response.headers.get("content-type")).toStartWith("text/plain; version=0.0.4");
    return Number(line.exec(await response.text())?.[1] ?? 0);
  };
  const finished = /^dispatchd_runs_total\{outcome="finished"\} (\d+)$/m;
  const refused = /^dispatchd_refused_total\{code="unauthorized"\} (\d+)$/m;
  const [before, refusedBefore] = [await sample(finished), await sample(refused)];
  await daemon.run({ runId: "counted", steps: [FINISHED] });
  await fetch(`${daemon.url}/runs`);
  expect(await sample(finished)).toBe(before + 1);
  expect(await sample(refused)).toBe(refusedBefore + 1);
});

test("/health is for everybody, also as HEAD, and names no run", async () => {
  const head = await fetch(`${daemon.url}/health`, { method: "HEAD" });
  expect([head.status, head.headers.get("x-boot-id")]).toEqual([200, "boot-of-the-test"]);
  expect(await (await fetch(`${daemon.url}/health`)).text()).not.toContain("working");
});
