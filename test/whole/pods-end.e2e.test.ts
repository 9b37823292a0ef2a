/** However a run ends, its session is saved; what a run got and kept is in its first and its last frame. */
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { readlink } from "node:fs/promises";
import { join } from "node:path";
import { eventually, framesOf } from "../support/daemon.ts";
import { Pod, turnOf } from "../support/pod.ts";
import type { Step } from "../support/scripted-harness.ts";
import { Sidecar } from "../support/sidecar.ts";
import { mountsMissing } from "../support/wedgefs/index.ts";

setDefaultTimeout(20_000);
const needsMount = test.skipIf(mountsMissing !== undefined && process.env.CI === undefined);

let sidecar: Sidecar;
beforeAll(async () => {
  sidecar = await Sidecar.start();
  await sidecar.provide("home");
});
afterAll(() => sidecar[Symbol.asyncDispose]());

/** Resolves when the harness has said its line; the body is read on. */
async function hasSpoken(response: Response): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  void (async () => {
    for await (const { chunks } of framesOf(response)) {
      if (chunks.some(({ type }) => type === "data-transcript")) resolve();
    }
  })().catch(() => {}); // Whoever ends the daemon or the connection.
  await promise;
}

const FOR_EVER: Step = { sleepMs: 60_000 };
const NO_CHECKPOINTS = { CHECKPOINT_MS: "60000" };

const ends: Readonly<Record<string, (pod: Pod, runId: string) => Promise<unknown>>> = {
  cancelled: (pod, runId) => pod.daemon.cancel(runId, "?wait=1"),
  "ended by a shutdown": (pod) => pod.daemon.stop(),
  crashed: async (pod, runId) => {
    const pid = Number(await Bun.file(join(pod.daemon.folder, `pid of ${runId}`)).text());
    process.kill(pid, "SIGKILL");
  },
};

for (const [how, end] of Object.entries(ends)) {
  test(`a run that is ${how} is saved`, async () => {
    await using pod = await Pod.start({ sidecar, env: NO_CHECKPOINTS });
    await pod.turn(how, "one");
    const pidFile = join(pod.daemon.folder, `pid of ${how}`);
    const steps = [{ say: "three" }, { sh: `echo $PPID > '${pidFile}'`, wait: true } as const, FOR_EVER];
    await hasSpoken(await pod.begin(how, "two", { runId: how, steps }));
    await eventually(async () => (await Bun.file(pidFile).exists()) && (await Bun.file(pidFile).text()) !== "");
    const from = pod.daemon.log.length;
    await end(pod, how);
    await eventually(() =>
      pod.daemon.log.slice(from).some(({ event, run }) => event === "dispatch done" && run === how),
    );
    const saved = pod.daemon.log.findLast(({ event, run }) => event === "session saved" && run === how);
    expect(saved).toMatchObject({ saved: true });
    await using next = await Pod.start({ sidecar });
    const turn = await next.turn(how, "four");
    expect(turn.heard).toEqual(["one", "two", "three", "four"]);
    expect(turn.preparation).toMatchObject({ session: "restored", generation: String(saved?.generation) });
  });
}

test("a run that nobody reads any more is saved", async () => {
  await using pod = await Pod.start({ sidecar, env: { ...NO_CHECKPOINTS, DETACH_GRACE_MS: "200" } });
  const aborted = new AbortController();
  const steps = [{ say: "two" }, FOR_EVER];
  const response = await pod.daemon.dispatch({
    runId: "detached",
    threadId: "detached",
    steps: [{ say: "one" }, ...steps],
    signal: aborted.signal,
  });
  await hasSpoken(response);
  aborted.abort();
  const done = await pod.daemon.event("dispatch done");
  expect(done).toMatchObject({ run: "detached" });
  expect(await pod.daemon.show("detached")).toMatchObject({
    error: { code: "sandbox_gone", reason: "detached" },
    settled: { saved: true },
  });
  await using next = await Pod.start({ sidecar });
  expect((await next.turn("detached", "three")).heard).toEqual(["one", "two", "three"]);
});

test("after a save the daemon stays for the mount's write-back, and counts as active", async () => {
  await using pod = await Pod.start({ sidecar, env: { ...NO_CHECKPOINTS, ORG_WRITE_BACK_MS: "1500" } });
  await pod.turn("write back", "one");
  const savedAt = performance.now();
  const idleMs = async (): Promise<number> =>
    ((await (await pod.daemon.fetch("/idle")).json()) as { idleMs: number }).idleMs;
  await Bun.sleep(600);
  expect(await idleMs()).toBeLessThan(100);
  await eventually(async () => (await idleMs()) > 300);
  expect(performance.now() - savedAt).toBeGreaterThan(1300);

  await hasSpoken(await pod.begin("write back", "two", { steps: [FOR_EVER] }));
  const stopping = pod.daemon.stop();
  await pod.daemon.event("dispatch done", 0, ({ outcome }) => outcome === "failed");
  const endedAt = performance.now();
  expect(await pod.health()).toMatchObject({ draining: true });
  expect((await pod.begin("write back", "three")).status).toBe(503);
  expect(await stopping).toBe(0);
  expect(performance.now() - endedAt).toBeWithin(1000, 3500);
});

test("without anything saved a daemon goes at once", async () => {
  await using pod = await Pod.start({ sidecar, env: { ORG_WRITE_BACK_MS: "20000" } });
  const startedAt = performance.now();
  expect(await pod.daemon.stop()).toBe(0);
  expect(performance.now() - startedAt).toBeLessThan(1500);
});

