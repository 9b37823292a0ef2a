/**
 * What this pod knows of the used suspensions of each thread: a file per thread in the daemon's half of the state folder,
 * with what its own runs used and what it read in the heads of saves. There with an org volume or without one.
 */
import { join } from "node:path";
import type { Clock } from "../clock/port.ts";
import { fileNameOf, oneAfterTheOther, parseRecord, readIfThere, writeWhole } from "../disk.ts";
import { holdsAll, liveUses, mergeUses, otherUser, parseUses, type SuspensionUse } from "./suspension-uses.ts";

export interface UsedSuspensions {
  /** Throws when the disk of the pod fails, as `add` does. */
  read(threadId: string): Promise<readonly SuspensionUse[]>;
  add(threadId: string, uses: readonly SuspensionUse[]): Promise<void>;
  /**
   * Holds the suspension for the run while it claims it. A text: another run has used it, or is about to. `release` is to
   * be called when the claim is over, whatever came of it. `again`: this very run has claimed it before.
   */
  reserve(
    threadId: string,
    use: SuspensionUse,
  ): Promise<string | { readonly release: () => void; readonly again: boolean }>;
}

export function createUsedSuspensions(folder: string, clock: Clock): UsedSuspensions {
  const inOrder = oneAfterTheOther();
  const path = (threadId: string): string => join(folder, `${fileNameOf(threadId)}.used.json`);
  const reserved = new Set<{ readonly threadId: string; readonly use: SuspensionUse }>();

  async function read(threadId: string): Promise<readonly SuspensionUse[]> {
    const record = parseRecord(await readIfThere(path(threadId)));
    return record?.threadId === threadId ? parseUses(record.used) : [];
  }

  return {
    read,
    async add(threadId, uses) {
      if (uses.length === 0) return;
      await inOrder(async () => {
        const known = await read(threadId);
        if (holdsAll(known, uses)) return;
        const used = liveUses(mergeUses(known, uses), clock.now());
        await writeWhole(path(threadId), JSON.stringify({ threadId, used }));
      });
    },
    async reserve(threadId, use) {
      const others = [...reserved].filter((each) => each.threadId === threadId).map((each) => each.use);
      const claiming = otherUser(others, use);
      if (claiming !== undefined) return claiming;
      // Before the file is read: of two runs that ask at once, one has it.
      const reservation = { threadId, use };
      const release = (): void => void reserved.delete(reservation);
      reserved.add(reservation);
      try {
        const known = await read(threadId);
        const by = otherUser(known, use);
        if (by === undefined) return { release, again: known.some(({ id }) => id === use.id) };
        release();
        return by;
      } catch (error) {
        release();
        throw error;
      }
    },
  };
}
