/**
 * Puts a person's answers into the transcript, before Claude Code reads it: each as the result of the call that asked.
 *
 * - An answer takes the place of the text of a pause; where a call has no result yet, one is added.
 * - A plan that is agreed to is not put there: Claude Code makes that call again, and leaves plan mode by it.
 * - Calls that wait and get no answer now are closed: the model reads that nobody answered, or that they were cut off.
 * - The results keep the mark that ended the turn, and the next prompt follows. A row that says nothing is put between
 *   them: else Claude Code puts words of its own into the model's mouth there.
 *
 * A transcript in which the answers stand already, of an attempt that ended midway, is left as it is.
 */
import { randomUUID } from "node:crypto";
import { cutOffText, unansweredText } from "../../pause-text.ts";
import type { TurnAnswer } from "../port.ts";
import { isSame } from "./find-parked.ts";
import { openTranscript, type Transcript } from "./open-transcript.ts";
import { agreesToPlan } from "./own-questions.ts";
import {
  isHeld,
  isOpen,
  type Row,
  type RowAt,
  readParkedCalls,
  type TranscriptCall,
  type TranscriptFacts,
} from "./parked-calls.ts";
import { type Replacement, rewriteTranscript } from "./rewrite-transcript.ts";
import { TurnFailure } from "./turn-failure.ts";
import { isRecord, present, record } from "./turn-request.ts";

export interface Placement {
  /** The plan that is agreed to, if it waits for that: Claude Code makes the call again, and is answered then. */
  readonly agreed?: TurnAnswer;
  /** The person's text stands in the transcript already, behind the answers. */
  readonly promptIsThere: boolean;
}

interface Edit {
  readonly call: TranscriptCall;
  readonly text: string;
  readonly isError: boolean;
}

/** `prompt`: what the person writes beside the answers. Throws TurnFailure (`stale`) when the session has no such calls. */
export async function placeAnswers(
  session: { readonly configDir: string; readonly id: string },
  answers: readonly TurnAnswer[],
  prompt: string | undefined,
): Promise<Placement> {
  await using transcript = await openTranscript(session.configDir, session.id);
  if (!transcript) {
    if (answers.length === 0) return { promptIsThere: false };
    throw new TurnFailure("stale", "the session in which the questions were asked is not here");
  }
  const facts = await readParkedCalls(transcript, new Set(answers.map(({ toolCallId }) => toolCallId)));
  const { edits, agreed } = planEdits(facts, answers);
  const promptIsThere = edits.length === 0 && prompt !== undefined && isBehindAnswers(facts, answers, prompt);
  // A turn that was cut off for another reason stays as it is.
  if (edits.length > 0 || answers.length > 0) await apply(transcript, facts, edits);
  return { promptIsThere, ...present("agreed", agreed) };
}

function planEdits(
  { calls, cutOff }: TranscriptFacts,
  answers: readonly TurnAnswer[],
): { readonly edits: readonly Edit[]; readonly agreed?: TurnAnswer } {
  const edits: Edit[] = [];
  let agreed: TurnAnswer | undefined;
  for (const answer of answers) {
    const { toolCallId, text, isError } = answer;
    const call = calls.get(toolCallId);
    if (!call || !isSame(call, answer)) {
      throw new TurnFailure("stale", `the session has no call ${toolCallId} that is the one of the question`);
    }
    if (!isOpen(call)) expectSameAnswer(call, answer);
    else if (agreesToPlan(answer)) agreed = answer;
    else edits.push({ call, text, isError });
  }
  const answered = new Set(answers.map(({ toolCallId }) => toolCallId));
  for (const call of calls.values()) {
    if (isOpen(call) && !answered.has(call.toolCallId)) {
      edits.push({ call, ...leftOver(call) });
    }
  }
  // Claude Code says so too of a call that has no result, but then takes the turn for one that was interrupted.
  if (edits.length > 0) edits.push(...cutOff.map((call) => ({ call, ...leftOver(call) })));
  return { edits, ...present("agreed", agreed) };
}

function leftOver(call: TranscriptCall): Pick<Edit, "text" | "isError"> {
  const isQuestion = call.kind === "own" || !isHeld(call);
  return isQuestion
    ? { text: unansweredText(call.toolName), isError: false }
    : { text: cutOffText(call.toolName), isError: true };
}

/**
 * To a plan that was agreed to Claude Code gives a result in its own words. What was approved was carried out again, and
 * may have come out otherwise: what the model has read already stands.
 */
