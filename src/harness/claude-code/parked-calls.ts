/**
 * Calls that wait for a person, as a transcript has them. One row holds one block of an answer, or the result of one call:
 *
 *     assistant   message.content[0] = {type: "tool_use", id, name, input}
 *     attachment  {type: "hook_deferred_tool", toolUseID, toolName, toolInput}    a question of Claude Code's own
 *     user        message.content[0] = {type: "tool_result", tool_use_id, content, is_error?}, toolUseResult,
 *                 mcpMeta: {_meta: {"claude/endTurn": true}}                      the mark that ended the turn
 *
 * A call of the shim is parked when its result is the text of a pause, and when it was held at the end of what was written:
 * without a result, or with the one that Claude Code gives to calls of a server that it ends itself.
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
  /** A question of Claude Code's own, a tool of the run, or neither. */
  readonly kind: "own" | "shim" | "other";
  readonly input: unknown;
  /** The answer of the model that it is part of. */
  readonly answerId: string;
  readonly use: RowAt;
  /** What Claude Code runs when the session is resumed. */
  deferred?: { readonly toolName: string; readonly input: unknown };
  result?: RowAt & { readonly text: string; readonly isError: boolean };
  /** It was held, and the conversation went on without it. */
  passedOver: boolean;
}

export interface TranscriptFacts {
  /** Calls that were asked for, and all others that are open. */
  readonly calls: ReadonlyMap<string, TranscriptCall>;
  /** Other calls of the model's last answer that have no result. */
  readonly cutOff: readonly TranscriptCall[];
  /** The last message of a person, and where it is. */
  readonly lastPrompt?: RowAt;
  /** The last row that is part of the conversation. */
  readonly tail?: RowAt;
  /** False when the file was cut within a line. */
  readonly endsWithNewline: boolean;
}

/** The result of a call whose server is gone, in Claude Code 2.1. */
const CUT_OFF = "Connection closed";
/** An agent can write calls without end into its transcript. */
const MAX_OPEN_CALLS = 4096;
const USES = [`"name":"mcp__tools__`, ...OWN_QUESTIONS.map((name) => `"name":"${name}"`)].map((text) =>
  Buffer.from(text),
);
const RESULT = Buffer.from(`"tool_use_id":"`);
const DEFERRED = Buffer.from(`"type":"hook_deferred_tool"`);
const PROMPT = Buffer.from(`"promptSource":"sdk"`);
const ANSWER = Buffer.from(`"type":"assistant"`);
const ANSWER_ID = Buffer.from(`"message":{"id":"`);
const HAS_PARENT = Buffer.from(`"parentUuid":`);
/** What was sent to the model, kept beside the conversation. */
const REQUEST = Buffer.from(`{"type":"api-request`);

/** What nobody asks for was parked last, if it was: only the end of the transcript is read then. */
const END_BYTES = 16 << 20;

/**
 * Of a row with a question that was signed, and of a pause: 64 KiB of input, however it is escaped, come to less. A row
 * of 1 MiB takes up to 20 ms to parse, one of 30 MiB seconds.
 */
const MAX_ASKED_ROW_BYTES = 1 << 20;

