/**
 * `dispatchd orgfs-worker`, put together: every job that touches the org volume. What a handler needs is loaded with
 * it, and no part of the daemon may load a handler.
 */
import type { Readable, Writable } from "node:stream";
import type { OrgJobTable } from "./orgfs/port.ts";
import { runWorkerProgram } from "./orgfs/worker-program.ts";
import { setParentDeathSignal } from "./process/native.ts";

const SIGKILL = 9;

export const ORG_JOBS: OrgJobTable = {
  "folder-make": async () => (await import("./orgfs/jobs/link-folders.ts")).makeFolder,
  "links-set": async () => (await import("./orgfs/jobs/link-folders.ts")).setLinks,
  "session-restore": async () => (await import("./session/restore-job.ts")).runRestoreJob,
  "session-save": async () => (await import("./session/save-job.ts")).runSaveJob,
  "volume-probe": async () => (await import("./orgfs/jobs/probe-volume.ts")).probeVolume,
  "skills-home": async () => (await import("./orgfs/skills/bring-home.ts")).bringHome,
  "skills-sets": async () => (await import("./orgfs/skills/bring-sets.ts")).bringSets,
  "skills-return": async () => (await import("./orgfs/skills/return-skills.ts")).returnSkills,
};

/** Resolves with the exit code. */
export function runOrgfsWorker(stdin: Readable, stdout: Writable, jobs: Partial<OrgJobTable> = ORG_JOBS) {
  // An interrupt from a terminal reaches the whole group. When a flight ends is the daemon's to say.
  for (const name of ["SIGINT", "SIGTERM"] as const) process.on(name, () => {});
  return runWorkerProgram({
    stdin,
    write: (text) =>
      new Promise((resolve, reject) => stdout.write(text, (error) => (error ? reject(error) : resolve()))),
    jobs,
    dieWithParent: () => setParentDeathSignal(SIGKILL),
    parent: () => process.ppid,
  });
}
