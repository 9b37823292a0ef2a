/** The job `session-restore`: see restore-session.ts. */
import { systemClock } from "../clock/system.ts";
import { diskStaging } from "./disk-staging.ts";
import { type RestoreOrder, type RestoreReport, restoreSession } from "./restore-session.ts";
import { type StorePlace, sourceOf } from "./store-place.ts";

export interface RestoreJob extends StorePlace {
  readonly order: RestoreOrder;
  /** A folder on the pod's own disk, empty. */
  readonly staging: string;
}

export function runRestoreJob(job: RestoreJob): Promise<RestoreReport> {
  return restoreSession(sourceOf(job), job.order, diskStaging(job.staging), systemClock);
}
