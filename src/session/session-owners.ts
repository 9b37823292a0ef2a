/**
 * An id of a session has one thread on a pod: a second one would save the first one's conversation as its own. Kept as a
 * file per id; whoever asks first has it.
 */
import { join } from "node:path";
import { fileNameOf, parseRecord, readIfThere, writeWhole } from "../disk.ts";

export interface SessionOwners {
  /** True when the id is the thread's from now on, or was. */
  claim(sessionId: string, threadId: string): Promise<boolean>;
}

export function createSessionOwners(folder: string): SessionOwners {
  const claims = new Map<string, Promise<string>>();
  const ownerOf = async (sessionId: string, threadId: string): Promise<string> => {
    const path = join(folder, `${fileNameOf(sessionId)}.owner.json`);
    const known = parseRecord(await readIfThere(path));
    if (known?.sessionId === sessionId && typeof known.threadId === "string") return known.threadId;
    await writeWhole(path, JSON.stringify({ sessionId, threadId }));
    return threadId;
  };
  return {
    async claim(sessionId, threadId) {
      const asked = claims.get(sessionId) ?? ownerOf(sessionId, threadId);
      // While one is being asked for, the next waits for the same answer.
      claims.set(sessionId, asked);
      try {
        return (await asked) === threadId;
      } finally {
        claims.delete(sessionId);
      }
    },
  };
}
