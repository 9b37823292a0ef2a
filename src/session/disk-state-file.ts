/**
 * A thread's state in the daemon's own half of the state folder: what it holds was written by this program. A run begins
 * with a file that the daemon writes; what its flights write is a file of the run's own beside it. So a flight of the run
 * before, which nobody waits for, cannot undo the beginning of the next.
 */
import { rm } from "node:fs/promises";
import { parseRecord, readIfThere, writeWhole } from "../disk.ts";
import { NO_STATE, type StateFile, type ThreadState } from "./thread-state.ts";

const VERSION = 1;

export interface DiskStateFile extends StateFile {
  /** From now on the state is that of a new run. */
  begin(state: ThreadState): Promise<void>;
}

export function diskStateFile(path: string): DiskStateFile {
  const pathOf = ({ run }: ThreadState): string => `${path}.${run?.id ?? "none"}`;
  async function readFrom(from: string): Promise<ThreadState | undefined> {
    const record = parseRecord(await readIfThere(from));
    return record?.version === VERSION ? { ...NO_STATE, ...(record.state as ThreadState) } : undefined;
  }
  const writeTo = (to: string, state: ThreadState): Promise<void> =>
    writeWhole(to, JSON.stringify({ version: VERSION, state }));
  return {
    async read() {
      const begun = await readFrom(path);
      return begun && ((await readFrom(pathOf(begun))) ?? begun);
    },
    write: (state) => writeTo(pathOf(state), state),
    async begin(state) {
      const before = await readFrom(path);
      await writeTo(path, state);
      if (before) await rm(pathOf(before), { force: true });
    },
  };
}
