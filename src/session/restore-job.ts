/** The job `session-restore`: see restore-session.ts. */
import { systemClock } from "../clock/system.ts";
import { diskStaging } from "./disk-staging.ts";
import { type OlderStore, restoreOlder } from "./older-layout.ts";
import { type RestoreOrder, type RestoreReport, restoreSession } from "./restore-session.ts";
import { type StorePlace, sourceOf } from "./store-place.ts";

export interface RestoreJob extends StorePlace {
  readonly order: RestoreOrder;
  /** A folder on the pod's own disk, empty. */
  readonly staging: string;
  /** Where to look when the thread has no save. */
  readonly older?: OlderStore;
}

export async function runRestoreJob(job: RestoreJob): Promise<RestoreReport> {
  const staging = diskStaging(job.staging);
  const source = sourceOf(job);
  await using _open = source.folder;
  const report = await restoreSession(source, job.order, staging, systemClock);
  const { older, threadId, order } = job;
  if (!older || report.saves > 0 || report.choice.source !== "none") return report;
  const { harness, sessionFiles } = order;
  const restored = await restoreOlder({ ...older, threadId, harness, sessionFiles }, staging);
  return restored ? { ...report, choice: { ...report.choice, source: "stored" }, restored } : report;
}