/** `askedOnly`: of the calls that are asked for, whether they are open, on a thread that no row may hold up. */
export async function readParkedCalls(
  transcript: Transcript,
  asked: ReadonlySet<string>,
  askedOnly = false,
): Promise<TranscriptFacts> {
  const from = asked.size > 0 ? 0 : Math.max(0, transcript.bytes - END_BYTES);
  const calls = new Map<string, TranscriptCall>();
  let answer: LastAnswer = { id: "", rows: [], results: new Set() };
  let lastPrompt: Line | undefined;
  let tail: Line | undefined;
  for await (const line of linesOf(transcript, from)) {
    const { bytes } = line;
    if (bytes.subarray(0, REQUEST.length).equals(REQUEST) || !bytes.includes(HAS_PARENT)) continue;
    if (askedOnly && bytes.length > MAX_ASKED_ROW_BYTES) {
      noteLarge(calls, line);
      continue;
    }
    tail = line;
    const answerId = answerIdOf(bytes);
    if (answerId !== undefined) {
      if (answerId !== answer.id) answer = { id: answerId, rows: [], results: new Set() };
      if (!askedOnly && answer.rows.length < MAX_OPEN_CALLS) answer.rows.push(line);
      passOver(calls, (call) => call.answerId !== answerId);
      if (!USES.some((name) => bytes.includes(name))) continue;
      for (const call of usesIn(rowAt(line)).filter(isParkable)) keep(calls, call, asked, askedOnly);
      continue;
    }
    const results = idsIn(bytes);
    for (const id of results) answer.results.add(id);
    if (results.some((id) => calls.has(id))) noteResults(calls, rowAt(line), asked);
    if (calls.size > 0 && bytes.includes(DEFERRED)) noteDeferral(calls, parse(bytes));
    if (results.length === 0 && bytes.includes(PROMPT)) {
      lastPrompt = line;
      passOver(calls, () => true);
    }
  }
  const others = answer.rows.flatMap((line) => usesIn(rowAt(line)));
  const last = Buffer.alloc(1);
  await transcript.file.read(last, 0, 1, transcript.bytes - 1);
  return {
    calls,
    cutOff: others.filter((call) => !isParkable(call) && !answer.results.has(call.toolCallId)),
    ...(lastPrompt ? { lastPrompt: rowAt(lastPrompt) } : {}),
    ...(tail ? { tail: rowAt(tail) } : {}),
    endsWithNewline: last.toString() === "\n",
  };
}

/** The rows of the model's last answer, and which of its calls have results. */
interface LastAnswer {
  readonly id: string;
  readonly rows: Line[];
  readonly results: Set<string>;
}

function rowAt({ start, end, bytes }: Line): RowAt {
  return { start, end, row: parse(bytes) };
}

/** Open: a person may still be asked, or answer. */
export function isOpen(call: TranscriptCall): boolean {
  if (isHeld(call)) return !call.passedOver;
  return call.result !== undefined && isPauseText(call.result.text, call.toolName);
}

/** It has no result of its own: nobody had answered when it was cut off. */
export function isHeld({ result }: TranscriptCall): boolean {
  return result === undefined || (result.isError && result.text === CUT_OFF);
}

function passOver(calls: ReadonlyMap<string, TranscriptCall>, which: (call: TranscriptCall) => boolean): void {
  for (const call of calls.values()) if (isHeld(call) && which(call)) call.passedOver = true;
}

function isParkable({ kind }: TranscriptCall): boolean {
  return kind !== "other";
}

function keep(
  calls: Map<string, TranscriptCall>,
  call: TranscriptCall,
  asked: ReadonlySet<string>,
  askedOnly: boolean,
): void {
  if (asked.has(call.toolCallId) || (!askedOnly && calls.size < MAX_OPEN_CALLS)) calls.set(call.toolCallId, call);
}

/** A row that is not parsed: a result in it is none of a pause. */
function noteLarge(calls: ReadonlyMap<string, TranscriptCall>, { start, end, bytes }: Line): void {
  for (const call of calls.values()) {
    if (!bytes.includes(`${RESULT}${call.toolCallId}"`)) continue;
    call.result = { start, end, row: {}, text: "", isError: false };
  }
  if (bytes.includes(ANSWER)) {
    const answerId = textAfter(ANSWER_ID, bytes);
    if (answerId !== undefined) passOver(calls, (call) => call.answerId !== answerId);
  } else if (bytes.includes(PROMPT) && !bytes.includes(RESULT)) {
    passOver(calls, () => true);
  }
}

function usesIn(at: RowAt): TranscriptCall[] {
  const { row } = at;
  if (row.type !== "assistant" || row.isSidechain === true) return [];
  return blocksOf(row).flatMap((block) => {
    const { type, id, name, input } = block;
    if (type !== "tool_use" || typeof id !== "string" || typeof name !== "string") return [];
    const answerId = String(record(row.message).id ?? row.uuid);
    const kind = isOwnQuestion(name) ? "own" : isShimTool(name) ? "shim" : "other";
    return [{ toolCallId: id, toolName: canonicalToolName(name), kind, input, answerId, use: at, passedOver: false }];
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

/** Of a row of the model's: several rows are one answer. */
function answerIdOf(bytes: Buffer): string | undefined {
  if (!bytes.includes(ANSWER)) return undefined;
  const id = textAfter(ANSWER_ID, bytes);
  if (id !== undefined) return id;
  const row = parse(bytes);
  return String(record(row.message).id ?? row.uuid);
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
