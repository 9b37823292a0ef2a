/** The volume hangs at every point of a run, and comes back: it costs a session or a wait, never a run or the daemon. */
import { expect, test } from "bun:test";
import { join } from "node:path";
import { eventually, parseFrames } from "../support/daemon.ts";
import { Pod, readTurn, type Turn, type TurnSetup } from "../support/pod.ts";
import { Sidecar } from "../support/sidecar.ts";
import { mountsMissing } from "../support/wedgefs/index.ts";

const needsMount = test.skipIf(mountsMissing !== undefined && process.env.CI === undefined);
const STORE = "dispatchd-sessions/**";
/** Of the wait, the restore and the last save; each has a budget of a second here. */
const ALL_BUDGETS_MS = 6000;
/** A control plane declares a pod dead that does not answer within this. */
const HEALTH_MS = 500;

interface Watched extends Turn {
  readonly headersMs: number;
  readonly tookMs: number;
  readonly keepalives: number;
  readonly slowestHealthMs: number;
}

/** A turn, with what a control plane sees of the daemon meanwhile. */
async function watched(pod: Pod, threadId: string, line: string, setup: TurnSetup = {}): Promise<Watched> {
  const startedAt = performance.now();
  const since = (): number => performance.now() - startedAt;
  let open = true;
  let slowestHealthMs = 0;
  const asking = (async () => {
    while (open) {
      const askedAt = performance.now();
      await pod.health();
      slowestHealthMs = Math.max(slowestHealthMs, performance.now() - askedAt);
      await Bun.sleep(40);
    }
  })();
  try {
    const response = await pod.begin(threadId, line, setup);
    const headersMs = since();
    const text = await response.text();
    const keepalives = text.split("\n").filter((one) => one === "").length - 1;
    return { ...readTurn(parseFrames(text)), headersMs, tookMs: since(), keepalives, slowestHealthMs };
  } finally {
    open = false;
    await asking;
  }
}

/** What holds of every turn whatever the volume does. */
function expectWholeRun(turn: Watched): void {
  expect(turn.headersMs).toBeLessThan(500);
  expect(turn.slowestHealthMs).toBeLessThan(HEALTH_MS);
  expect(turn.tookMs).toBeLessThan(ALL_BUDGETS_MS);
  expect(turn.outcome?.type).toBe("finished");
  expect(turn.last).toMatchObject({ done: true });
}

/** The pod has had time to find out that its volume answers again. */
async function untilSaved(pod: Pod, threadId: string): Promise<Turn> {
  let turn: Turn | undefined;
  await eventually(async () => {
    turn = await pod.turn(threadId, "again");
    return turn.settled?.saved === true;
  });
  if (!turn) throw new Error("no turn");
  return turn;
}

needsMount(
  "before the wait: the run goes on at its budget, later ones at once, and the history comes back with the volume",
  async () => {
    await using pod = await Pod.start();
    {
      await using other = await Pod.start({ mount: { backing: pod.home.backing } });
      expect((await other.turn("t", "one")).settled?.saved).toBe(true);
    }
    await pod.home.hold();
    const first = await watched(pod, "t", "blind one");
    expectWholeRun(first);
    expect(first.keepalives).toBeGreaterThanOrEqual(3);
    expect(first.preparation).toMatchObject({ home: "timeout", session: "fresh" });
    expect(first.preparation?.reason).toContain("does not answer");
    expect(first.settled).toMatchObject({ saved: false });
    expectWholeRun(await watched(pod, "t", "blind two"));
    const third = await watched(pod, "t", "blind three");
    expectWholeRun(third);
    expect(third.tookMs).toBeLessThan(1000);
    expect(third.heard).toEqual(["blind one", "blind two", "blind three"]);
    expect(await pod.health()).toMatchObject({ org: { home: "hanging" } });

    await pod.home.release();
    await eventually(async () => {
      const { org } = (await pod.health()) as { org: { home: string; stuck: number } };
      return org.home === "mounted" && org.stuck === 0;
    });
    const back = await untilSaved(pod, "t");
    expect(back.heard[0]).toBe("one");
    await using next = await Pod.start({ mount: { backing: pod.home.backing } });
    expect((await next.turn("t", "two")).heard).toEqual([...back.heard, "two"]);
  },
  40_000,
);

