/** A thread's saves as files of a folder. Runs in a worker: any of these calls may hang. */
import { constants } from "node:fs";
import { lstat, mkdir, open, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { errnoOf } from "../errors.ts";
import type { FileFacts, SaveFolder } from "./save-folder.ts";

/** Everybody in the organization can put a link or a FIFO there: neither is followed or waited for. */
const READ = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

/** New saves go to the first of `paths`; what an earlier key put into the others is read and removed there. */
export function diskSaveFolder(paths: readonly [string, ...string[]]): SaveFolder {
  const [newest] = paths;
  const placeOfName = new Map<string, string>();
  const at = (name: string): string => join(placeOfName.get(name) ?? newest, name);
  return {
    async list() {
      placeOfName.clear();
      for (const path of paths) for (const name of await entriesOf(path)) placeOfName.set(name, path);
      return [...placeOfName.keys()];
    },
    async stat(name): Promise<FileFacts | undefined> {
      const facts = await ifThere(() => lstat(at(name)));
      return facts?.isFile() ? { bytes: facts.size, modifiedAt: facts.mtimeMs } : undefined;
    },
    async read(name, offset, length) {
      const file = await open(at(name), READ);
      try {
        const bytes = Buffer.allocUnsafe(length);
        let done = 0;
        while (done < length) {
          const { bytesRead } = await file.read(bytes, done, length - done, offset + done);
          if (bytesRead === 0) break;
          done += bytesRead;
        }
        return bytes.subarray(0, done);
      } finally {
        await file.close();
      }
    },
    async write(name, pieces) {
      const file = await createIn(newest, name);
      try {
        for (const piece of pieces) {
          for (let done = 0; done < piece.length; ) {
            const { bytesWritten } = await file.write(piece, done, piece.length - done);
            if (bytesWritten === 0) throw Object.assign(new Error("the volume takes no byte"), { code: "ENOSPC" });
            done += bytesWritten;
          }
        }
      } finally {
        // On a mount it is the close that hands the file over; it throws what the writes did not.
        await file.close();
      }
      placeOfName.set(name, newest);
    },
    async remove(name) {
      await rm(at(name), { force: true });
      placeOfName.delete(name);
    },
  };
}

async function createIn(folder: string, name: string) {
  try {
    return await open(join(folder, name), "wx", 0o600);
  } catch (error) {
    if (errnoOf(error) !== "ENOENT") throw error;
    await mkdir(folder, { recursive: true, mode: 0o700 });
    return open(join(folder, name), "wx", 0o600);
  }
}

async function entriesOf(path: string): Promise<string[]> {
  return (await ifThere(() => readdir(path))) ?? [];
}

async function ifThere<T>(look: () => Promise<T>): Promise<T | undefined> {
  try {
    return await look();
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return undefined;
    throw error;
  }
}
