import { parseRecord, readIfThere, writeWhole } from "../disk.ts";
import { NO_STATE, type StateFile, type ThreadState } from "./thread-state.ts";

const VERSION = 1;

/** A thread's state in the daemon's own half of the state folder: what it holds was written by this program. */
export function diskStateFile(path: string): StateFile {
  return {
    async read() {
      const record = parseRecord(await readIfThere(path));
      if (record?.version !== VERSION) return undefined;
      return { ...NO_STATE, ...(record.state as ThreadState) };
    },
    write: (state) => writeWhole(path, JSON.stringify({ version: VERSION, state })),
  };
}
