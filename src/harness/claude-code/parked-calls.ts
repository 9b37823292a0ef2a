/**
 * Calls that wait for a person, as a transcript has them. One row holds one block of an answer, or the result of one call:
 *
 *     assistant   message.content[0] = {type: "tool_use", id, name, input}
 *     attachment  {type: "hook_deferred_tool", toolUseID, toolName, toolInput}    a question of Claude Code's own
 *     user        message.content[0] = {type: "tool_result", tool_use_id, content, is_error?}, toolUseResult,
 *                 mcpMeta: {_meta: {"claude/endTurn": true}}                      the mark that ended the turn
 *
 * A call of the shim is parked when its result is the text of a pause, or when it has none: the pod died while it was held.
 */
import { isPauseText } from "../../pause-text.ts";
import type { Transcript } from "./open-transcript.ts";
import { canonicalToolName, isOwnQuestion, isShimTool, OWN_QUESTIONS } from "./tool-names.ts";
import { textOfBlocks } from "./tool-output.ts";
import { type Line, linesOf } from "./transcript-lines.ts";
import { isRecord, record } from "./turn-request.ts";

export type Row = Readonly<Record<string, unknown>>;

export interface RowAt {
  readonly start: number;
  readonly end: number;
  readonly row: Row;
}

export interface TranscriptCall {
  readonly toolCallId: string;
  /** As a reader of the run knows it. */
  readonly toolName: string;
  readonly own: boolean;
  readonly input: unknown;
  /** The answer of the model that it is part of. */
  readonly answerId: unknown;
  readonly use: RowAt;
  /** What Claude Code runs when the session is resumed. */
  deferred?: { readonly toolName: string; readonly input: unknown };
  result?: RowAt & { readonly text: string; readonly isError: boolean };
  /** The conversation went on without a result. */
  passedOver: boolean;
}

export interface TranscriptFacts {
  /** Calls that were asked for, and all others that are open. */
  readonly calls: ReadonlyMap<string, TranscriptCall>;
  /** The last message of a person, and where it is. */
  readonly lastPrompt?: RowAt;
  /** The last row that is part of the conversation. */
  readonly tail?: RowAt;
  /** False when the file was cut within a line. */
  readonly endsWithNewline: boolean;
}

/** An agent can write calls without end into its transcript. */
const MAX_OPEN_CALLS = 4096;
const USES = [`"name":"mcp__tools__`, ...OWN_QUESTIONS.map((name) => `"name":"${name}"`)].map((text) =>
  Buffer.from(text),
);
const RESULT = Buffer.from(`"tool_use_id":"`);
const DEFERRED = Buffer.from(`"type":"hook_deferred_tool"`);
const PROMPT = Buffer.from(`"promptSource":"sdk"`);
const ANSWER = Buffer.from(`"message":{"id":"`);
const HAS_PARENT = Buffer.from(`"parentUuid":`);
/** What was sent to the model, kept beside the conversation. */
const REQUEST = Buffer.from(`{"type":"api-request`);

export async function readParkedCalls(transcript: Transcript, asked: ReadonlySet<string>): Promise<TranscriptFacts> {
  const calls = new Map<string, TranscriptCall>();
  let lastPrompt: RowAt | undefined;
  let tail: Line | undefined;
  let end = 0;
  for await (const line of linesOf(transcript)) {
    end = line.end;
    const { bytes } = line;
    if (bytes.subarray(0, REQUEST.length).equals(REQUEST)) continue;
    if (bytes.includes(HAS_PARENT)) tail = { start: line.start, end: line.end, bytes };
    const answerId = textAfter(ANSWER, bytes);
    if (answerId !== undefined) {
      for (const call of calls.values()) if (!call.result && call.answerId !== answerId) call.passedOver = true;
    }
    if (USES.some((name) => bytes.includes(name))) {
      for (const call of usesIn({ ...line, row: parse(bytes) })) keep(calls, call, asked);
    }
    if (calls.size === 0) continue;
    if (bytes.includes(DEFERRED)) noteDeferral(calls, parse(bytes));
    if (idsIn(bytes).some((id) => calls.has(id))) noteResults(calls, { ...line, row: parse(bytes) }, asked);
    if (bytes.includes(PROMPT) && !bytes.includes(RESULT)) {
      lastPrompt = { start: line.start, end: line.end, row: parse(bytes) };
      for (const call of calls.values()) if (!call.result) call.passedOver = true;
    }
  }
  const last = Buffer.alloc(1);
  if (end > 0) await transcript.file.read(last, 0, 1, end - 1);
  return {
    calls,
    ...(lastPrompt ? { lastPrompt } : {}),
    ...(tail ? { tail: { start: tail.start, end: tail.end, row: parse(tail.bytes) } } : {}),
    endsWithNewline: end === 0 || last.toString() === "\n",
  };
}

