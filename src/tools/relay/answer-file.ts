/**
 * An answer as it stands in its file, and the bytes that its signature is over. Pure: the daemon, the shim and a runner
 * outside the pod have to agree on it.
 *
 *     {"ok":true,"text":…,"signature":…}   {"ok":false,"error":…,"signature":…}   {"ok":true,"paused":true,"signature":…}
 */
import { parseRecord } from "../../disk.ts";
import type { RelayAnswer } from "../port.ts";

export interface SignedAnswer {
  readonly answer: RelayAnswer;
  readonly signature: string;
}

/** What binds an answer to its run, its request, and its kind: none of them can be used for another. */
export function bytesToSign(runId: string, name: string, answer: RelayAnswer): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(JSON.stringify(["dispatchd-relay-1", runId, name, answer.type, bodyOf(answer)]));
}

export function formatAnswer({ answer, signature }: SignedAnswer): string {
  return JSON.stringify({ ...fieldsOf(answer), signature });
}

/** Undefined for anything that is not exactly one of the three. */
export function parseAnswer(text: string): SignedAnswer | undefined {
  const record = parseRecord(text);
  if (!record || typeof record.signature !== "string") return undefined;
  const answer = answerOf(record);
  return answer && { answer, signature: record.signature };
}

function answerOf(record: Readonly<Record<string, unknown>>): RelayAnswer | undefined {
  const has = (key: string): boolean => Object.hasOwn(record, key);
  if (record.ok === true && has("paused"))
    return record.paused === true && !has("text") ? { type: "pause" } : undefined;
  if (record.ok === true) return typeof record.text === "string" ? { type: "success", text: record.text } : undefined;
  if (record.ok !== false || has("paused")) return undefined;
  return typeof record.error === "string" ? { type: "failure", error: record.error } : undefined;
}

function fieldsOf(answer: RelayAnswer): Record<string, unknown> {
  switch (answer.type) {
    case "success":
      return { ok: true, text: answer.text };
    case "failure":
      return { ok: false, error: answer.error };
    case "pause":
      return { ok: true, paused: true };
  }
}

function bodyOf(answer: RelayAnswer): string {
  switch (answer.type) {
    case "success":
      return answer.text;
    case "failure":
      return answer.error;
    case "pause":
      return "";
  }
}
