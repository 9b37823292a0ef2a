/**
 * How a turn fails: one of the harness's codes and a sentence for whoever reads the outcome. Messages name what to
 * mend, never a credential, a header or a path of the pod.
 */
import { type HarnessErrorCode, MAX_ERROR_MESSAGE_BYTES } from "../../errors.ts";
import type { Usage } from "../../frames/frame.ts";

export class TurnFailure extends Error {
  constructor(
    readonly code: HarnessErrorCode,
    message: string,
    readonly usage?: Usage,
  ) {
    super(cutText(message, MAX_ERROR_MESSAGE_BYTES));
    this.name = "TurnFailure";
  }
}

/** Cuts at characters, to at most `maxBytes` of UTF-8. */
export function cutText(text: string, maxBytes: number): string {
  const bytes = Buffer.from(text);
  if (bytes.length <= maxBytes) return text;
  // A character that is cut in the middle becomes U+FFFD at the end, which goes too.
  return `${bytes
    .subarray(0, maxBytes - 3)
    .toString()
    .replace(/\uFFFD+$/, "")}…`;
}
