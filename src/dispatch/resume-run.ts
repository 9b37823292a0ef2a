/**
 * From a verified suspension to the results that a harness gets. After the session is there and before anything is
 * started, in this order:
 *
 * 1. The parked calls are in the session, and open. With the claim of this very run they may have their results already:
 *    its pod died in mid-turn.
 * 2. The suspension is claimed for this run. Another run that used it makes this one stale.
 * 3. What a person approved is carried out, once: its idempotency key is the call's own, so a callback that was
 *    reached before can tell.
 */
import { DaemonError } from "../errors.ts";
import type { Chunk } from "../frames/frame.ts";
import type { Harness, InterruptReason, ParkedState, TurnAnswer } from "../harness/port.ts";
import type { Log } from "../log/port.ts";
import type { SessionRun } from "../session/port.ts";
import { isApproved } from "../suspension/approval.ts";
import type { SignedInterrupt } from "../suspension/port.ts";
import type { Call } from "../tools/announced-calls.ts";
import { answerText } from "../tools/answer-text.ts";
import { MAX_HOLD_SECONDS } from "../tools/dispositions.ts";
import type { AnswerEntry, CallbackResult, ToolSpec } from "../tools/port.ts";
import { answerChunk, approvalResponse, outputChunk } from "../tools/tool-chunks.ts";
import type { Resume } from "./suspensions.ts";

/** The results of an earlier run's calls, for the harness and for the reader. */
export interface Opening {
  readonly answers: readonly TurnAnswer[];
  readonly chunks: readonly Chunk[];
  readonly answered: readonly Omit<Call, "state" | "requests">[];
}

export const NOTHING_TO_OPEN: Opening = { answers: [], chunks: [], answered: [] };

export interface ResumeOrder {
  readonly resume: Resume;
  readonly runId: string;
  readonly harness: Harness;
  readonly session: SessionRun;
  readonly specs: readonly ToolSpec[];
  readonly claimMs: number;
  readonly signal: AbortSignal;
  readonly log: Log;
  /** Carries out an approved call. */
  readonly carryOut: (interrupt: SignedInterrupt, spec: ToolSpec) => Promise<CallbackResult>;
}

/** Throws DaemonError `stale`; nothing was carried out then. */
export async function resumeRun(order: ResumeOrder): Promise<Opening> {
  const { suspension, answers } = order.resume;
  const { interrupts } = suspension;
  const states = await findParked(order);
  const absent = interrupts.find(({ toolCallId }) => states && (states.get(toolCallId) ?? "absent") === "absent");
  if (absent) throw stale("the session does not have the call that was answered", absent.id, false);
  const claim = await order.session.claimSuspension(suspension.id, order.runId, {
    // The last one that its turn handed out, of the same id, may expire as much later.
    exp: Math.ceil(suspension.expiresAt / 1000) + MAX_HOLD_SECONDS,
    deadlineMs: order.claimMs,
    signal: order.signal,
  });
  if (claim.type === "used") {
    throw stale(`the suspension was used by the run ${claim.by}`, interrupts[0]?.id, true);
  }
  const closed = interrupts.find(({ toolCallId }) => states?.get(toolCallId) === "answered");
  if (closed && !claim.again) throw stale("the call has its result already", closed.id, true);
  order.log.info("suspension resumed", { suspension: suspension.id, from: suspension.runId });

  const results: { answer: TurnAnswer; chunks: readonly Chunk[] }[] = [];
  for (const interrupt of interrupts) {
    const entry = answers.get(interrupt.id);
    if (entry) results.push(await resultOf(interrupt, entry, order));
  }
  const specs = new Map(order.specs.map((spec) => [spec.name, spec]));
  return {
    answers: results.map(({ answer }) => answer),
    chunks: results.flatMap(({ chunks }) => chunks),
    answered: interrupts.flatMap(({ toolCallId, toolName, input, toolHash }) => {
      const spec = toolHash === undefined ? undefined : specs.get(toolName);
      return spec ? [{ toolCallId, spec, input }] : [];
    }),
  };
}

/** Undefined: the harness finds out for itself. */
async function findParked({
  resume,
  harness,
  session,
}: ResumeOrder): Promise<ReadonlyMap<string, ParkedState> | undefined> {
  const { findParked: find, configDir } = harness;
  const { id } = session.found;
  if (!find) return undefined;
  return id === undefined ? new Map() : find({ configDir, id }, resume.suspension.interrupts);
}

async function resultOf(
  interrupt: SignedInterrupt,
  entry: AnswerEntry,
  { specs, carryOut }: ResumeOrder,
): Promise<{ answer: TurnAnswer; chunks: readonly Chunk[] }> {
  const { id, toolCallId, toolName, input, toolHash } = interrupt;
  const reason = interrupt.reason as InterruptReason;
  const spec = toolHash === undefined ? undefined : specs.find(({ name }) => name === toolName);
  const own = { interruptId: id, reason, toolCallId, toolName, input, status: entry.status };
  const answer = (result: CallbackResult): TurnAnswer => ({
    ...own,
    ...(entry.payload === undefined ? {} : { payload: entry.payload }),
    text: result.text,
    isError: result.isError,
  });
  // A reader without the earlier message knows nothing of the call.
  const call = { type: "tool-input-available", toolCallId, toolName, input, dynamic: true };
  // A question of the harness's own: what the person gave is the output of that call as well.
  if (!spec) {
    const chunks = [call, answerChunk({ toolCallId, reason }, entry)];
    return {
      answer: answer(answerText(entry, reason)),
      chunks: chunks.map((chunk) => ({ ...chunk, providerExecuted: true })),
    };
  }
  const request = { type: "tool-approval-request", approvalId: id, toolCallId };
  const approval = reason === "tool_call" ? [request, ...approvalResponse({ id, reason }, entry)] : [];
  if (reason === "tool_call" && isApproved(entry)) {
    const result = await carryOut(interrupt, spec);
    return { answer: answer(result), chunks: [call, ...approval, outputChunk(toolCallId, result)] };
  }
  const chunks = [call, ...approval, answerChunk({ toolCallId, reason }, entry)];
  return { answer: answer(answerText(entry, reason)), chunks };
}

function stale(message: string, interruptId: string | undefined, dead: boolean): DaemonError {
  return new DaemonError("stale", message, { details: { ...(interruptId ? { interruptId } : {}), dead } });
}
