/**
 * Messages of Claude Code as chunks of one UI message. The order that readers rely on:
 *
 *     start (start-step part* finish-step)* finish
 *
 * - A step is one answer of the model with the results of its calls; it ends when the next answer begins, or the turn.
 * - Parts are opened by the stream of tokens. The whole block that follows a streamed one says nothing new, except for
 *   a call: only then is its input complete.
 * - An answer that breaks off is begun anew by Claude Code, as another message, and sometimes without a stream. What was
 *   shown of the first stays, closed; the new one is a step of its own. Calls that were not complete end as errors.
 * - Nothing stays open across a step, except for the call of a subagent that works on in the background, and for what
 *   that calls of the run's own tools.
 */
import type {
  SDKAssistantMessage,
  SDKMessage,
  SDKPartialAssistantMessage,
  SDKUserMessage,
} from "@anthropic-ai/claude-agent-sdk/core";
import type { Chunk } from "../../frames/frame.ts";
import { Subagents } from "./subagents.ts";
import { describeCall, originOf, resultChunk, resultsIn, type ToolResult } from "./tool-chunks.ts";
import { subagentReport } from "./tool-output.ts";
import { record } from "./turn-request.ts";

type StreamEvent = SDKPartialAssistantMessage["event"];

interface OpenPart {
  readonly kind: "text" | "reasoning";
  readonly id: string;
  /** A part is shown from its first character on: a block may turn out to be empty. */
  started: boolean;
}

interface OpenCall {
  readonly name: string;
  /** The id of the answer that makes the call, and its place there. */
  readonly messageId: string;
  readonly index: number;
  complete: boolean;
}

const CUT_OFF = "the model's answer was cut off before this call was complete";
const NO_RESULT = "this call ended without a result";

export class MessageTranslator {
  #started = false;
  #inStep = false;
  /** The id of the answer that the step shows. */
  #answerId = "";
  #streamed = false;
  #parts = new Map<number, OpenPart>();
  #partCount = 0;
  readonly #calls = new Map<string, OpenCall>();
  readonly #subagents = new Subagents();

  constructor(private readonly messageId: string) {}

  translate(message: SDKMessage): Chunk[] {
    switch (message.type) {
      case "stream_event":
        return message.parent_tool_use_id === null ? this.#streamEvent(message.event, message) : [];
      case "assistant":
        return message.parent_tool_use_id === null
          ? this.#answer(message)
          : this.#subagents.answer(message.parent_tool_use_id, message);
      case "user":
        return message.parent_tool_use_id === null ? this.#results(message) : this.#subagents.results(message);
      case "system":
        if (message.subtype === "init") return this.#start();
        if (message.subtype === "task_notification" && message.tool_use_id !== undefined) {
          return this.#subagents.ends(message.tool_use_id, message.status, message.summary);
        }
        return [];
      default:
        return [];
    }
  }

  /** What is to be said when the turn ended well, before its `finish`. The deferred call waits: it has no end. */
  end(deferredCallId?: string): Chunk[] {
    if (deferredCallId !== undefined) this.#calls.delete(deferredCallId);
    return [...this.#subagents.endAll(), ...this.#endStep()];
  }

  #start(): Chunk[] {
    if (this.#started) return [];
    this.#started = true;
    return [{ type: "start", messageId: this.messageId }];
  }

  #streamEvent(event: StreamEvent, message: SDKPartialAssistantMessage): Chunk[] {
    switch (event.type) {
      case "message_start":
        return this.#beginAnswer(event.message.id, true);
      case "content_block_start":
        return this.#openBlock(event.index, event.content_block);
      case "content_block_delta":
        return this.#delta(event.index, event.delta);
      case "content_block_stop":
        return this.#closePart(event.index);
      case "message_stop": {
        const from = record((message as { abandoned_blocks?: unknown }).abandoned_blocks).from_block_index;
        return [...this.#closeParts(), ...(typeof from === "number" ? this.#failCalls(CUT_OFF, from) : [])];
      }
      default:
        return [];
    }
  }

  #beginAnswer(id: string, streamed: boolean): Chunk[] {
    const chunks = [...this.#start(), ...this.#endStep(), { type: "start-step" }];
    this.#inStep = true;
    this.#answerId = id;
    this.#streamed = streamed;
    return chunks;
  }

  #openBlock(index: number, block: { readonly type: string }): Chunk[] {
    if (block.type === "text" || block.type === "thinking") {
      const kind = block.type === "text" ? "text" : "reasoning";
      this.#parts.set(index, { kind, id: this.#nextPartId(), started: false });
      return [];
    }
    if (block.type !== "tool_use") return [];
    const { id, name } = block as { readonly type: string; readonly id: string; readonly name: string };
    return this.#openCall(id, name, index);
  }

