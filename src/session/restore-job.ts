/** The job `session-restore`: see restore-session.ts. */
import { systemClock } from "../clock/system.ts";
import { diskStaging } from "./disk-staging.ts";
import { listSaves } from "./list-saves.ts";
import { type OlderStore, restoreOlder } from "./older-layout.ts";
import { type RestoreOrder, type RestoreReport, restoreSession } from "./restore-session.ts";
import { type StorePlace, sourceIn, sourceOf } from "./store-place.ts";

export interface RestoreJob extends StorePlace {
  readonly order: RestoreOrder;
  /** A folder on the pod's own disk, empty. */
  readonly staging: string;
  /** Where to look when the thread has no save. */
  readonly older?: OlderStore;
}

const FROM_OLDER =
  "the conversation comes from the older layout, which is not sealed: whoever can write the volume can have made it up";

export async function runRestoreJob(job: RestoreJob): Promise<RestoreReport> {
  const staging = diskStaging(job.staging);
  const source = sourceOf(job);
  await using _open = source.folder;
  const report = await restoreSession(source, job.order, staging, systemClock);
  const { older, threadId, order } = job;
  if (report.saves > 0 || report.choice.source !== "none") return report;
  const { harness, sessionFiles } = order;
  const restored = older && (await restoreOlder({ ...older, threadId, harness, sessionFiles }, staging));
  const isSealed = job.keys.length > 0;
  if (!restored) return isSealed ? withReason(report, await whyNothing(job)) : report;
  const found = { ...report, choice: { ...report.choice, source: "stored" as const }, restored };
  return isSealed ? { ...withReason(found, FROM_OLDER), unsealed: true } : found;
}

/**
 * Saves from before there were keys are none any more: anybody can have made them. That they are passed over is said. What
 * the sealed ones came to is known by now, whatever stands in the way here.
 */
async function whyNothing({ store, threadId }: RestoreJob): Promise<string | undefined> {
  const source = sourceIn(store, threadId, []);
  await using _open = source.folder;
  const names = await listSaves(source).then(
    (listing) => listing.names,
    () => [],
  );
  if (names.length === 0) return undefined;
  return `the store has saves of the thread that are not sealed, ${names.length} of them: they are not believed`;
}

function withReason(report: RestoreReport, why: string | undefined): RestoreReport {
  const reasons = [report.choice.reason, why].filter((reason) => reason !== undefined);
  return reasons.length > 0 ? { ...report, choice: { ...report.choice, reason: reasons.join("; ") } } : report;
}
