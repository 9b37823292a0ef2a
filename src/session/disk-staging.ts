/** Where the restore flight puts files: a folder of the pod's own disk, which the daemon made for it. */
import { open, rm, stat, truncate } from "node:fs/promises";
import { join } from "node:path";
import { errnoOf } from "../errors.ts";
import type { Staging } from "./restore-session.ts";

/** The path of a staged file. */
export function stagedPath(folder: string, file: number): string {
  return join(folder, String(file));
}

export function diskStaging(folder: string): Staging {
  return {
    async append(file, bytes) {
      const handle = await open(stagedPath(folder, file), "a", 0o600);
      try {
        for (let done = 0; done < bytes.length; ) {
          const { bytesWritten } = await handle.write(bytes, done, bytes.length - done);
          if (bytesWritten === 0) throw Object.assign(new Error("the disk takes no byte"), { code: "ENOSPC" });
          done += bytesWritten;
        }
      } finally {
        await handle.close();
      }
    },
    async truncate(file, bytes) {
      try {
        await truncate(stagedPath(folder, file), bytes);
      } catch (error) {
        // Nothing of it was staged yet.
        if (errnoOf(error) !== "ENOENT") throw error;
      }
    },
    remove: (file) => rm(stagedPath(folder, file), { force: true }),
    async tail(file, bytes) {
      const path = stagedPath(folder, file);
      const { size } = await stat(path);
      const handle = await open(path, "r");
      try {
        const buffer = Buffer.alloc(Math.min(size, bytes));
        const { bytesRead } = await handle.read(buffer, 0, buffer.length, size - buffer.length);
        return buffer.subarray(0, bytesRead);
      } finally {
        await handle.close();
      }
    },
  };
}
