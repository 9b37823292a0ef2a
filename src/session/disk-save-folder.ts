/**
 * A thread's saves as files of a folder. Runs in a worker: any of these calls may hang. The folder is opened once, and
 * its files are reached through it: on a mount every name on the way is a request of its own.
 */
import { constants } from "node:fs";
import { type FileHandle, lstat, mkdir, open, readdir, rm, unlink } from "node:fs/promises";
import { join } from "node:path";
import { errnoOf } from "../errors.ts";
import type { FileFacts, SaveFolder } from "./save-folder.ts";

/** Everybody in the organization can put a link or a FIFO there: neither is followed or waited for. */
const READ = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
/** A place and no more: on a mount nothing is opened for it. */
const O_PATH = 0x200000;
const FOLDER = O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW;

/** New saves go to the first of `paths`; what an earlier key put into the others is read and removed there. */
export function diskSaveFolder(paths: readonly [string, ...string[]]): SaveFolder & AsyncDisposable {
  const [newest] = paths;
  const opened = new Map<string, Promise<FileHandle | undefined>>();
  const placeOfName = new Map<string, string>();

  /** Where the folder is, once it is opened; undefined when there is none. */
  async function folderOf(path: string): Promise<string | undefined> {
    const opening = opened.get(path) ?? ifThere(() => openSteps(path, "as it is"));
    opened.set(path, opening);
    let handle: FileHandle | undefined;
    try {
      handle = await opening;
    } finally {
      // It may be there when it is asked for again.
      if (!handle) opened.delete(path);
    }
    return handle && `/proc/self/fd/${handle.fd}`;
  }
  async function at(name: string): Promise<string> {
    const path = placeOfName.get(name) ?? newest;
    return join((await folderOf(path)) ?? path, name);
  }

  return {
    async list() {
      placeOfName.clear();
      for (const path of paths) {
        const folder = await folderOf(path);
        for (const name of folder === undefined ? [] : await readdir(folder)) placeOfName.set(name, path);
      }
      return [...placeOfName.keys()];
    },
    async stat(name): Promise<FileFacts | undefined> {
      const known = placeOfName.get(name);
      // It may be asked for before they are listed.
      for (const path of known === undefined ? paths : [known]) {
        const folder = await folderOf(path);
        const facts = folder === undefined ? undefined : await ifThere(() => lstat(join(folder, name)));
        if (facts?.isFile()) return { bytes: facts.size, modifiedAt: facts.mtimeMs };
      }
      return undefined;
    },
    async read(name, offset, length) {
      const path = await at(name);
      const file = await ofFile(() => open(path, READ));
      try {
        const bytes = Buffer.allocUnsafe(length);
        let done = 0;
        while (done < length) {
          const { bytesRead } = await ofFile(() => file.read(bytes, done, length - done, offset + done));
          if (bytesRead === 0) break;
          done += bytesRead;
        }
        return bytes.subarray(0, done);
      } finally {
        await file.close();
      }
    },
    async write(name, pieces) {
      if ((await folderOf(newest)) === undefined) await (await openSteps(newest, "made")).close();
      await writeNew(join((await folderOf(newest)) ?? newest, name), Buffer.concat(pieces));
      placeOfName.set(name, newest);
    },
    async remove(name) {
      await unlink(await at(name)).catch((error) => {
        // A folder is somebody's who is none of ours; it must not keep what comes after it from being removed.
        if (!["ENOENT", "EISDIR", "EPERM"].includes(errnoOf(error) ?? "")) throw error;
      });
      placeOfName.delete(name);
    },
    async [Symbol.asyncDispose]() {
      for (const handle of opened.values()) await (await handle)?.close();
      opened.clear();
    },
  };
}

/** The folders of a thread lie in the store, and that in the volume: everything below is whoever's who can write there. */
const STEPS = 4;

/** Step by step: a link at any of them would lead out of the store. */
async function openSteps(path: string, how: "as it is" | "made"): Promise<FileHandle> {
  const names = path.split("/");
  const above = names.slice(0, -STEPS).join("/") || (path.startsWith("/") ? "/" : ".");
  let folder = await open(above, O_PATH | constants.O_DIRECTORY);
  for (const name of names.slice(-STEPS)) {
    const parent = folder;
    try {
      const at = `/proc/self/fd/${parent.fd}/${name}`;
      if (how === "made") await mkdir(at, { mode: 0o700 }).catch(unless("EEXIST"));
      folder = await open(at, FOLDER);
    } finally {
      await parent.close();
    }
  }
  return folder;
}

function unless(code: string) {
  return (error: unknown): void => {
    if (errnoOf(error) !== code) throw error;
  };
}

/** All of it, or nothing that stays: at each attempt a full volume would keep another part of a file. */
async function writeNew(path: string, bytes: Uint8Array): Promise<void> {
  const file = await open(path, "wx", 0o600);
  try {
    await writeAndClose(file, bytes);
  } catch (error) {
    await rm(path, { force: true }).catch(() => {});
    throw error;
  }
}

async function writeAndClose(file: FileHandle, bytes: Uint8Array): Promise<void> {
  try {
    // In one go: on a mount every call is a request.
    for (let done = 0; done < bytes.length; ) {
      const { bytesWritten } = await file.write(bytes, done, bytes.length - done);
      if (bytesWritten === 0) throw Object.assign(new Error("the volume takes no byte"), { code: "ENOSPC" });
      done += bytesWritten;
    }
  } finally {
    // On a mount it is the close that hands the file over; it throws what the writes did not.
    await file.close();
  }
}

/** Links, sockets and FIFOs answer with errors of their own. */
async function ofFile<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!["ELOOP", "ENXIO", "ESPIPE"].includes(errnoOf(error) ?? "")) throw error;
    throw Object.assign(new Error("no file", { cause: error }), { code: "EISDIR" });
  }
}

async function ifThere<T>(look: () => Promise<T>): Promise<T | undefined> {
  try {
    return await look();
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return undefined;
    throw error;
  }
}