needsMount(
  "a shutdown gives a save that hangs 12 s, and exits 0 within 20",
  async () => {
    await using pod = await Pod.start({
      env: { ...NO_CHECKPOINTS, SESSION_IO_BUDGET_MS: "30000", ORG_WRITE_BACK_MS: "8000" },
    });
    await hasSpoken(await pod.begin("t", "one", { steps: [FOR_EVER] }));
    await pod.home.hold({ path: "dispatchd-sessions{,/**}" });
    const startedAt = performance.now();
    expect(await pod.daemon.stop()).toBe(0);
    expect(performance.now() - startedAt).toBeWithin(11_000, 20_000);
    expect(pod.daemon.log.findLast(({ event }) => event === "session not saved")).toBeDefined();
  },
  30_000,
);

test("the first frame and the last one name the generation of what the run had and of what it kept", async () => {
  await using pod = await Pod.start({ sidecar, env: NO_CHECKPOINTS });
  const first = await pod.turn("generations", "one");
  expect(first.preparation).toEqual({
    home: "ready",
    skills: "ready",
    waitedMs: expect.any(Number),
    session: "fresh",
  });
  expect(first.settled).toEqual({ saved: true, generation: expect.any(String), bytes: expect.any(Number) });
  expect(first.settled?.bytes).toBeGreaterThan(0);
  const second = await pod.turn("generations", "two");
  expect(second.preparation).toMatchObject({ session: "local", generation: first.settled?.generation });
  await using other = await Pod.start({ sidecar, env: NO_CHECKPOINTS });
  const third = await other.turn("generations", "three");
  expect(third.preparation).toMatchObject({ session: "restored", generation: second.settled?.generation });
  expect((second.settled?.generation ?? "") < (third.settled?.generation ?? "")).toBe(true);
  expect(await other.daemon.show(String(other.daemon.log.findLast(({ run }) => run)?.run))).toMatchObject({
    settled: { saved: true, generation: third.settled?.generation },
  });
  // Nothing said, nothing written.
  const silent = await other.daemon.run({ runId: "silent", threadId: "generations", steps: [] });
  expect(silent.at(-1)?.settled).toMatchObject({ saved: true, generation: third.settled?.generation, bytes: 0 });
});

needsMount(
  "sessionGeneration: a save that is still on its way is waited for; one that never comes is said",
  async () => {
    const env = { ...NO_CHECKPOINTS, SESSION_IO_BUDGET_MS: "6000" };
    await using pod = await Pod.start({ mount: { writeBackMs: 600_000 }, env });
    await using other = await Pod.start({ mount: { backing: pod.home.backing }, env });
    const { settled } = await pod.turn("t", "one");
    const sessionGeneration = settled?.generation;
    const waiting = other.begin("t", "two", { input: { sessionGeneration } });
    await Bun.sleep(800);
    await pod.home.writeBack();
    const turn = await turnOf(await waiting);
    expect(turn.preparation).toMatchObject({ session: "restored", generation: sessionGeneration });
    expect(turn.preparation?.waitedMs).toBeGreaterThan(700);
    expect(turn.heard).toEqual(["one", "two"]);

    const late = await pod.turn("t", "three");
    expect(late.heard).toEqual(["one", "two", "three"]);
    const blind = await other.turn("t", "four", { input: { sessionGeneration: late.settled?.generation } });
    expect(blind.preparation).toMatchObject({
      session: "stale-session",
      reason: expect.stringContaining("not on the"),
    });
    expect(blind.heard).toEqual(["one", "two", "four"]);
  },
  30_000,
);

test("a home that is mounted after a while is waited for, with its sessions", async () => {
  await using late = await Sidecar.start();
  await using pod = await Pod.start({ sidecar: late, env: { ORG_READY_BUDGET_MS: "8000" } });
  const turning = pod.turn("late", "one");
  await Bun.sleep(600);
  await late.provide("home");
  const turn = await turning;
  expect(turn.preparation).toMatchObject({ home: "ready", skills: "ready" });
  expect(turn.preparation?.waitedMs).toBeWithin(500, 3000);
  expect(turn.settled?.saved).toBe(true);
});

test("only .outputs is mounted: the run has its link, and goes on without home at its budget", async () => {
  await using own = await Sidecar.start();
  const outputs = await own.provide(".outputs");
  await using pod = await Pod.start({ sidecar: own, env: { ORG_READY_BUDGET_MS: "600" } });
  const write = (text: string): Step => ({ sh: `echo ${text} > ${own.appRoot}/org/output/made`, wait: true });
  const turn = await pod.turn("thrd_1", "one", { steps: [write("one")] });
  expect(turn.preparation).toMatchObject({ home: "timeout" });
  expect(await readlink(join(own.appRoot, "org/output"))).toBe(".outputs/thrd_1");
  expect(await Bun.file(join(outputs, "thrd_1/made")).text()).toBe("one\n");
  await pod.turn("thrd_2", "one", { steps: [write("two")] });
  expect(await Bun.file(join(outputs, "thrd_2/made")).text()).toBe("two\n");
  // No name of a folder: no link, and not that of the run before.
  await pod.turn("../thrd_1", "one", { steps: [write("three")] });
  expect(await Bun.file(join(outputs, "thrd_2/made")).text()).toBe("two\n");
  expect(await readlink(join(own.appRoot, "org/output")).catch(() => "none")).toBe("none");
});
