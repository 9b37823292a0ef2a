/**
 * A scripted turn as the event stream of the Messages API: `message_start`, per block its start, deltas and stop,
 * then `message_delta` with the stop reason and the usage, and `message_stop`.
 */
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import type { ServerResponse } from "node:http";
import type { ScriptedBlock, ScriptedTurn } from "./turn.ts";

const DEFAULT_DELTA_CHARS = 8;
/** Long enough for what was written to reach the client before the connection is reset under it. */
const FLUSH_MS = 50;

interface StreamEvent {
  readonly type: string;
  readonly [key: string]: unknown;
}

/** Writes the turn; resolves when it is written, cut as scripted, or the client is gone. */
export async function streamTurn(response: ServerResponse, turn: ScriptedTurn, model: string): Promise<void> {
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
  const gone = new Promise<void>((resolve) => void response.once("close", resolve));
  let deltas = 0;
  for (const event of turnEvents(turn, model)) {
    if (response.destroyed) return;
    if (event.type === "content_block_delta") {
      if (deltas === turn.cutAfterDeltas) {
        await (turn.cutWhen ?? Bun.sleep(FLUSH_MS));
        response.destroy();
        return;
      }
      if (deltas === turn.hangAfterDeltas) {
        await gone;
        return;
      }
      if (deltas === turn.errorAfterDeltas) {
        const error = { type: "overloaded_error", message: "Overloaded" };
        response.end(encodeEvent({ type: "error", error }));
        return;
      }
      deltas += 1;
      if (turn.betweenDeltasMs) await Bun.sleep(turn.betweenDeltasMs);
    }
    if (!response.write(encodeEvent(event))) await Promise.race([once(response, "drain"), gone]);
  }
  response.end();
}

function encodeEvent(event: StreamEvent): string {
  return `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`;
}

function* turnEvents(turn: ScriptedTurn, model: string): Generator<StreamEvent, undefined> {
  const blocks = turn.blocks ?? [];
  const usage = {
    input_tokens: turn.usage?.inputTokens ?? 12,
    cache_creation_input_tokens: turn.usage?.cacheWriteTokens ?? 0,
    cache_read_input_tokens: turn.usage?.cacheReadTokens ?? 0,
  };
  yield {
    type: "message_start",
    message: {
      id: `msg_${randomBytes(12).toString("hex")}`,
      type: "message",
      role: "assistant",
      model,
      content: [],
      stop_reason: null,
      stop_sequence: null,
      usage: { ...usage, output_tokens: 1 },
    },
  };
  for (const [index, block] of blocks.entries()) {
    yield { type: "content_block_start", index, content_block: emptyBlock(block) };
    for (const delta of blockDeltas(block, turn.deltaChars ?? DEFAULT_DELTA_CHARS)) {
      yield { type: "content_block_delta", index, delta };
    }
    yield { type: "content_block_stop", index };
  }
  const calls = blocks.some((block) => block.type === "tool_use");
  yield {
    type: "message_delta",
    delta: { stop_reason: turn.stopReason ?? (calls ? "tool_use" : "end_turn"), stop_sequence: null },
    usage: { ...usage, output_tokens: turn.usage?.outputTokens ?? 7 },
  };
  yield { type: "message_stop" };
  return undefined;
}

function emptyBlock(block: ScriptedBlock): Record<string, unknown> {
  switch (block.type) {
    case "text":
      return { type: "text", text: "" };
    case "thinking":
      return { type: "thinking", thinking: "", signature: "" };
    case "tool_use": {
      const id = block.id ?? `toolu_${randomBytes(12).toString("hex")}`;
      return { type: "tool_use", id, name: block.name, input: {} };
    }
  }
}

function* blockDeltas(block: ScriptedBlock, chars: number): Generator<Record<string, unknown>> {
  switch (block.type) {
    case "text":
      for (const text of pieces(block.text, chars)) yield { type: "text_delta", text };
      return;
    case "thinking":
      for (const thinking of pieces(block.thinking, chars)) yield { type: "thinking_delta", thinking };
      yield { type: "signature_delta", signature: block.signature ?? Buffer.from("scripted").toString("base64") };
      return;
    case "tool_use":
      for (const json of pieces(JSON.stringify(block.input), chars * 4)) {
        yield { type: "input_json_delta", partial_json: json };
      }
  }
}

/** Splits at characters, never inside a surrogate pair. */
function* pieces(text: string, chars: number): Generator<string> {
  const points = [...text];
  for (let at = 0; at < points.length; at += chars) yield points.slice(at, at + chars).join("");
}
