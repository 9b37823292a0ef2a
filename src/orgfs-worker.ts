/**
 * `dispatchd orgfs-worker`, put together: every job that touches the org volume. What a handler needs is loaded with
 * it, and no part of the daemon may load a handler.
 */
import { readSync, writeSync } from "node:fs";
import type { OrgJobTable } from "./orgfs/port.ts";
import { type OrgPathTable, runWorkerProgram } from "./orgfs/worker-program.ts";
import { makeNonDumpable, setParentDeathSignal } from "./process/native.ts";

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

/** Where in a job's input paths on the org volume stand. */
const ORG_PATHS: OrgPathTable = {
  "folder-make": async (input, { onVolume }) => ({ ...input, path: await onVolume(input.path) }),
  "links-set": async ({ links }, { inOrg }) => ({
    links: await Promise.all(links.map(async (link) => ({ ...link, path: await inOrg(link.path) }))),
  }),
  "session-restore": async ({ older, ...input }, { onVolume }) => ({
    ...input,
    store: await onVolume(input.store),
    ...(older ? { older: { ...older, store: await onVolume(older.store) } } : {}),
  }),
  "session-save": async (input, { onVolume }) => ({ ...input, store: await onVolume(input.store) }),
  "volume-probe": async (input, { onVolume }) => ({ ...input, path: await onVolume(input.path) }),
  "skills-home": async (input, { onVolume }) => ({ ...input, mountPath: await onVolume(input.mountPath) }),
  "skills-sets": async (input, { onVolume }) => ({ ...input, mountPath: await onVolume(input.mountPath) }),
  "skills-return": async (input, { onVolume }) => ({ ...input, mountPath: await onVolume(input.mountPath) }),
};

/** Resolves with the exit code. */
export function runOrgfsWorker(jobs: Partial<OrgJobTable> = ORG_JOBS): Promise<number> {
  // An interrupt from a terminal reaches the whole group. When a flight ends is the daemon's to say.
  for (const name of ["SIGINT", "SIGTERM"] as const) process.on(name, () => {});
  // Its order may hold keys, and an agent may be of the same user.
  makeNonDumpable();
  return runWorkerProgram({
    read: readStdin,
    write: writeStdout,
    jobs,
    paths: ORG_PATHS,
    dieWithParent: () => setParentDeathSignal(SIGKILL),
    parent: () => process.ppid,
  });
}

/** By the plain calls: the streams of stdin and stdout take as long to be made as all the rest of a flight, 5 ms. */
function readStdin(): string {
  const chunks: Buffer[] = [];
  for (;;) {
    const chunk = Buffer.alloc(64 * 1024);
    const bytes = readSync(0, chunk);
    if (bytes === 0) return Buffer.concat(chunks).toString("utf8");
    chunks.push(chunk.subarray(0, bytes));
  }
}

function writeStdout(text: string): void {
  const bytes = Buffer.from(text, "utf8");
  for (let done = 0; done < bytes.length; ) done += writeSync(1, bytes, done);
}
