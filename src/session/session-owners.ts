/**
 * An id of a session has one thread on a pod: a second one would save the first one's conversation as its own. Kept as a
 * file per id. A thread that restored the session, goes on with it or saves it holds it for good. One whose harness only
 * named it has it until another thread can show more: a name costs nothing, and must not bar whose session it is.
 */
import { join } from "node:path";
import { fileNameOf, parseRecord, readIfThere, writeWhole } from "../disk.ts";

export type Claim = "named" | "held";

export interface SessionOwners {
  /** True when the id is the thread's from now on, or was. One that is nobody's is only given when it `mayBegin`. */
  claim(sessionId: string, threadId: string, claim: Claim, mayBegin?: () => Promise<boolean>): Promise<boolean>;
}

export function createSessionOwners(folder: string): SessionOwners {
  /** Of each id, the claim that was asked for last: the next one waits for it. */
  const last = new Map<string, Promise<unknown>>();

  async function decide(
    sessionId: string,
    threadId: string,
    claim: Claim,
    mayBegin: () => Promise<boolean>,
  ): Promise<boolean> {
    const path = join(folder, `${fileNameOf(sessionId)}.owner.json`);
    const record = parseRecord(await readIfThere(path));
    const owner = record?.sessionId === sessionId && typeof record.threadId === "string" ? record : undefined;
    const isHeld = owner?.claim !== "named";
    if (owner && owner.threadId !== threadId && (isHeld || claim === "named")) return false;
    if (owner && owner.threadId === threadId && (isHeld || claim === "named")) return true;
    if (!owner && !(await mayBegin())) return false;
    await writeWhole(path, JSON.stringify({ sessionId, threadId, claim }));
    return true;
  }

  return {
    async claim(sessionId, threadId, claim, mayBegin = async () => true) {
      const before = last.get(sessionId);
      const decided = (async () => {
        await before?.catch(() => {}); // Its caller hears of it.
        return await decide(sessionId, threadId, claim, mayBegin);
      })();
      last.set(sessionId, decided);
      try {
        return await decided;
      } finally {
        if (last.get(sessionId) === decided) last.delete(sessionId);
      }
    },
  };
}
