/** A turn that only waits for a person is suspended, not ended: by a drain, without readers, as silent, as too long. */
import { expect, test } from "bun:test";
import type { Frame } from "../../src/frames/frame.ts";
import { AskingPod, calling, chunksIn, keyOf, typesOf, waitingOf } from "../support/asking-pod.ts";
import { eventually } from "../support/daemon.ts";
import { readMessage } from "../support/read-message.ts";
import { OPEN, type Step } from "../support/scripted-harness.ts";
import { outcomeOf, resolved, type Suspended, suspendedOf } from "../support/tools-pod.ts";

const PICK_ONE = calling({ id: "p", name: "pick", input: { from: ["a"] } });
const TURN = { runId: "r1", steps: PICK_ONE };

/** The harness of a later run is handed the answer. */
async function expectResumed(pod: AskingPod, { interrupts, suspension }: Suspended): Promise<void> {
  const answers = [resolved(interrupts[0], { picked: "a" })];
  const frames = await pod.turn({ runId: "r2", input: { answers, suspension } });
  expect(chunksIn(frames, "data-answers")).toMatchObject([{ data: [{ toolCallId: "p", text: '{"picked":"a"}' }] }]);
  expect(typesOf(frames, "p")).toEqual(["tool-input-available", "tool-output-available"]);
  expect(outcomeOf(frames)?.type).toBe("finished");
}

async function expectParked(
  frames: readonly Frame[],
  questions: Suspended["interrupts"] | undefined,
): Promise<Suspended> {
  const suspended = suspendedOf(frames);
  expect(suspended.interrupts.map(({ id }) => id)).toEqual((questions ?? []).map(({ id }) => id));
  expect(typesOf(frames, "p")).toEqual(["tool-input-available"]);
  expect(chunksIn(frames, "finish")).toMatchObject([{ finishReason: "tool-calls" }]);
  expect(frames.at(-1)).toMatchObject({ done: true });
  expect(frames.at(-1)).not.toHaveProperty("error");
  expect((await readMessage(chunksIn(frames))).errors).toEqual([]);
  return suspended;
}

test.concurrent("a drain suspends it within the time of a shutdown, and another pod resumes it", async () => {
  await using pod = await AskingPod.start();
  const body = await pod.holds(TURN);
  const startedAt = performance.now();
  expect(await pod.daemon.stop()).toBe(0);
  expect(performance.now() - startedAt).toBeLessThan(10_000);
  await body.ended;
  const suspended = await expectParked(body.frames, waitingOf(body.frames)?.interrupts);
  await using other = await AskingPod.start();
  await expectResumed(other, suspended);
});

test.concurrent("a drain ends as gone what does something beside waiting", async () => {
  await using pod = await AskingPod.start();
  pod.reply = () => new Promise<Response>(() => {});
  const calls = [
    { id: "p", name: "pick" },
    { id: "a", name: "look_up" },
  ];
  const body = await pod.holds({ ...TURN, steps: calling(...calls) });
  await eventually(() => pod.callbacks.length === 1);
  expect(await pod.daemon.stop()).toBe(0);
  await body.ended;
  expect(body.frames.at(-1)?.error).toMatchObject({ code: "sandbox_gone", reason: "shutdown" });
  expect((await readMessage(chunksIn(body.frames))).errors).toEqual([]);
});

test.concurrent("the pod's death leaves the newest question, which another pod resumes, and the dead one when it is back", async () => {
  await using pod = await AskingPod.start();
  const body = await pod.holds(TURN);
  await pod.daemon.stop("SIGKILL");
  await body.ended;
  const { interrupts = [], suspension = "" } = waitingOf(body.frames) ?? {};
  await using other = await AskingPod.start();
  await expectResumed(other, { interrupts, suspension });
  await pod.daemon.launch();
  expect(await pod.daemon.show("r1")).toMatchObject({ error: { code: "sandbox_gone", reason: "restarted" } });
  await expectResumed(pod, { interrupts, suspension });
});

test.concurrent("without readers it is suspended, and whoever looks finds how to resume it", async () => {
  await using pod = await AskingPod.start({ env: { DETACH_GRACE_MS: "300" } });
  const lost = new AbortController();
  const body = await pod.holds({ ...TURN, signal: lost.signal });
  lost.abort();
  await eventually(async () => (await pod.daemon.show("r1")).state === "ended");
  const { outcome } = (await pod.daemon.show("r1")) as { outcome: Suspended };
  expect(outcome).toMatchObject({ type: "interrupt" } as object);
  const answers = [resolved(outcome.interrupts[0], { picked: "a" })];
  expect(outcome.interrupts[0]?.id).toBe(waitingOf(body.frames)?.interrupts[0]?.id ?? "none");
  expect(await pod.answer("r1", answers)).toMatchObject({
    status: 409,
    body: { error: "stale", dead: false, reason: "the run does not wait any more: it is answered by a new dispatch" },
  });
  // With one that no dispatch can answer it is not said that one does.
  expect(await pod.answer("r1", [...answers, { interruptId: "none", status: "cancelled" }])).toMatchObject({
    status: 409,
    body: { error: "stale", interruptId: "none", reason: "the run asks no such question", dead: true },
  });
  await expectResumed(pod, outcome);
});

