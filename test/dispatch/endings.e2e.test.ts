/** How runs are ended from outside: by a cancel, for want of a reader, by a clock. The first reason decides. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import type { Frame } from "../../src/frames/frame.ts";
import { eventually, parseFrames, TestDaemon } from "../support/daemon.ts";
import { Follower } from "../support/follow.ts";
import type { Step } from "../support/scripted-harness.ts";
import { CLOSE, FINISHED, OPEN } from "../support/scripted-harness.ts";
import { follow, HELD, preparing, running, settling } from "./run-states.ts";

const DETACH_MS = 400;
const WAIT: Step = { sleepMs: 600_000 };

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await TestDaemon.start({ env: { ...HELD, KILL_GRACE_MS: "600" } });
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

const refusalOf = async (response: Response): Promise<unknown> => ((await response.json()) as { error: unknown }).error;

/** Exactly one outcome and one last frame, which agree. Returns the error. */
function errorOf(frames: readonly Frame[]): unknown {
  const outcomes = frames.flatMap(({ outcome }) => (outcome ? [outcome] : []));
  expect(outcomes.length).toBe(1);
  expect(frames.map(({ done }) => done === true)).toEqual(frames.map((_, index) => index === frames.length - 1));
  expect(typeof frames.at(-1)?.settled?.saved).toBe("boolean");
  const [outcome] = outcomes;
  const error = outcome?.type === "failed" ? outcome.error : undefined;
  expect(frames.at(-1)?.error).toEqual(error);
  return error;
}

test("a cancel before the first frame of the harness: no message was begun, so none is ended", async () => {
  const body = await follow(daemon, { runId: "c1", steps: [WAIT] });
  await daemon.event("harness started", 0, ({ run }) => run === "c1");
  expect((await daemon.cancel("c1")).status).toBe(204);
  await body.ended;
  expect(errorOf(body.frames)).toEqual({ code: "cancelled", message: "the run was cancelled" });
  expect(body.frames.flatMap(({ chunks }) => chunks)).toEqual([]);
});

test("a cancel in preparation: nothing is started", async () => {
  const { body } = await preparing(daemon, { runId: "c2", steps: [FINISHED] });
  expect((await daemon.cancel("c2", "?wait=1")).status).toBe(204);
  await body.ended;
  expect(errorOf(body.frames)).toMatchObject({ code: "cancelled" });
  const { pid } = await daemon.event("harness started", 0, ({ run }) => run === "before c2");
  await eventually(() => !existsSync(`/proc/${pid}`));
  expect((await daemon.starts()).filter((start) => start.startsWith("c2"))).toEqual([]);
});

test("a cancel in a tool call is answered at once, with `wait` when the whole tree is gone", async () => {
  const tool = { type: "tool-input-available", toolCallId: "c", toolName: "bash", input: {}, dynamic: true };
  const pids = daemon.path("pids of c3");
  const stray = `setsid sh -c 'trap "" TERM; echo $$ >> "${pids}"; while :; do sleep 1; done' &`;
  const steps: Step[] = [
    { ignoreTerm: true },
    { sh: `echo $PPID >> '${pids}'; ${stray}` },
    { chunks: [{ type: "start", messageId: "m" }, { type: "start-step" }, tool] },
    WAIT,
  ];
  const body = await follow(daemon, { runId: "c3", steps });
  await body.until(({ frames }) => frames.length === 2);
  const pidsOf = async (): Promise<string[]> =>
    (await readFile(pids, "utf8").catch(() => "")).split("\n").filter(Boolean);
  await eventually(async () => (await pidsOf()).length === 2);
  const there = async (): Promise<boolean[]> => (await pidsOf()).map((pid) => existsSync(`/proc/${pid}`));

  expect((await daemon.cancel("c3")).status).toBe(204);
  expect(await there()).toEqual([true, true]);
  // Whoever reads knows it as soon: the killing comes after the outcome.
  await body.until(({ frames }) => frames.length === 3);
  expect(await daemon.show("c3")).toMatchObject({ state: "settling", error: { code: "cancelled" } });
  expect((await daemon.cancel("c3", "?wait=1")).status).toBe(204);
  expect(await there()).toEqual([false, false]);
  await body.ended;
  expect(errorOf(body.frames)).toMatchObject({ code: "cancelled" });
  expect(body.frames.at(-2)?.chunks).toEqual([
    expect.objectContaining({ type: "tool-output-error", toolCallId: "c" }),
    { type: "finish-step" },
    { type: "abort", reason: "cancelled" },
  ]);
});

