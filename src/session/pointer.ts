/** A thread's pointer: which session id its conversation has on this pod. */
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { fileNameOf, oneAfterTheOther, parseRecord, readIfThere, writeWhole } from "../disk.ts";

export interface Pointer {
  readonly threadId: string;
  readonly sessionId: string;
  /** The program that the session belongs to: another one cannot go on with it. */
  readonly harness: string;
  /** The session before it, which the thread goes on with if that one's transcript never comes. */
  readonly earlier?: string;
}

export interface Pointers {
  read(threadId: string): Promise<Pointer | undefined>;
  write(pointer: Pointer): Promise<void>;
  remove(threadId: string): Promise<void>;
}

/** Pointers as files of `folder`, each at a name made from the thread's id. */
export function createPointers(folder: string): Pointers {
  const inOrder = oneAfterTheOther();
  const path = (threadId: string): string => join(folder, `${fileNameOf(threadId)}.json`);
  return {
    async read(threadId) {
      const record = parseRecord(await readIfThere(path(threadId)));
      if (record?.threadId !== threadId) return undefined;
      const { sessionId, harness, earlier } = record;
      if (typeof sessionId !== "string" || typeof harness !== "string") return undefined;
      return { threadId, sessionId, harness, ...(typeof earlier === "string" ? { earlier } : {}) };
    },
    write: (pointer) => inOrder(() => writeWhole(path(pointer.threadId), JSON.stringify(pointer))),
    remove: (threadId) => inOrder(() => rm(path(threadId), { force: true })),
  };
}
