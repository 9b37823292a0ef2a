/** SIGTERM: what would start is refused, what runs ends with one outcome and one last frame, and nothing is left over. */
import { expect, test } from "bun:test";
import { globSync } from "node:fs";
import { readFile, rm, stat } from "node:fs/promises";
import { eventually, TestDaemon } from "../support/daemon.ts";
import { Follower } from "../support/follow.ts";
import type { Step } from "../support/scripted-harness.ts";
import { FINISHED, OPEN } from "../support/scripted-harness.ts";
import { follow, HELD, preparing, running, settling } from "./run-states.ts";

const STUBBORN: Step[] = [{ ignoreTerm: true }, OPEN, { deltas: 1 }, { sleepMs: 600_000 }];

async function isAlive(pid: number): Promise<boolean> {
  const status = await readFile(`/proc/${pid}/status`, "utf8").catch(() => "State: X");
  return !/^State:\s*[ZX]/m.test(status);
}

const startedPids = (daemon: TestDaemon): number[] =>
  daemon.log.filter(({ event }) => event === "harness started").map(({ pid }) => Number(pid));

test.concurrent("readers get one outcome and one last frame, whatever the run was doing; no process is left; exit 0", async () => {
  await using daemon = await TestDaemon.start({ env: { ...HELD, KILL_GRACE_MS: "300" } });
  const stray = daemon.path("stray");
  const sh = `setsid sh -c 'trap "" TERM; echo $$ > "${stray}"; exec sleep 600' &`;
  const runs = await running(daemon, { runId: "runs", steps: [{ sh }, ...STUBBORN] });
  const settles = await settling(daemon, { runId: "settles" });
  // On a machine that is busy it may have got what it waits for by then: it is ended as the pod's all the same.
  const waits = await preparing(daemon, { runId: "waits", steps: [{ sleepMs: 600_000 }] });
  const detached = new AbortController();
  await running(daemon, { runId: "detached", signal: detached.signal });
  detached.abort();
  const reader = new Follower(await daemon.fetch("/runs/runs/frames"));
  await eventually(async () => (await readFile(stray, "utf8").catch(() => "")) !== "");

  expect(await daemon.stop()).toBe(0);
  const bodies = [runs.body, settles.body, waits.body, reader];
  await Promise.all(bodies.map(({ ended }) => ended));
  for (const { whole, frames } of bodies) {
    expect(whole).toBe(true);
    expect(frames.filter(({ outcome }) => outcome).length).toBe(1);
    expect(frames.map(({ done }) => done === true)).toEqual(frames.map((_, index) => index === frames.length - 1));
  }
  const gone = { code: "sandbox_gone", reason: "shutdown" };
  expect(runs.body.frames.at(-1)?.error).toMatchObject(gone);
  expect(reader.frameLines).toEqual(runs.body.frameLines);
  expect(settles.body.frames.at(-1)).not.toHaveProperty("error");
  // The one that it waits for was told to make room for it before.
  expect(waits.body.frames.at(-1)?.error).toMatchObject(gone);
  const pids = [...startedPids(daemon), Number(await readFile(stray, "utf8"))];
  expect(await Promise.all(pids.map(isAlive))).toEqual(pids.map(() => false));

  // The next start is clean: nothing to kill, nothing to close.
  const from = daemon.log.length;
  await daemon.launch();
  expect(await daemon.event("ready", from)).toMatchObject({ cutOff: 0, killed: 0, runs: 5 });
  expect(await daemon.show("detached")).toMatchObject({ state: "ended", error: gone });
});

test.concurrent("while it drains: attach, replay, DELETE and /health work, what would start is sent away", async () => {
  await using daemon = await TestDaemon.start({ env: { KILL_GRACE_MS: "1500" } });
  const earlier = await daemon.run({ runId: "earlier", steps: [FINISHED] });
  const { body } = await running(daemon, { runId: "busy", steps: STUBBORN });
  const stopped = daemon.stop();
  await daemon.event("draining");

  const health = await fetch(`${daemon.url}/health`);
  expect([health.status, ((await health.json()) as { draining: boolean }).draining]).toEqual([200, true]);
  const refused = await daemon.dispatch({
    runId: "new",
    input: { answers: [{ interruptId: "i", status: "cancelled" }] },
  });
  expect([refused.status, ((await refused.json()) as { error: string }).error]).toEqual([503, "draining"]);
  expect(Number(refused.headers.get("retry-after"))).toBeGreaterThan(0);
  expect((await daemon.fetch("/runs/new")).status).toBe(404);
  const sameThread = await daemon.dispatch({ runId: "new", threadId: "thread of busy" });
  expect(sameThread.status).toBe(503);

  const replayed = await follow(daemon, { runId: "earlier" });
  await replayed.ended;
  expect(replayed.frames).toEqual(earlier);
  await body.until(({ frames }) => frames.some(({ outcome }) => outcome));
  const attached = await follow(daemon, { runId: "busy" });
  const reader = new Follower(await daemon.fetch("/runs/busy/frames?after=3"));
  expect((await daemon.fetch("/runs")).status).toBe(200);
  expect((await daemon.fetch("/metrics")).status).toBe(200);
  expect((await daemon.cancel("earlier")).status).toBe(204);
  expect((await daemon.cancel("busy")).status).toBe(204);

  expect(await stopped).toBe(0);
  await Promise.all([body.ended, attached.ended, reader.ended]);
  expect(attached.frames.at(-1)).toMatchObject({ done: true, error: { code: "sandbox_gone" } });
  expect(reader.frames).toEqual(attached.frames.slice(3));
  expect(await daemon.starts()).toEqual(["earlier#1", "busy#1"]);
});