test("a cancel after the result, while settling: the outcome stays, the settling is cut short", async () => {
  const { body } = await settling(daemon, { runId: "c4" });
  expect((await daemon.cancel("c4", "?wait=1")).status).toBe(204);
  await body.ended;
  expect(errorOf(body.frames)).toBeUndefined();
  expect(await daemon.show("c4")).toMatchObject({ state: "ended", outcome: { type: "finished" } });
  expect(await refusalOf(await daemon.dispatch({ runId: "c4" }))).toBe("tombstoned");
});

test("a cancel of an ended run changes nothing of it, and refuses its id", async () => {
  const frames = await daemon.run({ runId: "c5", steps: [FINISHED] });
  expect((await daemon.cancel("c5", "?wait=1")).status).toBe(204);
  expect(parseFrames(await (await daemon.fetch("/runs/c5/frames")).text())).toEqual(frames);
  expect(await refusalOf(await daemon.dispatch({ runId: "c5" }))).toBe("tombstoned");
});

test("a cancel that overtakes its dispatch refuses the id, also after a restart", async () => {
  for (const query of ["", "?wait=1"]) expect((await daemon.cancel("c6/á", query)).status).toBe(204);
  expect(await refusalOf(await daemon.dispatch({ runId: "c6/á" }))).toBe("tombstoned");
  expect((await daemon.fetch("/runs/c6%2F%C3%A1")).status).toBe(404);
  expect(await daemon.stop("SIGKILL")).toBe("SIGKILL");
  await daemon.launch();
  for (const runId of ["c6/á", "c5"]) expect(await refusalOf(await daemon.dispatch({ runId }))).toBe("tombstoned");
  expect(await daemon.show("c5")).toMatchObject({ outcome: { type: "finished" } });
});

test("of several reasons the first decides", async () => {
  const { body } = await running(daemon, {
    runId: "m1",
    threadId: "m",
    steps: [{ ignoreTerm: true }, OPEN, { deltas: 1 }, WAIT],
  });
  await daemon.cancel("m1");
  const next = await follow(daemon, { runId: "m2", threadId: "m", steps: [FINISHED] });
  await daemon.cancel("m1");
  await Promise.all([body.ended, next.ended]);
  expect(errorOf(body.frames)).toMatchObject({ code: "cancelled" });
  expect(errorOf(next.frames)).toBeUndefined();
});

test.concurrent("a run that nobody reads is ended after DETACH_GRACE_MS, in preparation too", async () => {
  await using hasty = await TestDaemon.start({ env: { ...HELD, DETACH_GRACE_MS: String(DETACH_MS) } });
  const left = new AbortController();
  await running(hasty, { runId: "d1", signal: left.signal });
  // The obstacle of the second loses its reader last, so it lives until then.
  const { go } = await preparing(hasty, { runId: "d2", steps: [FINISHED], signal: left.signal });
  left.abort();
  await eventually(async () => "outcome" in (await hasty.show("d1")) && "outcome" in (await hasty.show("d2")));
  await go();
  for (const runId of ["d1", "d2"]) {
    const body = new Follower(await hasty.fetch(`/runs/${runId}/frames`));
    await body.ended;
    expect(errorOf(body.frames)).toMatchObject({ code: "sandbox_gone", reason: "detached" });
  }
  expect((await hasty.starts()).filter((start) => start === "d2#1")).toEqual([]);
});

test.concurrent("a reader by GET keeps a run going, and each loss begins the grace anew", async () => {
  await using hasty = await TestDaemon.start({ env: { ...HELD, DETACH_GRACE_MS: String(DETACH_MS) } });
  const owner = new AbortController();
  const { go } = await running(hasty, { runId: "k1", signal: owner.signal });
  const reading = new AbortController();
  const reader = new Follower(await hasty.fetch("/runs/k1/frames", { signal: reading.signal }));
  await reader.until(({ frames }) => frames.length === 3);
  owner.abort();
  await Bun.sleep(2 * DETACH_MS); // Longer than the grace: a wrong watch would have ended it.
  expect(await hasty.show("k1")).toMatchObject({ state: "running", readers: 1 });
  reading.abort();
  await Bun.sleep(DETACH_MS / 2);
  const again = new Follower(await hasty.fetch("/runs/k1/frames?after=3"));
  await Bun.sleep(DETACH_MS);
  expect(await hasty.show("k1")).toMatchObject({ state: "running", readers: 1 });
  await go();
  await again.ended;
  expect(errorOf(again.frames)).toBeUndefined();
});