needsMount(
  "in the wait: a volume that answers within the budget costs the time that it took",
  async () => {
    await using pod = await Pod.start({ env: { ORG_READY_BUDGET_MS: "8000" } });
    await pod.turn("t", "one");
    await pod.sidecar.withdraw("home");
    await eventually(async () => ((await pod.health()).org as { home: string }).home === "unmounted");
    const turning = watched(pod, "t", "two");
    await pod.home.hold();
    await pod.sidecar.report("home");
    await pod.home.untilHeld();
    await Bun.sleep(700); // Keepalives are what a reader has of the wait.
    await pod.home.release();
    const turn = await turning;
    expect(turn.preparation).toMatchObject({ home: "ready", session: "local" });
    expect(turn.preparation?.waitedMs).toBeGreaterThan(600);
    expect(turn.keepalives).toBeGreaterThanOrEqual(2);
    expect(turn.heard).toEqual(["one", "two"]);
    expect(turn.settled?.saved).toBe(true);
    expect(turn.headersMs).toBeLessThan(500);
  },
  30_000,
);

needsMount(
  "in the probe alone: the session is restored and saved all the same",
  async () => {
    await using pod = await Pod.start();
    {
      await using other = await Pod.start({ mount: { backing: pod.home.backing } });
      await other.turn("t", "one");
    }
    await pod.home.hold({ ops: ["opendir", "readdir"], path: "" });
    const turn = await watched(pod, "t", "two");
    expectWholeRun(turn);
    expect(turn.preparation).toMatchObject({ home: "timeout", session: "restored" });
    expect(turn.heard).toEqual(["one", "two"]);
    expect(turn.settled?.saved).toBe(true);
  },
  30_000,
);

needsMount(
  "in the restore: the run starts without its history, is told so, and gives way to it later",
  async () => {
    await using pod = await Pod.start();
    {
      await using other = await Pod.start({ mount: { backing: pod.home.backing } });
      await other.turn("t", "one");
      await other.turn("t", "two");
    }
    await pod.home.hold({ ops: ["open", "read"], path: STORE });
    const turn = await watched(pod, "t", "blind");
    expectWholeRun(turn);
    expect(turn.preparation).toMatchObject({ home: "ready", session: "fresh" });
    expect(turn.preparation?.reason).toContain("did not answer in time");
    expect(turn.heard).toEqual(["blind"]);
    await pod.home.release();
    await using next = await Pod.start({ mount: { backing: pod.home.backing } });
    expect((await next.turn("t", "three")).heard).toEqual(["one", "two", "three"]);
    expect((await untilSaved(pod, "t")).heard.slice(0, 3)).toEqual(["one", "two", "three"]);
  },
  30_000,
);

needsMount(
  "in a checkpoint: frames go on, the run ends at its budget, and the pod's own session is saved when it can be",
  async () => {
    await using pod = await Pod.start();
    await pod.turn("t", "one");
    const go = join(pod.daemon.folder, "go");
    await pod.home.hold({ ops: ["create", "write"], path: STORE });
    const turning = watched(pod, "t", "two", {
      steps: [{ waitFor: go }, { deltas: 50, everyMs: 5 }, { say: "two and a half" }],
    });
    await pod.home.untilHeld({ path: STORE });
    await Bun.write(go, "");
    const turn = await turning;
    expectWholeRun(turn);
    expect(turn.heard).toEqual(["one", "two", "two and a half"]);
    expect(turn.settled).toMatchObject({ saved: false });
    expect(turn.settled?.reason).toBeString();
    await pod.home.release();
    const back = await untilSaved(pod, "t");
    expect(back.heard.slice(0, 3)).toEqual(["one", "two", "two and a half"]);
    await using next = await Pod.start({ mount: { backing: pod.home.backing } });
    expect((await next.turn("t", "three")).heard).toEqual([...back.heard, "three"]);
  },
  30_000,
);

