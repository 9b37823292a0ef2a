import { expect, test } from "bun:test";
import { endOfMessage } from "../../src/frames/end-of-message.ts";
import type { Chunk, Outcome } from "../../src/frames/frame.ts";
import { OpenParts } from "../../src/frames/open-parts.ts";
import { readLargeLine } from "../../src/frames/read-large-line.ts";
import { readMessage } from "../support/read-message.ts";

/** A message with all that can be open at once, and closed again. A run may end after each of these. */
const MESSAGE: readonly Chunk[] = [
  { type: "start", messageId: "m" },
  { type: "start-step" },
  { type: "reasoning-start", id: "r" },
  { type: "reasoning-delta", id: "r", delta: "hm" },
  { type: "text-start", id: "t" },
  { type: "text-delta", id: "t", delta: "Let me look." },
  { type: "reasoning-end", id: "r" },
  { type: "text-end", id: "t" },
  { type: "tool-input-start", toolCallId: "c1", toolName: "bash", dynamic: true, providerExecuted: true },
  { type: "tool-input-delta", toolCallId: "c1", inputTextDelta: '{"command":' },
  { type: "tool-input-start", toolCallId: "c2", toolName: "read" },
  { type: "tool-input-available", toolCallId: "c1", toolName: "bash", input: {}, dynamic: true },
  { type: "tool-input-available", toolCallId: "c2", toolName: "read", input: {} },
  { type: "tool-output-available", toolCallId: "c1", output: "half", preliminary: true, dynamic: true },
  { type: "tool-output-available", toolCallId: "c1", output: "whole", dynamic: true },
  { type: "tool-input-available", toolCallId: "c3", toolName: "write", input: {}, dynamic: true },
  { type: "tool-output-error", toolCallId: "c3", errorText: "no", dynamic: true },
  { type: "tool-input-error", toolCallId: "c4", toolName: "x", input: {}, errorText: "bad", dynamic: true },
  { type: "finish-step" },
  { type: "tool-output-available", toolCallId: "c2", output: "late" },
  { type: "start-step" },
  { type: "text-start", id: "t" },
  { type: "text-delta", id: "t", delta: "Again." },
  { type: "tool-input-available", toolCallId: "c5", toolName: "gone", input: {}, dynamic: true },
  { type: "reset-step" },
  { type: "text-start", id: "t2" },
  { type: "text-end", id: "t2" },
  { type: "tool-input-available", toolCallId: "c6", toolName: "ask", input: {}, dynamic: true },
  { type: "tool-approval-request", toolCallId: "c6", approvalId: "a" },
  { type: "tool-output-denied", toolCallId: "c6" },
  { type: "finish-step" },
  { type: "finish", finishReason: "stop" },
];

const failed = (code: "turn_failed" | "cancelled" | "superseded" | "sandbox_gone"): Outcome => ({
  type: "failed",
  error: { code, message: "why" },
});

const OUTCOMES: readonly { outcome: Outcome; last: Chunk[] }[] = [
  { outcome: { type: "finished" }, last: [{ type: "finish", finishReason: "stop" }] },
  {
    outcome: { type: "interrupt", interrupts: [], suspension: "s" },
    last: [{ type: "finish", finishReason: "tool-calls" }],
  },
  ...(["cancelled", "superseded", "sandbox_gone"] as const).map((code) => ({
    outcome: failed(code),
    last: [{ type: "abort", reason: code }],
  })),
  {
    outcome: failed("turn_failed"),
    last: [
      { type: "error", errorText: "why" },
      { type: "finish", finishReason: "error" },
    ],
  },
];

function endAfter(chunks: readonly Chunk[], outcome: Outcome): Chunk[] {
  const parts = new OpenParts();
  for (const chunk of chunks) parts.note(chunk);
  return endOfMessage(parts, outcome);
}

for (const { outcome, last } of OUTCOMES) {
  const name = outcome.type === "failed" ? outcome.error.code : outcome.type;
  test(`a message that ends anywhere is whole for its reader: ${name}`, async () => {
    for (let length = 1; length < MESSAGE.length; length++) {
      const chunks = MESSAGE.slice(0, length);
      const end = endAfter(chunks, outcome);
      const { message, errors } = await readMessage([...chunks, ...end]);
      expect({ length, errors }).toEqual({ length, errors: name === "turn_failed" ? ["why"] : [] });
      expect(end.slice(-last.length)).toEqual(last);
      for (const part of message?.parts ?? []) {
        if (part.type === "text" || part.type === "reasoning") expect(part.state).toBe("done");
        if ("toolCallId" in part) {
          expect(["output-available", "output-error", "output-denied"]).toContain(part.state);
          if (part.state === "output-available") expect(part.preliminary).not.toBe(true);
        }
      }
    }
  });
}

