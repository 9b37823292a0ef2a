/** What this pod has of a thread, by itself. */
import { lstat } from "node:fs/promises";
import type { Harness } from "../harness/port.ts";
import type { LocalSession } from "./choose-save.ts";
import { findTranscript } from "./find-transcript.ts";
import type { Pointers } from "./pointer.ts";
import type { BeginOrder, FoundSession } from "./port.ts";
import { runKeyOf } from "./save-name.ts";
import type { SessionOwners } from "./session-owners.ts";
import { isSessionId } from "./session-paths.ts";
import { sizeOf, type ThreadState } from "./thread-state.ts";

export interface LocalFinding {
  readonly id?: string;
  readonly found: FoundSession;
}

/** A harness may name a session and never write it. */
export const NEVER_WRITTEN =
  "the session that the harness named has no transcript: the thread stays with the one before";

/**
 * The session that the thread's pointer names, or without one the caller; its transcript has to be there. `saved`: the
 * session that the pod saved last for the thread. That one was written, and is looked for on the volume when it is gone.
 */
export async function findLocal(
  { threadId, harness, input }: BeginOrder,
  pointers: Pointers,
  owners: SessionOwners,
  saved?: string,
): Promise<LocalFinding> {
  const { sessionFiles } = harness.capabilities;
  const fresh = (reason: string): LocalFinding => ({ found: { state: "fresh", reason } });
  const pointer = await pointers.read(threadId);
  if (pointer && pointer.harness !== harness.id) return fresh("the thread's session belongs to another harness");
  const named = pointer?.sessionId ?? input.harness?.sessionId ?? undefined;
  if (named === undefined) return { found: { state: "fresh" } };
  if (sessionFiles && !isSessionId(named)) return fresh("input.harness.sessionId cannot be the id of a session");
  const isHere = async (id: string | undefined): Promise<boolean> =>
    !sessionFiles || (id !== undefined && (await findTranscript(harness.configDir, sessionFiles, id)) !== undefined);
  const id = named === saved || (await isHere(named)) ? named : pointer?.earlier;
  if (id === undefined || !(await isHere(id))) {
    return fresh("the transcript of the thread's session is not on this pod");
  }
  if (sessionFiles && !(await owners.claim(id, threadId, "held"))) {
    return fresh("the session belongs to another thread of this pod");
  }
  return { id, found: { id, state: "local", ...(id === named ? {} : { reason: NEVER_WRITTEN }) } };
}

/** Which saves it stands for. */
export async function describeLocal(harness: Harness, id: string, state: ThreadState): Promise<LocalSession> {
  const { last, own, files, line } = state;
  const ours = new Set(own.map(({ name }) => runKeyOf(name)));
  const ownRuns = line.filter((run) => ours.has(run));
  if (!last) return { coversRun: true, ownRuns };
  const isOurRun = ours.has(runKeyOf(last.name));
  const { sessionFiles } = harness.capabilities;
  const path = sessionFiles && (await findTranscript(harness.configDir, sessionFiles, id));
  const bytes = path ? (await lstat(path)).size : 0;
  return { last, ownRuns, coversRun: isOurRun || bytes !== sizeOf(files[0]?.segments ?? []) };
}