needsMount(
  "in the last save: the outcome is out before it, and a save abandoned there does not undo a newer one when it wakes",
  async () => {
    for (const op of ["create", "write", "flush"] as const) {
      await using pod = await Pod.start({ env: { CHECKPOINT_MS: "60000" } });
      await using other = await Pod.start({ mount: { backing: pod.home.backing } });
      await pod.turn("t", "one");
      await pod.home.hold({ ops: [op], path: STORE });
      const turn = await watched(pod, "t", "of the pod that hangs");
      expectWholeRun(turn);
      await pod.home.untilHeld({ ops: [op], path: STORE });
      await pod.kill();
      // The first may find half of that save: then it is blind, says so, and gives way when the rest comes after all.
      await other.turn("t", "two");
      const newer = await other.turn("t", "three");
      expect(newer.settled?.saved).toBe(true);
      await pod.home.release();
      await eventually(async () => (await pod.home.held()).length === 0);
      await using next = await Pod.start({ mount: { backing: pod.home.backing } });
      const after = await next.turn("t", "four");
      expect(after.preparation).toMatchObject({ session: "restored", generation: newer.settled?.generation });
      expect(after.heard).toEqual([...newer.heard, "four"]);
    }
  },
  60_000,
);

needsMount(
  "other runs of the pod, and its thread's cancel, are as quick as ever while four flights hang",
  async () => {
    await using pod = await Pod.start({ env: { SESSION_IO_BUDGET_MS: "20000", ORG_READY_BUDGET_MS: "0" } });
    await pod.turn("warm", "one");
    await pod.home.hold({ path: STORE });
    const hanging = [1, 2, 3, 4].map((n) => pod.begin(`t${n}`, "one", { runId: `hanging ${n}` }));
    await Promise.all(hanging);
    await eventually(async () => (await pod.home.held()).length >= 4);
    const slowest: number[] = [];
    for (let n = 0; n < 20; n++) {
      const askedAt = performance.now();
      await pod.health();
      slowest.push(performance.now() - askedAt);
    }
    expect(Math.max(...slowest)).toBeLessThan(HEALTH_MS);
    for (const n of [1, 2, 3, 4]) {
      const askedAt = performance.now();
      expect((await pod.daemon.cancel(`hanging ${n}`, "?wait=1")).status).toBe(204);
      expect(performance.now() - askedAt).toBeLessThan(1500);
    }
    for (const response of await Promise.all(hanging)) {
      expect(parseFrames(await response.text()).at(-1)).toMatchObject({ done: true, error: { code: "cancelled" } });
    }
  },
  30_000,
);

test("a mount request of a sidecar that is not there yet is waited for within the budget, once per pod", async () => {
  await using sidecar = await Sidecar.start();
  await using pod = await Pod.start({ sidecar, env: { ORG_READY_BUDGET_MS: "1200" } });
  const first = await watched(pod, "t", "one");
  expectWholeRun(first);
  expect(first.preparation).toMatchObject({ home: "timeout", skills: "timeout", session: "fresh" });
  expect(first.preparation?.waitedMs).toBeWithin(1100, 2500);
  expect(first.preparation?.reason).toContain("the volume home is not mounted");
  expect(first.settled).toMatchObject({ saved: false, reason: "the org volume is not mounted" });
  const second = await watched(pod, "t", "two");
  expectWholeRun(second);
  expect(second.tookMs).toBeLessThan(1000);
  expect(second.heard).toEqual(["one", "two"]);
});