test.concurrent("nobody reads the end of a run that had its outcome: it stays as it is", async () => {
  await using hasty = await TestDaemon.start({ env: { ...HELD, DETACH_GRACE_MS: "50" } });
  const left = new AbortController();
  const { go } = await settling(hasty, { runId: "n1", signal: left.signal });
  left.abort();
  await eventually(async () => (await hasty.show("n1")).readers === 0);
  // One that was left later, and is ended for it: then the grace of this one is over too.
  const alsoLeft = new AbortController();
  await running(hasty, { runId: "n2", signal: alsoLeft.signal });
  alsoLeft.abort();
  await hasty.event("dispatch outcome", 0, ({ run, code }) => run === "n2" && code === "sandbox_gone");
  expect(await hasty.show("n1")).toMatchObject({ state: "settling", outcome: { type: "finished" } });
  await go();
  await eventually(async () => (await hasty.show("n1")).state === "ended");
});

test.concurrent("HARNESS_STALL_MS ends a harness that says nothing, and none that says anything", async () => {
  await using strict = await TestDaemon.start({ env: { HARNESS_STALL_MS: "1000" } });
  const silent = strict.run({ runId: "s1", steps: [OPEN, WAIT] });
  const talks = strict.run({ runId: "s2", steps: [OPEN, { deltas: 15, everyMs: 100 }, CLOSE, FINISHED] });
  const garbage = Array.from({ length: 15 }, (): Step[] => [{ line: "still here" }, { sleepMs: 100 }]).flat();
  const mutters = strict.run({ runId: "s3", steps: [...garbage, FINISHED] });
  expect(errorOf(await silent)).toMatchObject({ code: "harness_stalled" });
  expect(errorOf(await talks)).toBeUndefined();
  expect(errorOf(await mutters)).toBeUndefined();
});

test.concurrent("RUN_MAX_MS ends the longest turn", async () => {
  await using strict = await TestDaemon.start({ env: { RUN_MAX_MS: "300" } });
  const long = strict.run({ runId: "l1", steps: [OPEN, { deltas: 1000, everyMs: 20 }] });
  const short = strict.run({ runId: "l2", steps: [FINISHED] });
  expect(errorOf(await long)).toEqual({ code: "turn_failed", message: "the turn took longer than 300 ms" });
  expect(errorOf(await short)).toBeUndefined();
});

test("16 runs at once; the next one is refused, one that replaces another is not", async () => {
  const script = `cat > /dev/null; echo '{"chunks":[]}'; exec sleep 600`;
  await using full = await TestDaemon.start({ harness: ["/bin/sh", "-c", script] });
  const start = (index: number): Promise<Follower> => follow(full, { runId: `f${index}` });
  const bodies = await Promise.all(Array.from({ length: 16 }, (_, index) => start(index)));
  await Promise.all(bodies.map((body) => body.until(({ frames }) => frames.length === 2)));
  expect(((await (await full.fetch("/health")).json()) as { runs: number }).runs).toBe(16);
  const refused = await full.dispatch({ runId: "f16" });
  expect([refused.status, await refusalOf(refused)]).toEqual([429, "too_many_runs"]);
  expect((await full.fetch("/runs/f16")).status).toBe(404);

  const replacing = await follow(full, { runId: "f17", threadId: "thread of f0" });
  const again = await follow(full, { runId: "f1" });
  await Promise.all([replacing, again].map((body) => body.until(({ frames }) => frames.length === 2)));
  expect(await refusalOf(await full.dispatch({ runId: "f16" }))).toBe("too_many_runs");
  await full.cancel("f2");
  const admitted = await follow(full, { runId: "f16" });
  await admitted.until(({ frames }) => frames.length === 2);
  const all = [...bodies, replacing, again, admitted];
  expect(await full.stop()).toBe(0);
  await Promise.all(all.map(({ ended }) => ended));
  const codes = all.map(({ frames }) => (errorOf(frames) as { code: string }).code);
  expect(codes).toEqual(all.map((_, index) => ["superseded", "superseded", "cancelled"][index] ?? "sandbox_gone"));
});