function expectSameAnswer({ toolName, result }: TranscriptCall, answer: TurnAnswer): void {
  const { toolCallId, text, isError } = answer;
  const same = result?.isError === isError && (result.text === text || agreesToPlan(answer));
  const stands = same || (result !== undefined && wasApproved(answer));
  if (!stands || result?.text === unansweredText(toolName)) {
    throw new TurnFailure("stale", `the call ${toolCallId} was answered otherwise`);
  }
}

function wasApproved({ reason, status, payload }: TurnAnswer): boolean {
  return reason === "tool_call" && status === "resolved" && record(payload).approved === true;
}

/** An earlier attempt of this run has got so far. */
function isBehindAnswers(
  { calls, lastPrompt }: TranscriptFacts,
  answers: readonly TurnAnswer[],
  prompt: string,
): boolean {
  if (!lastPrompt || answers.length === 0) return false;
  const { content } = record(lastPrompt.row.message);
  const blocks = Array.isArray(content) ? content : [{ text: content }];
  const text = blocks
    .flatMap((block) => (isRecord(block) && typeof block.text === "string" ? [block.text] : []))
    .join("\n");
  const isBehind = ({ toolCallId }: TurnAnswer): boolean =>
    (calls.get(toolCallId)?.result?.end ?? Number.POSITIVE_INFINITY) <= lastPrompt.start;
  return text === prompt && answers.every(isBehind);
}

async function apply(
  transcript: Transcript,
  { tail, endsWithNewline }: TranscriptFacts,
  edits: readonly Edit[],
): Promise<void> {
  const replaced = new Map<number, RowAt>();
  const added: Row[] = [];
  for (const edit of edits) {
    const { result } = edit.call;
    if (!result) added.push(newResult(edit));
    else
      replaced.set(result.start, {
        ...result,
        row: withAnswer(replaced.get(result.start)?.row ?? result.row, edit),
      });
  }
  const last = added.at(-1) ?? tail?.row;
  if (last && isResult(last)) added.push(silentRow(last));
  if (replaced.size === 0 && added.length === 0) return;
  const replacements = [...replaced.values()].map(
    ({ start, end, row }): Replacement => ({ start, end, text: lineOf(row) }),
  );
  const addition = `${endsWithNewline ? "" : "\n"}${added.map(lineOf).join("")}`;
  await rewriteTranscript(transcript, replacements, addition);
}

function lineOf(row: Row): string {
  return `${JSON.stringify(row)}\n`;
}

/** What makes Claude Code take a result at the end of a transcript for the end of a turn; of an error it takes another. */
function markOf(isError: boolean): Row {
  return isError ? { toolDenialEndsTurn: true } : { mcpMeta: { _meta: { "claude/endTurn": true } } };
}

function withAnswer(row: Row, { call, text, isError }: Edit): Row {
  const message = record(row.message);
  const blocks = (Array.isArray(message.content) ? message.content : []).map((block) => {
    if (!isRecord(block) || block.tool_use_id !== call.toolCallId) return block;
    const { is_error: _, ...rest } = block;
    return { ...rest, ...resultOf(text, isError) };
  });
  return { ...row, message: { ...message, content: blocks }, ...structured(text, isError), ...markOf(isError) };
}

function newResult({ call, text, isError }: Edit): Row {
  const block = { tool_use_id: call.toolCallId, type: "tool_result", ...resultOf(text, isError) };
  return {
    ...envelope(call.use.row),
    type: "user",
    message: { role: "user", content: [block] },
    ...structured(text, isError),
    ...markOf(isError),
    sourceToolAssistantUUID: call.use.row.uuid,
  };
}

function resultOf(text: string, isError: boolean): Row {
  return { content: [{ type: "text", text }], ...(isError ? { is_error: true } : {}) };
}

function structured(text: string, isError: boolean): Row {
  return { toolUseResult: isError ? `Error: ${text}` : [{ type: "text", text }] };
}

/** A row that Claude Code writes by itself, and that says nothing to the model. */
function silentRow(behind: Row): Row {
  return { ...envelope(behind), type: "attachment", attachment: { type: "session_context", context: {} } };
}

/** What every row says of where and when, for one that follows another. */
function envelope(parent: Row): Row {
  const { userType, entrypoint, cwd, sessionId, version, gitBranch, slug } = parent;
  return {
    parentUuid: parent.uuid,
    isSidechain: false,
    uuid: randomUUID(),
    timestamp: new Date().toISOString(),
    ...{ userType, entrypoint, cwd, sessionId, version, gitBranch, slug },
  };
}

function isResult(row: Row): boolean {
  const { content } = record(row.message);
  return (
    row.type === "user" &&
    Array.isArray(content) &&
    content.some((block) => isRecord(block) && block.type === "tool_result")
  );
}
