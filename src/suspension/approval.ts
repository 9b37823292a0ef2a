import { sameJson } from "./canonical-json.ts";
import type { Answer } from "./port.ts";

/** `payload: {approved: true}` and nothing else: with more in it, it may mean another input than the one that was asked. */
export function isApproved({ status, payload }: Answer): boolean {
  return status === "resolved" && sameJson(payload, { approved: true });
}