/** Open: a person may still be asked, or answer. */
export function isOpen(call: TranscriptCall): boolean {
  if (!call.result) return !call.passedOver;
  return isPauseText(call.result.text, call.toolName);
}

function keep(calls: Map<string, TranscriptCall>, call: TranscriptCall, asked: ReadonlySet<string>): void {
  if (calls.size < MAX_OPEN_CALLS || asked.has(call.toolCallId)) calls.set(call.toolCallId, call);
}

function usesIn(at: RowAt): TranscriptCall[] {
  const { row } = at;
  if (row.type !== "assistant" || row.isSidechain === true) return [];
  return blocksOf(row).flatMap((block) => {
    const { type, id, name, input } = block;
    if (type !== "tool_use" || typeof id !== "string" || typeof name !== "string") return [];
    const own = isOwnQuestion(name);
    if (!own && !isShimTool(name)) return [];
    const { id: answerId } = record(row.message);
    return [{ toolCallId: id, toolName: canonicalToolName(name), own, input, answerId, use: at, passedOver: false }];
  });
}

function noteDeferral(calls: ReadonlyMap<string, TranscriptCall>, row: Row): void {
  const { type, toolUseID, toolName, toolInput } = record(row.attachment);
  const call = calls.get(String(toolUseID));
  if (type !== "hook_deferred_tool" || !call || typeof toolName !== "string") return;
  call.deferred = { toolName: canonicalToolName(toolName), input: toolInput };
}

function noteResults(calls: Map<string, TranscriptCall>, at: RowAt, asked: ReadonlySet<string>): void {
  if (at.row.type !== "user" || at.row.isSidechain === true) return;
  for (const block of blocksOf(at.row)) {
    const call = calls.get(String(block.tool_use_id));
    if (block.type !== "tool_result" || !call) continue;
    const { content } = block;
    const text = typeof content === "string" ? content : textOfBlocks(Array.isArray(content) ? content : []);
    call.result = { ...at, text, isError: block.is_error === true };
    if (!isOpen(call) && !asked.has(call.toolCallId)) calls.delete(call.toolCallId);
  }
}

/** The ids of results in a row. Within a text the quotes would be escaped. */
function idsIn(bytes: Buffer): string[] {
  const ids: string[] = [];
  for (let at = bytes.indexOf(RESULT); at !== -1; at = bytes.indexOf(RESULT, at + 1)) {
    const id = textAfter(RESULT, bytes.subarray(at));
    if (id !== undefined) ids.push(id);
  }
  return ids;
}

/** From the needle, which ends with a quote, to the next quote. */
function textAfter(needle: Buffer, bytes: Buffer): string | undefined {
  const at = bytes.indexOf(needle);
  const to = at === -1 ? -1 : bytes.indexOf('"', at + needle.length);
  return to === -1 ? undefined : bytes.toString("utf8", at + needle.length, to);
}

function blocksOf(row: Row): Readonly<Record<string, unknown>>[] {
  const { content } = record(row.message);
  return Array.isArray(content) ? content.filter(isRecord) : [];
}

function parse(bytes: Buffer): Row {
  try {
    return record(JSON.parse(bytes.toString("utf8")));
  } catch {
    // A line that was cut: Claude Code passes over it too.
    return {};
  }
}
