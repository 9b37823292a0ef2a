/** Whatever ends a run, and wherever in the message: the reader is left with a whole message and a whole stream. */
import { expect, test } from "bun:test";
import type { RunErrorCode } from "../../src/errors.ts";
import type { Frame } from "../../src/frames/frame.ts";
import { eventually, parseFrames, TestDaemon } from "../support/daemon.ts";
import { Follower } from "../support/follow.ts";
import { readMessage } from "../support/read-message.ts";
import type { Step } from "../support/scripted-harness.ts";

const MESSAGE = [
  { type: "start", messageId: "m" },
  { type: "start-step" },
  { type: "reasoning-start", id: "r" },
  { type: "reasoning-delta", id: "r", delta: "hm" },
  { type: "text-start", id: "t" },
  { type: "text-delta", id: "t", delta: "Let me look." },
  { type: "reasoning-end", id: "r" },
  { type: "text-end", id: "t" },
  { type: "tool-input-start", toolCallId: "c1", toolName: "bash", dynamic: true },
  { type: "tool-input-delta", toolCallId: "c1", inputTextDelta: '{"command":' },
  { type: "tool-input-available", toolCallId: "c1", toolName: "bash", input: {}, dynamic: true },
  { type: "tool-output-available", toolCallId: "c1", output: "half", preliminary: true, dynamic: true },
  { type: "finish-step" },
  { type: "tool-output-available", toolCallId: "c1", output: "whole", dynamic: true },
  { type: "start-step" },
  { type: "text-start", id: "t" },
  { type: "tool-input-available", toolCallId: "c2", toolName: "read", input: {} },
  { type: "finish-step" },
  { type: "finish", finishReason: "stop" },
];

/** How much of the message has come when the run ends. */
const POINTS: Record<string, number> = {
  "before the message": 0,
  "after start": 1,
  "in reasoning": 4,
  "in text and reasoning": 6,
  "in a tool's input": 10,
  "in a tool": 11,
  "after half an output": 12,
  "between steps with an open tool": 13,
  "with a text and a tool open": 17,
  "after the last step": 18,
  "after finish": 19,
};

interface Death {
  readonly name: string;
  readonly env?: Readonly<Record<string, string>>;
  /** What the harness does after its chunks. */
  readonly ending?: readonly Step[];
  /** What ends the runs, when all of them have shown their chunks. */
  readonly act?: (daemon: TestDaemon, runIds: readonly string[], leave: AbortController) => Promise<unknown>;
  readonly code?: RunErrorCode;
  readonly reason?: string;
  /** True when the stream is read after the end, because the live one broke or was left. */
  readonly late?: boolean;
}

const WAIT: readonly Step[] = [{ sleepMs: 60_000 }];
const LONG_LINE = { line: "x".repeat(5000) };

const DEATHS: readonly Death[] = [
  { name: "outcome finished", ending: [{ json: { outcome: { type: "finished" } } }] },
  { name: "exit 0", ending: [{ exit: 0 }] },
  {
    name: "outcome failed",
    ending: [{ json: { outcome: { type: "failed", error: { code: "turn_failed", message: "no credit" } } } }],
    code: "turn_failed",
  },
  { name: "exit 1", ending: [{ exit: 1 }], code: "harness_crashed" },
  { name: "a signal", ending: [{ signal: "SIGSEGV" }], code: "harness_crashed" },
  { name: "a line too long", ending: [LONG_LINE, ...WAIT], env: { MAX_FRAME_BYTES: "4096" }, code: "frame_too_large" },
  { name: "a stall", ending: WAIT, env: { HARNESS_STALL_MS: "1500" }, code: "harness_stalled" },
  { name: "the longest turn", ending: WAIT, env: { RUN_MAX_MS: "1500" }, code: "turn_failed" },
  {
    name: "cancel",
    ending: WAIT,
    act: (daemon, runIds) => Promise.all(runIds.map((runId) => daemon.cancel(runId))),
    code: "cancelled",
  },
  {
    name: "takeover by another run of the thread",
    ending: WAIT,
    act: (daemon, runIds) =>
      Promise.all(runIds.map((runId) => daemon.run({ runId: `${runId} again`, threadId: runId, steps: [] }))),
    code: "superseded",
  },
  {
    name: "a second dispatch of its own id",
    ending: WAIT,
    act: (daemon, runIds) => Promise.all(runIds.map((runId) => daemon.run({ runId, threadId: runId, steps: [] }))),
    code: "superseded",
  },
  {
    name: "the loss of all readers",
    ending: WAIT,
    env: { DETACH_GRACE_MS: "50" },
    act(daemon, runIds, leave) {
      leave.abort();
      const hasEnded = async (runId: string): Promise<boolean> => (await daemon.show(runId)).state === "ended";
      return Promise.all(runIds.map((runId) => eventually(() => hasEnded(runId))));
    },
    code: "sandbox_gone",
    reason: "detached",
    late: true,
  },
  { name: "shutdown", ending: WAIT, act: (daemon) => daemon.stop("SIGTERM"), code: "sandbox_gone", reason: "shutdown" },
  {
    name: "SIGKILL of the daemon and its restart",
    ending: WAIT,
    act: (daemon) => daemon.stop("SIGKILL").then(() => daemon.launch()),
    code: "sandbox_gone",
    reason: "restarted",
    late: true,
  },
];

