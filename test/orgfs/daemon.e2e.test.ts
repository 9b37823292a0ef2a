/** A daemon beside a sidecar: what its runs get of the org volume, and what a volume that hangs costs. */
import { expect, test } from "bun:test";
import type { Frame, Preparation } from "../../src/frames/frame.ts";
import { eventually, parseFrames, TestDaemon } from "../support/daemon.ts";
import { Sidecar } from "../support/sidecar.ts";
import { mountsMissing } from "../support/wedgefs/index.ts";

interface Pod extends AsyncDisposable {
  readonly daemon: TestDaemon;
  readonly sidecar: Sidecar;
}

async function pod(env: Readonly<Record<string, string>> = {}): Promise<Pod> {
  const sidecar = await Sidecar.start();
  const daemon = await TestDaemon.start({
    env: {
      ...sidecar.env,
      ORG_READY_BUDGET_MS: "1500",
      ORG_RETRY_EVERY_MS: "300",
      SESSION_IO_BUDGET_MS: "1000",
      ...env,
    },
  });
  return {
    daemon,
    sidecar,
    async [Symbol.asyncDispose]() {
      // What hangs is answered first: nothing of the daemon is to wait for it.
      for (const mount of sidecar.mounts.values()) await mount.unmount();
      await daemon[Symbol.asyncDispose]();
      await sidecar[Symbol.asyncDispose]();
    },
  };
}

function preparationOf(frames: readonly Frame[]): Preparation | undefined {
  return frames[0]?.preparation;
}

async function orgState(daemon: TestDaemon): Promise<unknown> {
  return ((await (await fetch(`${daemon.url}/health`)).json()) as { org: unknown }).org;
}

async function untilMounted(daemon: TestDaemon, volume: string): Promise<void> {
  await daemon.event("mount status", 0, ({ volumes }) => (volumes as string[]).includes(volume));
}

const needsMount = test.skipIf(mountsMissing !== undefined && process.env.CI === undefined);

needsMount("a run gets home and its links, and no call on a volume is the daemon's", async () => {
  await using own = await pod();
  const { daemon, sidecar } = own;
  const mounts = [await sidecar.mount("home"), await sidecar.mount(".outputs"), await sidecar.mount("public")];
  await untilMounted(daemon, "public");
  expect(await orgState(daemon)).toEqual({ home: "mounted", stuck: 0 });
  for (const mount of mounts) await mount.trace();
  const frames = await daemon.run({ runId: "run", threadId: "thrd_X" });
  expect(preparationOf(frames)).toMatchObject({ home: "ready" });
  expect(frames.at(-1)?.done).toBe(true);
  const calls = (await Promise.all(mounts.map((mount) => mount.traced()))).flat();
  expect(calls.length).toBeGreaterThan(5);
  expect(calls.filter(({ pid, caller }) => pid === daemon.pid || !caller.endsWith("orgfs-worker"))).toEqual([]);
});

needsMount(
  "a home that hangs: headers at once, keepalives, a run that goes on without, and a next one that does not wait",
  async () => {
    await using own = await pod({ KEEPALIVE_MS: "100" });
    const { daemon, sidecar } = own;
    const home = await sidecar.mount("home");
    await untilMounted(daemon, "home");
    await home.hold();
    const startedAt = performance.now();
    const response = await daemon.dispatch({ runId: "first" });
    expect(performance.now() - startedAt).toBeLessThan(1000);
    const text = response.text();
    let slowest = 0;
    for (let asked = 0; asked < 50; asked++) {
      const before = performance.now();
      expect((await fetch(`${daemon.url}/health`)).status).toBe(200);
      slowest = Math.max(slowest, performance.now() - before);
      await Bun.sleep(10);
    }
    expect(slowest).toBeLessThan(500);
    const body = await text;
    expect(body.match(/^\n|\n\n/g)?.length).toBeGreaterThan(2);
    const frames = parseFrames(body);
    expect(preparationOf(frames)).toMatchObject({
      home: "timeout",
      skills: "timeout",
      reason: expect.stringContaining("the volume home does not answer"),
    });
    expect(frames.some(({ outcome }) => outcome?.type === "finished")).toBe(true);
    const again = performance.now();
    const second = await daemon.run({ runId: "second" });
    expect(preparationOf(second)?.home).toBe("timeout");
    expect(performance.now() - again).toBeLessThan(1400);
    await home.release();
    let number = 0;
    await eventually(async () => preparationOf(await daemon.run({ runId: `later ${number++}` }))?.home === "ready");
    await eventually(async () => JSON.stringify(await orgState(daemon)) === '{"home":"mounted","stuck":0}');
  },
  20_000,
);

test("a cancel ends a run in the middle of its wait", async () => {
  await using own = await pod({ ORG_READY_BUDGET_MS: "60000" });
  const { daemon, sidecar } = own;
  await sidecar.report(".outputs");
  const response = await daemon.dispatch({ runId: "waiting" });
  await daemon.cancel("waiting");
  const frames = parseFrames(await response.text());
  expect(frames.at(-1)).toMatchObject({ done: true, error: { code: "cancelled" } });
  expect(await daemon.starts()).toEqual([]);
});

needsMount("workers are no strays of a run, and no reason for the daemon to stay", async () => {
  await using own = await pod();
  const { daemon, sidecar } = own;
  const home = await sidecar.mount("home");
  await untilMounted(daemon, "home");
  await home.hold();
  await daemon.run({ runId: "run" });
  expect(daemon.log.filter(({ event }) => event === "strays killed" || event === "processes left")).toEqual([]);
  const startedAt = performance.now();
  expect(await daemon.stop()).toBe(0);
  expect(performance.now() - startedAt).toBeLessThan(5000);
});

test("mount requests reach the sidecar, or are refused", async () => {
  await using own = await pod();
  const { daemon, sidecar } = own;
  const post = (body: string) => daemon.fetch("/orgfs-config", { method: "POST", body });
  const request = { mounts: [{ volume: "home", url: "https://files.test/" }] };
  const response = await post(JSON.stringify(request));
  expect([response.status, await response.json()]).toEqual([200, { written: true }]);
  expect(await sidecar.request()).toEqual(request);
  expect((await post("[]")).status).toBe(400);
  expect((await post("no JSON")).status).toBe(400);
  expect((await fetch(`${daemon.url}/orgfs-config`, { method: "POST", body: "{}" })).status).toBe(401);
  expect(await sidecar.request()).toEqual(request);
});

test("without a sidecar nothing is waited for and nothing written", async () => {
  await using daemon = await TestDaemon.start();
  expect(await orgState(daemon)).toBe("none");
  expect(preparationOf(await daemon.run({ runId: "run" }))).toMatchObject({ home: "none", skills: "none" });
  const response = await daemon.fetch("/orgfs-config", { method: "POST", body: '{"mounts":[]}' });
  expect(await response.json()).toEqual({ written: false });
});
