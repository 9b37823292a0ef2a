/** What the worker does for sessions. Types alone: the daemon loads none of the handlers. */
import type { RestoreJob } from "./restore-job.ts";
import type { RestoreReport } from "./restore-session.ts";
import type { SaveJob } from "./save-job.ts";
import type { SaveReport } from "./save-session.ts";

declare module "../orgfs/port.ts" {
  interface OrgJobs {
    "session-restore": { input: RestoreJob; output: RestoreReport };
    "session-save": { input: SaveJob; output: SaveReport };
  }
}
