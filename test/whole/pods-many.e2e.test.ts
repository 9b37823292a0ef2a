/** Several pods and several threads on one volume: kills in mid-turn, races, threads that move, takeovers. */
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import type { Frame } from "../../src/frames/frame.ts";
import { framesOf } from "../support/daemon.ts";
import { Pod, readTurn, type Turn, turnOf } from "../support/pod.ts";
import type { Step } from "../support/scripted-harness.ts";
import { Sidecar } from "../support/sidecar.ts";
import { mountsMissing } from "../support/wedgefs/index.ts";

setDefaultTimeout(20_000);
const needsMount = test.skipIf(mountsMissing !== undefined && process.env.CI === undefined);

/** Pods that need no mount of their own share a plain folder. */
let sidecar: Sidecar;
beforeAll(async () => {
  sidecar = await Sidecar.start();
  await sidecar.provide("home");
});
afterAll(() => sidecar[Symbol.asyncDispose]());

const CHECKPOINT_MS = 100;
/** Frames and looks at the transcript, on a machine that is busy. */
const SLACK_MS = 500;

for (const lines of [0, 1, 2, 5, 9, 16, 25]) {
  test(`a pod that is killed after ${lines} lines of a turn costs what came since its last checkpoint`, async () => {
    const threadId = `killed after ${lines}`;
    await using first = await Pod.start({ sidecar, env: { CHECKPOINT_MS: String(CHECKPOINT_MS) } });
    await first.turn(threadId, "base");
    const steps = Array.from({ length: 400 }, (_, n): Step[] => [{ say: `line ${n}` }, { sleepMs: 40 }]).flat();
    const response = await first.begin(threadId, "asked", { steps });
    /** When the reader had each line. */
    const heardAt = new Map<string, number>();
    const reading = (async () => {
      for await (const { chunks } of framesOf(response)) {
        const said = chunks.findLast(({ type }) => type === "data-transcript")?.data as string[] | undefined;
        for (const line of said ?? []) if (!heardAt.has(line)) heardAt.set(line, performance.now());
        if (heardAt.size >= lines + 2) return;
      }
    })().catch(() => {}); // The pod dies under it.
    if (lines > 0) await reading;
    await first.kill();
    const killedAt = performance.now();
    await reading;

    await using second = await Pod.start({ sidecar });
    const next = await second.turn(threadId, "go on", { input: { resume: { reason: "the pod was lost" } } });
    expect(next.outcome?.type).toBe("finished");
    expect(next.preparation).toMatchObject({ session: "restored" });
    expect(next.heard[0]).toBe("base");
    expect(next.heard.at(-1)).toBe("go on");
    const saves = first.daemon.log.filter(({ event }) => event === "session saved");
    const longestMs = Math.max(0, ...saves.map(({ elapsedMs }) => Number(elapsedMs)));
    const atMostMs = Math.max(CHECKPOINT_MS, 10 * longestMs) + longestMs + SLACK_MS;
    for (const [line, at] of heardAt) {
      if (!next.heard.includes(line)) expect(killedAt - at).toBeLessThan(atMostMs);
    }
    // In their order, and none twice.
    expect(next.heard.slice(1, -1)).toEqual([...heardAt.keys()].slice(1, next.heard.length - 1));
  });
}

test("two pods race on one thread: every turn goes on from a state that one run had, and both agree on it", async () => {
  await using one = await Pod.start({ sidecar });
  await using other = await Pod.start({ sidecar });
  const states = new Set([""]);
  const note = (turn: Turn): void => {
    expect(turn.outcome?.type).toBe("finished");
    expect(states).toContain(turn.heard.slice(0, -1).join());
  };
  for (let round = 0; round < 6; round++) {
    const turns = await Promise.all([one.turn("raced", `one ${round}`), other.turn("raced", `other ${round}`)]);
    // One may have ended before the other began.
    for (const { heard } of turns) states.add(heard.join());
    for (const turn of turns) note(turn);
    expect(turns.some(({ settled }) => settled?.saved)).toBe(true);
  }
  const [a, b] = [await one.turn("raced", "a"), await other.turn("raced", "b")];
  expect(a.heard.length).toBeGreaterThanOrEqual(7);
  expect(b.heard).toEqual([...a.heard, "b"]);
});