test("nothing is added to a message that never began, or has ended", () => {
  for (const { outcome } of OUTCOMES) {
    expect(endAfter([], outcome)).toEqual([]);
    expect(endAfter(MESSAGE, outcome)).toEqual([]);
    expect(endAfter([...MESSAGE.slice(0, 3), { type: "abort" }], outcome)).toEqual([]);
  }
});

test("steps are ended once, open parts under their own ids", () => {
  expect(endAfter(MESSAGE.slice(0, 11), { type: "finished" })).toEqual([
    { type: "tool-output-error", toolCallId: "c1", errorText: "the turn ended before the tool did", dynamic: true },
    { type: "tool-output-error", toolCallId: "c2", errorText: "the turn ended before the tool did", dynamic: true },
    { type: "finish-step" },
    { type: "finish", finishReason: "stop" },
  ]);
});

test("a call that is parked stays open", () => {
  const parts = new OpenParts();
  for (const chunk of MESSAGE.slice(0, 13)) parts.note(chunk);
  expect(parts.close("no", new Set(["c1"]))).toEqual([
    { type: "tool-output-error", toolCallId: "c2", errorText: "no", dynamic: true },
    { type: "finish-step" },
  ]);
});

test("a second message forgets what was open in the first", async () => {
  const chunks: Chunk[] = [...MESSAGE.slice(0, 6), { type: "start", messageId: "m2" }, { type: "text-start", id: "u" }];
  const end = endAfter(chunks, { type: "finished" });
  expect(end).toEqual([
    { type: "text-end", id: "u" },
    { type: "finish", finishReason: "stop" },
  ]);
  expect((await readMessage([...chunks, ...end])).errors).toEqual([]);
  // A `start` that repeats the id, or has none, goes on with the same message.
  for (const again of [{ type: "start", messageId: "m" }, { type: "start" }]) {
    const same = [...MESSAGE.slice(0, 6), again];
    const { errors } = await readMessage([...same, ...endAfter(same, { type: "finished" })]);
    expect(errors).toEqual([]);
    expect(endAfter(same, { type: "finished" })).toHaveLength(4);
  }
});

test("chunks that are none do no harm", () => {
  const odd = [null, 5, "x", [], {}, { type: 7 }, { type: "data-x", data: 1 }] as unknown as Chunk[];
  expect(endAfter([...MESSAGE.slice(0, 2), ...odd], { type: "finished" })).toEqual([
    { type: "finish-step" },
    { type: "finish", finishReason: "stop" },
  ]);
});

test("large lines open and close as their chunks do, between chunks that are noted one by one", () => {
  const all = [
    ...MESSAGE,
    { type: "start", messageId: "m" },
    { type: "start", messageId: "n" },
    ...MESSAGE.slice(1, 19),
  ];
  for (let from = 0; from <= all.length; from++) {
    for (let to = from; to <= all.length; to++) {
      const parts = new OpenParts();
      for (const chunk of all.slice(0, from)) parts.note(chunk);
      const before = parts.state;
      const line = Buffer.from(JSON.stringify({ chunks: all.slice(from, to) }));
      const frame = readLargeLine(line, { open: before });
      parts.noteChange(before, frame?.open ?? before);
      // In whichever order.
      const ended = new Set(endOfMessage(parts, { type: "finished" }));
      expect(ended).toEqual(new Set(endAfter(all.slice(0, to), { type: "finished" })));
    }
  }
});

test("what was closed while a large line was read stays closed", () => {
  const parts = new OpenParts();
  for (const chunk of MESSAGE.slice(0, 13)) parts.note(chunk);
  const before = parts.state;
  const frame = readLargeLine(Buffer.from('{"chunks":[{"type":"text-start","id":"n"}]}'), { open: before });
  parts.note({ type: "tool-output-available", toolCallId: "c1" });
  parts.noteChange(before, frame?.open ?? before);
  expect([...parts.openCalls]).toEqual(["c2"]);
  expect(parts.close("no")).toContainEqual({ type: "text-end", id: "n" });
});

test("a harness that opens parts without end is closed as far as the memory goes", () => {
  const parts = new OpenParts();
  parts.note({ type: "start" });
  for (let id = 0; id < 50_000; id++) parts.note({ type: "text-start", id: String(id) });
  parts.note({ type: "reasoning-start", id: "r".repeat(1 << 20) });
  expect(parts.close("no")).toHaveLength(10_000);
});