const ABORTS: readonly string[] = ["cancelled", "superseded", "sandbox_gone"];

/** Section 5 of the contract, for one stream. `given` chunks are the harness's. */
async function check(frames: readonly Frame[], given: number, { code, reason }: Death): Promise<void> {
  expect(frames.map(({ seq }) => seq)).toEqual(frames.map((_, index) => index + 1));
  expect(frames.every(({ chunks }) => Array.isArray(chunks))).toBe(true);
  expect(frames.flatMap(({ preparation }, index) => (preparation ? [index] : []))).toEqual([0]);
  const last = frames.at(-1);
  const concluding = frames.at(-2);
  expect(frames.filter(({ outcome }) => outcome)).toEqual(concluding ? [concluding] : []);
  expect(frames.filter(({ done, settled, error }) => done || settled || error)).toEqual(last ? [last] : []);
  expect(last).toMatchObject({ done: true, chunks: [], settled: { saved: false } });
  expect(concluding?.outcome?.type).toBe(code === undefined ? "finished" : "failed");
  const error = concluding?.outcome?.type === "failed" ? concluding.outcome.error : undefined;
  expect(error?.code).toBe(code as RunErrorCode);
  expect(error?.reason as string | undefined).toBe(reason as string);
  expect(last?.error).toEqual(error as never);

  const chunks = frames.flatMap((frame) => frame.chunks);
  expect(chunks.slice(0, given)).toEqual(MESSAGE.slice(0, given) as never);
  const added = chunks.slice(given);
  expect(concluding?.chunks).toEqual(added);
  const { message, errors } = await readMessage(chunks);
  if (given === 0 || given === MESSAGE.length) {
    expect({ added, errors }).toEqual({ added: [], errors: [] });
    return;
  }
  if (code === undefined) expect(added.at(-1)).toEqual({ type: "finish", finishReason: "stop" });
  else if (ABORTS.includes(code)) expect(added.at(-1)).toEqual({ type: "abort", reason: code });
  else {
    expect(added.slice(-2)).toEqual([
      { type: "error", errorText: error?.message ?? "" },
      { type: "finish", finishReason: "error" },
    ]);
  }
  expect(errors).toEqual(code !== undefined && !ABORTS.includes(code) ? [error?.message ?? ""] : []);
  for (const part of message?.parts ?? []) {
    if ("state" in part) expect(["done", "output-available", "output-error"]).toContain(part.state as string);
  }
}

for (const death of DEATHS) {
  test(`a run that ends by ${death.name} leaves a whole message wherever it was`, async () => {
    await using daemon = await TestDaemon.start({
      env: { MAX_RUNS: "100", KILL_GRACE_MS: "200", EXIT_GRACE_MS: "200", ...death.env },
    });
    const leave = new AbortController();
    const followed = await Promise.all(
      Object.entries(POINTS).map(async ([runId, given]) => {
        const chunks = MESSAGE.slice(0, given).map((chunk) => ({ chunks: [chunk] }));
        const steps = [...chunks, ...(death.ending ?? [])];
        const response = await daemon.dispatch({ runId, threadId: runId, steps, signal: leave.signal });
        return { runId, given, follower: new Follower(response) };
      }),
    );
    if (death.act) {
      await Promise.all(followed.map(({ given, follower }) => follower.until(({ frames }) => frames.length > given)));
      await death.act(daemon, Object.keys(POINTS), leave);
    }
    for (const { runId, given, follower } of followed) {
      await follower.ended;
      expect(follower.whole).toBe(!death.late);
      let { frames } = follower;
      if (death.late) {
        const text = await (await daemon.fetch(`/runs/${encodeURIComponent(runId)}/frames`)).text();
        expect(text.split("\n").filter(Boolean).slice(0, frames.length)).toEqual(follower.frameLines);
        frames = parseFrames(text);
      }
      await check(frames, given, death);
    }
    expect(daemon.noise).toEqual([]);
  });
}

test("what a large frame opened is closed as well", async () => {
  await using daemon = await TestDaemon.start();
  const delta = "x".repeat(300_000);
  const large: Step = {
    chunks: [...MESSAGE.slice(0, 2), { type: "text-start", id: "t" }, { type: "text-delta", id: "t", delta }],
  };
  const frames = await daemon.run({ runId: "r", steps: [large, { exit: 1 }] });
  expect(frames.at(-2)?.chunks.map(({ type }) => type)).toEqual(["text-end", "finish-step", "error", "finish"]);
  const { message, errors } = await readMessage(frames.flatMap(({ chunks }) => chunks));
  expect(errors).toEqual(["the harness exited with code 1"]);
  expect(message?.parts.at(-1)).toMatchObject({ type: "text", state: "done", text: delta });
});