test("a thread that went on on another pod and comes back: the newer conversation is used, whichever it is", async () => {
  await using one = await Pod.start({ sidecar });
  await using other = await Pod.start({ sidecar });
  expect((await one.turn("moves", "1")).preparation?.session).toBe("fresh");
  expect((await one.turn("moves", "2")).preparation?.session).toBe("local");
  expect((await other.turn("moves", "3")).preparation?.session).toBe("restored");
  const back = await one.turn("moves", "4");
  expect(back.preparation?.session).toBe("restored");
  expect(back.heard).toEqual(["1", "2", "3", "4"]);
  expect((await one.turn("moves", "5")).preparation?.session).toBe("local");
  const last = await other.turn("moves", "6");
  expect(last.heard).toEqual(["1", "2", "3", "4", "5", "6"]);
});

test("threads of one pod at the same time: each has its own lines and no others", async () => {
  await using pod = await Pod.start({ sidecar });
  const threads = ["a", "b", "c", "d"].map((name) => `at once ${name}`);
  for (const round of [1, 2, 3]) {
    const turns = await Promise.all(threads.map((thread) => pod.turn(thread, `${round} of ${thread}`)));
    for (const turn of turns) expect(turn.settled?.saved).toBe(true);
  }
  await using next = await Pod.start({ sidecar });
  for (const thread of threads) {
    const { heard } = await next.turn(thread, "all");
    expect(heard).toEqual([`1 of ${thread}`, `2 of ${thread}`, `3 of ${thread}`, "all"]);
  }
});

needsMount(
  "a dispatch takes over while the save before it hangs: it has the whole conversation, and saves it",
  async () => {
    await using pod = await Pod.start({ env: { SESSION_IO_BUDGET_MS: "20000" } });
    await pod.turn("t", "one");
    await pod.home.hold({ ops: ["create", "write"], path: "dispatchd-sessions/**" });
    const first = await pod.begin("t", "two");
    const frames: Frame[] = [];
    let outcome = () => {};
    const hasOutcome = new Promise<void>((resolve) => {
      outcome = resolve;
    });
    const reading = (async () => {
      for await (const frame of framesOf(first)) {
        frames.push(frame);
        if (frame.outcome) outcome();
      }
    })();
    await hasOutcome;
    await pod.home.untilHeld({ path: "dispatchd-sessions/**" });
    const startedAt = performance.now();
    const second = await pod.begin("t", "three", { steps: [{ sleepMs: 300 }] });
    await reading;
    // What a save that hangs may take from the run that follows, and no more.
    expect(performance.now() - startedAt).toBeLessThan(4000);
    expect(readTurn(frames)).toMatchObject({ outcome: { type: "finished" }, settled: { saved: false } });
    await pod.home.release();
    const turn = await turnOf(second);
    expect(turn.heard).toEqual(["one", "two", "three"]);
    // What is left of the save before, on the volume, is of a run that this pod's session holds.
    expect(turn.preparation).toMatchObject({ session: "local" });
    expect(turn.preparation?.reason).toBeUndefined();
    expect(turn.settled?.saved).toBe(true);
    await using next = await Pod.start({ mount: { backing: pod.home.backing } });
    expect((await next.turn("t", "four")).heard).toEqual(["one", "two", "three", "four"]);
  },
  20_000,
);

test("a dispatch that takes over a running turn has what that turn had said", async () => {
  await using pod = await Pod.start({ sidecar });
  await pod.turn("taken over", "one");
  const first = await pod.begin("taken over", "two", { steps: [{ sleepMs: 60_000 }] });
  const frames: Frame[] = [];
  const { promise: said, resolve } = Promise.withResolvers<void>();
  const reading = (async () => {
    for await (const frame of framesOf(first)) {
      frames.push(frame);
      if (frame.chunks.some(({ type }) => type === "data-transcript")) resolve();
    }
  })();
  await said;
  const second = await pod.turn("taken over", "three");
  await reading;
  expect(frames.at(-1)).toMatchObject({ done: true, error: { code: "superseded" } });
  expect(second.heard).toEqual(["one", "two", "three"]);
  await using next = await Pod.start({ sidecar });
  expect((await next.turn("taken over", "four")).heard).toEqual(["one", "two", "three", "four"]);
});