// Not beside the others: what starts here has to ask within the limits.
test("HARNESS_STALL_MS and RUN_MAX_MS suspend it, and end a turn that does not wait", async () => {
  const limits = [
    ["HARNESS_STALL_MS", "harness_stalled"],
    ["RUN_MAX_MS", "turn_failed"],
  ] as const;
  await Promise.all(
    limits.map(async ([setting, code]) => {
      await using pod = await AskingPod.start({ env: { [setting]: "4000" } });
      const body = await pod.holds(TURN);
      await body.ended;
      await expectParked(body.frames, waitingOf(body.frames)?.interrupts);
      const silent: Step[] = [OPEN, { sleepMs: 60_000 }];
      await using other = await AskingPod.start({ env: { [setting]: "500" } });
      expect(outcomeOf(await other.turn({ runId: "silent", steps: silent }))).toMatchObject({ error: { code } });
    }),
  );
});

test.concurrent("at its limit it is suspended as if it had never waited", async () => {
  await using pod = await AskingPod.start({ env: { SUSPENSION_KEYS: keyOf("k2", "b") } });
  const body = await pod.holds({ ...TURN, input: { clientTools: { holdSeconds: 0.5 } } });
  await body.ended;
  const suspended = await expectParked(body.frames, waitingOf(body.frames)?.interrupts);
  const [parked] = suspended.interrupts;
  expect(await pod.answer("r1", [resolved(parked, { picked: "a" })])).toMatchObject({ status: 409 });
  await expectResumed(pod, suspended);
});

test.concurrent("a dispatch that brings the answer takes the thread over from the turn that waits for it", async () => {
  await using pod = await AskingPod.start();
  const body = await pod.holds(TURN);
  const { interrupts = [], suspension = "" } = waitingOf(body.frames) ?? {};
  await expectResumed(pod, { interrupts, suspension });
  await body.ended;
  expect(body.frames.at(-1)?.error).toMatchObject({ code: "superseded" });
  expect((await readMessage(chunksIn(body.frames))).errors).toEqual([]);
});

test.concurrent("a stale answer ends nothing: the turn that waits goes on waiting", async () => {
  await using pod = await AskingPod.start();
  const body = await pod.holds(TURN);
  const { interrupts = [], suspension = "" } = waitingOf(body.frames) ?? {};
  const input = { answers: [resolved(interrupts[0], { picked: 1 })], suspension };
  expect((await pod.dispatch({ runId: "r2", input })).status).toBe(409);
  expect(await pod.answer("r1", [resolved(interrupts[0], { picked: "a" })])).toMatchObject({ status: 200 });
  await body.ended;
  expect(outcomeOf(body.frames)?.type).toBe("finished");
});

test.concurrent("a turn that goes on although it was parked is ended at its next step, and nothing of that is heard", async () => {
  await using pod = await AskingPod.start();
  const start: Step = { chunks: OPEN.chunks.slice(0, 2) };
  const steps: Step[] = [
    start,
    { calls: [{ id: "p", name: "pick", input: { from: ["a"] } }], goesOn: true },
    { chunks: [{ type: "finish-step" }] },
    { chunks: [{ type: "start-step" }, { type: "text-start", id: "t" }] },
    { chunks: [{ type: "text-delta", id: "t", delta: "on and on" }] },
    { chunks: [{ type: "tool-output-error", toolCallId: "p", errorText: "no answer", dynamic: true }] },
    { sleepMs: 60_000 },
  ];
  const { interrupts, suspension, frames } = await pod.asks({ ...TURN, steps });
  expect(typesOf(frames, "p")).toEqual(["tool-input-available"]);
  expect(chunksIn(frames).map(({ type }) => type)).toEqual([
    "start",
    "start-step",
    "tool-input-available",
    "data-result",
    "finish-step",
    "finish",
  ]);
  expect((await readMessage(chunksIn(frames))).errors).toEqual([]);
  await expectResumed(pod, { interrupts, suspension });
});

test.concurrent("of the suspensions that one turn handed out one is used, and the others with it", async () => {
  await using pod = await AskingPod.start();
  const steps = calling({ id: "e", name: "erase", input: { what: "one" } });
  const body = await pod.holds({ runId: "r1", steps, input: { clientTools: { holdSeconds: 1 } } });
  const asked = waitingOf(body.frames);
  await body.ended;
  const { interrupts, suspension } = suspendedOf(body.frames);
  const answers = [resolved(interrupts[0], { approved: true })];
  const resumed = await pod.turn({ runId: "r2", input: { answers, suspension } });
  expect(outcomeOf(resumed)?.type).toBe("finished");
  expect(asked?.suspension).not.toBe(suspension);
  const again = await pod.turn({ runId: "r3", input: { answers, suspension: asked?.suspension } });
  expect(again.at(-1)?.error).toMatchObject({ code: "stale", dead: true });
  expect(pod.callbacks).toHaveLength(1);
});