  #delta(index: number, delta: { readonly type: string }): Chunk[] {
    const { type, text, thinking, partial_json: json } = record(delta);
    if (type === "input_json_delta") {
      const call = [...this.#calls].find(([, open]) => open.messageId === this.#answerId && open.index === index);
      return call && typeof json === "string" && json !== ""
        ? [{ type: "tool-input-delta", toolCallId: call[0], inputTextDelta: json }]
        : [];
    }
    const more = type === "text_delta" ? text : type === "thinking_delta" ? thinking : undefined;
    const part = this.#parts.get(index);
    if (!part || typeof more !== "string" || more === "") return [];
    const chunks: Chunk[] = part.started ? [] : [{ type: `${part.kind}-start`, id: part.id }];
    part.started = true;
    return [...chunks, { type: `${part.kind}-delta`, id: part.id, delta: more }];
  }

  /** A whole answer, or one block of it: Claude Code sends a block as soon as it is complete. */
  #answer(message: SDKAssistantMessage): Chunk[] {
    // An error that Claude Code words as an answer of the model: it is the outcome of the turn, and told there.
    if (message.error !== undefined) return [];
    const chunks: Chunk[] = message.message.id === this.#answerId ? [] : this.#beginAnswer(message.message.id, false);
    for (const block of message.message.content) {
      if (block.type === "tool_use") chunks.push(...this.#completeCall(block.id, block.name, block.input));
      if (this.#streamed) continue;
      if (block.type === "text") chunks.push(...this.#wholePart("text", block.text));
      if (block.type === "thinking") chunks.push(...this.#wholePart("reasoning", block.thinking));
    }
    return chunks;
  }

  #wholePart(kind: OpenPart["kind"], text: string): Chunk[] {
    if (text === "") return [];
    const id = this.#nextPartId();
    return [
      { type: `${kind}-start`, id },
      { type: `${kind}-delta`, id, delta: text },
      { type: `${kind}-end`, id },
    ];
  }

  #openCall(toolCallId: string, name: string, index: number): Chunk[] {
    this.#calls.set(toolCallId, { name, messageId: this.#answerId, index, complete: false });
    this.#subagents.announce(toolCallId);
    return [{ type: "tool-input-start", ...describeCall(toolCallId, name) }];
  }

  #completeCall(toolCallId: string, name: string, input: unknown): Chunk[] {
    const chunks = this.#calls.has(toolCallId) ? [] : this.#openCall(toolCallId, name, -1);
    const call = this.#calls.get(toolCallId);
    if (call) call.complete = true;
    return [...chunks, { type: "tool-input-available", ...describeCall(toolCallId, name), input }];
  }

  #results(message: SDKUserMessage): Chunk[] {
    return resultsIn(message).flatMap((result) => this.#result(result, message));
  }

  #result(result: ToolResult, message: SDKUserMessage): Chunk[] {
    const toolCallId = result.tool_use_id;
    const call = this.#calls.get(toolCallId);
    if (!call) return [];
    this.#calls.delete(toolCallId);
    const structured = record(message.tool_use_result);
    if (structured.status === "async_launched") return this.#subagents.goesOnInBackground(toolCallId);
    const chunk = resultChunk(call.name, result, message);
    // A subagent's report comes wrapped in words for the model; the structured result has it bare.
    const report = structured.status === "completed" && Array.isArray(structured.content);
    const output = report && chunk.type === "tool-output-available" ? subagentReport(structured.content) : undefined;
    return [output === undefined ? chunk : { ...chunk, output }];
  }

  #closePart(index: number): Chunk[] {
    const part = this.#parts.get(index);
    this.#parts.delete(index);
    return part?.started ? [{ type: `${part.kind}-end`, id: part.id }] : [];
  }

  #closeParts(): Chunk[] {
    return [...this.#parts.keys()].flatMap((index) => this.#closePart(index));
  }

  /** Ends the calls of this answer from a block on that never became complete; without `from`, all that are open. */
  #failCalls(errorText: string, from?: number): Chunk[] {
    const chunks: Chunk[] = [];
    for (const [toolCallId, call] of this.#calls) {
      if (from !== undefined && (call.complete || call.messageId !== this.#answerId || call.index < from)) continue;
      this.#calls.delete(toolCallId);
      chunks.push({ type: "tool-output-error", toolCallId, errorText, ...originOf(call.name) });
    }
    return chunks;
  }

  #endStep(): Chunk[] {
    if (!this.#inStep) return [];
    this.#inStep = false;
    return [...this.#closeParts(), ...this.#failCalls(NO_RESULT), { type: "finish-step" }];
  }

  #nextPartId(): string {
    this.#partCount += 1;
    return `part-${this.#partCount}`;
  }
}
