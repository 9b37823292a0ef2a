import type { Answer } from "./port.ts";

/**
 * `payload: {approved: true}`, with a `reason` in words beside it if there is one, and nothing else: what has more in it
 * may mean another input than the one that was asked about.
 */
export function isApproved({ status, payload }: Answer): boolean {
  if (status !== "resolved" || typeof payload !== "object" || payload === null) return false;
  const own: Readonly<Record<string, unknown>> = { ...payload };
  const { approved, reason = "", ...more } = own;
  return approved === true && typeof reason === "string" && Object.keys(more).length === 0;
}
