/**
 * Recorded messages of the real Claude Code, and the chunks that they become. `record.ts` beside the recordings makes
 * new ones; the chunks are checked by eye and kept next to them.
 */
import { expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { SDKMessage } from "@anthropic-ai/claude-agent-sdk/core";
import type { Chunk } from "../../src/frames/frame.ts";
import { MessageTranslator } from "../../src/harness/claude-code/translate-message.ts";
import { readMessage } from "../support/claude-code-harness/run-turn.ts";

const FOLDER = join(import.meta.dir, "../support/claude-code-harness/recorded");
const NAMES = readdirSync(FOLDER).flatMap((file) => (file.endsWith(".jsonl") ? [file.slice(0, -".jsonl".length)] : []));

function recorded(name: string): SDKMessage[] {
  const text = readFileSync(join(FOLDER, `${name}.jsonl`), "utf8");
  return text
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));
}

function translate(messages: readonly SDKMessage[]): Chunk[] {
  const translator = new MessageTranslator("run-1:1");
  return [...messages.flatMap((message) => translator.translate(message)), ...translator.end()];
}

test.each(NAMES)("%s: the recorded messages become the recorded chunks", (name) => {
  const chunks = translate(recorded(name));
  const golden = readFileSync(join(FOLDER, `${name}.chunks.txt`), "utf8");
  expect(`${chunks.map((chunk) => JSON.stringify(chunk)).join("\n")}\n`).toBe(golden);
});

test.each(NAMES)("%s: broken off after any message, the chunks can be read", async (name) => {
  const messages = recorded(name);
  for (let length = 0; length <= messages.length; length++) {
    await readMessage(translate(messages.slice(0, length)));
    const translator = new MessageTranslator("run-1:1");
    await readMessage(messages.slice(0, length).flatMap((message) => translator.translate(message)));
  }
});

const stream = (event: object): SDKMessage =>
  ({ type: "stream_event", event, parent_tool_use_id: null }) as unknown as SDKMessage;
const startOf = (id: string): SDKMessage => stream({ type: "message_start", message: { id } });
const types = (chunks: readonly Chunk[]): string[] => chunks.map((chunk) => chunk.type);

test("blocks without a character are not shown", () => {
  const translator = new MessageTranslator("m");
  const chunks = [
    startOf("msg_1"),
    stream({ type: "content_block_start", index: 0, content_block: { type: "thinking" } }),
    stream({ type: "content_block_delta", index: 0, delta: { type: "thinking_delta", thinking: "" } }),
    stream({ type: "content_block_delta", index: 0, delta: { type: "signature_delta", signature: "c2ln" } }),
    stream({ type: "content_block_stop", index: 0 }),
  ].flatMap((message) => translator.translate(message));
  expect(types([...chunks, ...translator.end()])).toEqual(["start", "start-step", "finish-step"]);
});

test("a call that never gets a result is closed before the next step", () => {
  const translator = new MessageTranslator("m");
  const chunks = [
    startOf("msg_1"),
    stream({ type: "content_block_start", index: 0, content_block: { type: "tool_use", id: "c", name: "Bash" } }),
    startOf("msg_2"),
  ].flatMap((message) => translator.translate(message));
  expect(types(chunks)).toEqual([
    "start",
    "start-step",
    "tool-input-start",
    "tool-output-error",
    "finish-step",
    "start-step",
  ]);
});

test("an image in a result is passed on, one that is too large for a frame is named", () => {
  const translator = new MessageTranslator("m");
  const image = (data: string): object => ({
    type: "image",
    source: { type: "base64", media_type: "image/png", data },
  });
  const result = (id: string, content: unknown): SDKMessage =>
    ({
      type: "user",
      parent_tool_use_id: null,
      message: { role: "user", content: [{ type: "tool_result", tool_use_id: id, content }] },
    }) as unknown as SDKMessage;
  const call = (index: number, id: string): SDKMessage =>
    stream({ type: "content_block_start", index, content_block: { type: "tool_use", id, name: "Read" } });
  const outputs = [
    startOf("msg_1"),
    call(0, "small"),
    call(1, "large"),
    result("small", [image("aGk=")]),
    result("large", [{ type: "text", text: "see" }, image("A".repeat(5 << 20))]),
  ]
    .flatMap((message) => translator.translate(message))
    .filter((chunk) => chunk.type === "tool-output-available")
    .map((chunk) => chunk.output);
  expect(outputs).toEqual([
    [{ type: "image", mediaType: "image/png", data: "aGk=" }],
    [
      { type: "text", text: "see" },
      { type: "image", mediaType: "image/png", omitted: "too large" },
    ],
  ]);
});