test("an idle daemon, one with idle connections and one with a reader that does not read leave soon", async () => {
  await using daemon = await TestDaemon.start({ env: HELD });
  await Promise.all(["/runs", "/idle", "/health"].map(async (path) => (await daemon.fetch(path)).text()));
  const startedAt = performance.now();
  expect(await daemon.stop()).toBe(0);
  expect(performance.now() - startedAt).toBeLessThan(1500);

  await daemon.launch();
  const steps: Step[] = [OPEN, { deltas: 400, text: "x".repeat(65_536) }, FINISHED];
  const unread = await daemon.dispatch({ runId: "unread", steps });
  await daemon.event("dispatch outcome", 0, ({ run }) => run === "unread");
  const late = await daemon.fetch("/runs/unread/frames");
  const stoppedAt = performance.now();
  const stopped = daemon.stop();
  const reader = new Follower(late);
  await daemon.event("dispatch done", 0, ({ run }) => run === "unread");
  expect((await fetch(`${daemon.url}/health`)).status).toBe(200);
  await reader.ended;
  expect([reader.whole, reader.frames.at(-1)?.done]).toEqual([true, true]);
  expect(await stopped).toBe(0);
  // The last bytes have two seconds.
  expect(performance.now() - stoppedAt).toBeLessThan(4000);
  await unread.body?.cancel().catch(() => {});
}, 10_000);

test.concurrent("a grace for harnesses that is longer than the pod's does not outlive it", async () => {
  await using daemon = await TestDaemon.start({ env: HELD });
  const { body } = await running(daemon, { runId: "long", steps: STUBBORN });
  expect(await daemon.stop()).toBe(0);
  await body.ended;
  expect(body.frames.at(-1)).toMatchObject({ done: true, error: { code: "sandbox_gone" } });
  expect(await Promise.all(startedPids(daemon).map(isAlive))).toEqual([false]);
}, 20_000);

test.concurrent("a recovery that hangs on a file does not hold up the exit", async () => {
  await using daemon = await TestDaemon.start();
  await daemon.run({ runId: "r", steps: [FINISHED] });
  await daemon.stop();
  const [record = ""] = globSync(`${daemon.stateDir}/own/runs/*/record.json`);
  await rm(record);
  // Nobody writes to it: to open it takes for ever.
  await Bun.$`mkfifo ${record}`.quiet();
  const from = daemon.log.length;
  const launched = daemon.launch().catch(() => {});
  await daemon.event("listening", from);
  // It has its signals when it answers.
  await eventually(async () => (await daemon.fetch("/health")).ok);
  const startedAt = performance.now();
  expect(await daemon.stop()).toBe(0);
  expect(performance.now() - startedAt).toBeLessThan(20_000);
  expect(daemon.log.slice(from).map(({ event }) => event)).toContain("recovery given up");
  await launched;
}, 30_000);

test.concurrent("a second signal exits at once", async () => {
  await using daemon = await TestDaemon.start({ env: { KILL_GRACE_MS: "600000" } });
  const { body } = await running(daemon, { runId: "stays", steps: STUBBORN });
  const startedAt = performance.now();
  const stopped = daemon.stop();
  await body.until(({ frames }) => frames.some(({ outcome }) => outcome));
  await daemon.stop("SIGINT");
  expect(await stopped).toBe(130);
  expect(performance.now() - startedAt).toBeLessThan(2000);
  // What that leaves is the next start's to end.
  const [pid = 0] = startedPids(daemon);
  const from = daemon.log.length;
  await daemon.launch();
  expect(await daemon.event("ready", from)).toMatchObject({ cutOff: 0, killed: 1 });
  await eventually(async () => !(await isAlive(pid)));
  expect(await daemon.show("stays")).toMatchObject({ error: { code: "sandbox_gone", reason: "shutdown" } });
});

test("SIGTERM before anything was dispatched, and right after the start", async () => {
  await using daemon = await TestDaemon.start();
  await daemon.stop();
  for (let round = 0; round < 3; round++) {
    await rm(daemon.stateDir, { recursive: true });
    const launched = daemon.launch().catch(() => {});
    await eventually(() =>
      stat(daemon.stateDir).then(
        () => true,
        () => false,
      ),
    );
    expect([0, "SIGTERM"]).toContain(await daemon.stop());
    await launched;
  }
});
