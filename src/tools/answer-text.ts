/**
 * What the model reads as the result of a call that a person answered. Their words are data: one JSON value on one line,
 * which cannot close a tag around it.
 */
import type { InterruptReason } from "../harness/port.ts";
import { isApproved } from "../suspension/approval.ts";
import type { AnswerEntry } from "./port.ts";

const ESCAPES: Readonly<Record<string, string>> = { "<": "\\u003c", "\u2028": "\\u2028", "\u2029": "\\u2029" };

/** JSON that may stand within markup, and is one line for every reader: some end theirs at U+2028 and U+2029. */
export function jsonForModel(value: unknown): string {
  return (JSON.stringify(value) ?? "null").replace(/[<\u2028\u2029]/g, (character) => ESCAPES[character] ?? character);
}

/** `isError`: what the agent asked for was not done. */
export function answerText(
  entry: AnswerEntry,
  reason: InterruptReason,
): { readonly text: string; readonly isError: boolean } {
  const { status, payload } = entry;
  const asksForApproval = reason === "tool_call" || reason === "confirmation";
  if (status === "cancelled") return { text: jsonForModel({ cancelled: true }), isError: asksForApproval };
  if (!asksForApproval || isApproved(entry)) return { text: jsonForModel(payload), isError: false };
  const why = reasonIn(payload);
  return { text: jsonForModel({ denied: true, ...(why === undefined ? {} : { reason: why }) }), isError: true };
}

function reasonIn(payload: unknown): string | undefined {
  if (typeof payload !== "object" || payload === null || !Object.hasOwn(payload, "reason")) return undefined;
  const { reason } = payload as { reason: unknown };
  return typeof reason === "string" ? reason : undefined;
}
