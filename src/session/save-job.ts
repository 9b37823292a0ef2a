/** The job `session-save`: see save-session.ts. */
import type { SessionFiles } from "../harness/port.ts";
import { diskLocalFiles } from "./disk-local-files.ts";
import { diskStateFile } from "./disk-state-file.ts";
import { type SaveOrder, type SaveReport, saveSession } from "./save-session.ts";
import { type StorePlace, sourceOf } from "./store-place.ts";

export interface SaveJob extends StorePlace {
  readonly order: SaveOrder;
  readonly configDir: string;
  readonly sessionFiles: SessionFiles;
  /** The thread's state file. */
  readonly state: string;
}

export async function runSaveJob(job: SaveJob): Promise<SaveReport> {
  const source = sourceOf(job);
  await using _open = source.folder;
  const local = diskLocalFiles(job.configDir, job.sessionFiles);
  return await saveSession(source, job.order, local, diskStateFile(job.state), () => Date.now());
}
