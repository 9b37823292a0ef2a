/**
 * A suspension is good for one run: whoever claims it first, and that run alone may go on with it. Asked is what this pod
 * knows, and where a volume is there also what lies on it; then the claim is written beside the session, in the head of a
 * save, and last on the pod. Last, because a claim that was refused half-way would bar the run that has it.
 */
import type { ClaimResult } from "./port.ts";
import type { SuspensionUse } from "./suspension-uses.ts";
import type { UsedSuspensions } from "./used-suspensions.ts";

/** What came of writing it beside the session. */
export type StoredClaim =
  | { readonly type: "stored" }
  | { readonly type: "used"; readonly by: string }
  | { readonly type: "not-stored"; readonly reason: string };

export async function claimSuspension(
  threadId: string,
  use: SuspensionUse,
  used: UsedSuspensions,
  store: () => Promise<StoredClaim>,
): Promise<ClaimResult> {
  const reserved = await used.reserve(threadId, use);
  if (typeof reserved === "string") return { type: "used", by: reserved };
  try {
    const stored = await store();
    if (stored.type === "used") {
      await used.add(threadId, [{ ...use, run: stored.by }]);
      return { type: "used", by: stored.by };
    }
    await used.add(threadId, [use]);
    const { again } = reserved;
    if (stored.type === "stored") return { type: "claimed", again, durable: "volume" };
    return { type: "claimed", again, durable: "pod", reason: stored.reason };
  } finally {
    reserved.release();
  }
}
