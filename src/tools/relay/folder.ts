/**
 * A relay directory, held open: everything in it is reached through its descriptor, so that it is this folder whatever
 * its name means by now. The agent can write in it, and the daemon may have more rights than the agent: no link is
 * followed, nothing is waited for (a FIFO would hang), and what is read is a regular file with one name that fits.
 */
import { constants, type Stats } from "node:fs";
import { type FileHandle, lstat, mkdir, open, readdir, rename, unlink } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import type { Owner } from "../../agent-folder.ts";
import { errnoOf } from "../../errors.ts";
import { randomHex } from "../../random-hex.ts";

const { O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_WRONLY } = constants;

/** Why a file is not believed. */
export type FileFault = "link" | "not_regular" | "more_than_one_name" | "too_large" | "unreadable";

export type FileRead =
  /** `version` is another one after any change of the file. */
  | { readonly type: "text"; readonly text: string; readonly version: string }
  | { readonly type: "absent" }
  | { readonly type: "fault"; readonly why: FileFault };

export interface RelayFolder {
  /** Leads to this folder for as long as it is open. */
  readonly path: string;
  /** Bytes of the folder itself, which grow with the number of names in it. `removed`: nothing can be made in it. */
  look(): Promise<{ readonly bytes: number; readonly removed: boolean }>;
  names(): Promise<readonly string[]>;
  has(name: string): Promise<boolean>;
  read(name: string, maxBytes: number): Promise<FileRead>;
  /** The file is there as a whole or not at all; what had its name is replaced. */
  publish(name: string, text: string): Promise<void>;
  /** Does nothing where there is no such file. */
  remove(name: string): Promise<void>;
  close(): Promise<void>;
}

/** Of files published into it: null, whoever publishes. */
export async function openFolder(directory: string, owner: Owner | null): Promise<RelayFolder> {
  return folderOf(await open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW), owner);
}

/**
 * Makes the folder, or takes one that is there, for `owner` alone. Its parent may be the agent's: what it put in the way
 * is removed, unless it is a folder that belongs to neither of the two.
 */
export async function makeFolder(directory: string, owner: Owner | null): Promise<RelayFolder> {
  const parent = await open(dirname(directory), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  try {
    const handle = await makeIn(`/proc/self/fd/${parent.fd}/${basename(directory)}`);
    try {
      const { uid } = await handle.stat();
      if (uid !== process.getuid?.() && uid !== owner?.uid) throw new Error("the relay directory is somebody else's");
      await handle.chmod(0o700);
      if (owner) await handle.chown(owner.uid, owner.gid);
      return folderOf(handle, owner);
    } catch (error) {
      await handle.close();
      throw error;
    }
  } finally {
    await parent.close();
  }
}

async function makeIn(path: string): Promise<FileHandle> {
  for (let triesLeft = 3; ; triesLeft--) {
    await mkdir(path, { mode: 0o700 }).catch(ignore("EEXIST"));
    try {
      return await open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    } catch (error) {
      if (triesLeft === 0 || !["ELOOP", "ENOTDIR", "ENOENT"].includes(errnoOf(error) ?? "")) throw error;
      await unlink(path).catch(ignore("ENOENT", "EISDIR"));
    }
  }
}

function folderOf(handle: FileHandle, owner: Owner | null): RelayFolder {
  const path = `/proc/self/fd/${handle.fd}`;
  const at = (name: string): string => join(path, name);
  return {
    path,
    async look() {
      const { size, nlink } = await handle.stat();
      return { bytes: size, removed: nlink === 0 };
    },
    names: () => readdir(path),
    has: (name) => lstat(at(name)).then(() => true, missing),
    read: (name, maxBytes) => readRegular(at(name), maxBytes),
    async publish(name, text) {
      const temporary = at(`.${randomHex(8)}.tmp`);
      try {
        await writeNew(temporary, text, owner);
        await rename(temporary, at(name));
      } catch (error) {
        await unlink(temporary).catch(() => {}); // It may never have been there; the first failure is the one to tell.
        throw error;
      }
    },
    // A folder of this name is the agent's, and no part of the protocol.
    remove: (name) => unlink(at(name)).catch(ignore("ENOENT", "EISDIR", "EPERM", "EACCES")),
    close: () => handle.close(),
  };
}

async function readRegular(path: string, maxBytes: number): Promise<FileRead> {
  let handle: FileHandle;
  try {
    handle = await open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  } catch (error) {
    const code = errnoOf(error);
    if (code === "ENOENT") return { type: "absent" };
    return { type: "fault", why: code === "ELOOP" ? "link" : code === "ENXIO" ? "not_regular" : "unreadable" };
  }
  try {
    const found = await handle.stat();
    const why = faultOf(found, maxBytes);
    if (why) return { type: "fault", why };
    return { type: "text", text: await readBytes(handle, found.size), version: versionOf(found) };
  } catch {
    return { type: "fault", why: "unreadable" };
  } finally {
    await handle.close();
  }
}

function faultOf(found: Stats, maxBytes: number): FileFault | undefined {
  if (!found.isFile()) return "not_regular";
  // None: it was removed since it was opened, and what was read is as good as before.
  if (found.nlink > 1) return "more_than_one_name";
  return found.size > maxBytes ? "too_large" : undefined;
}

async function readBytes(handle: FileHandle, size: number): Promise<string> {
  const bytes = Buffer.allocUnsafe(size);
  let done = 0;
  while (done < size) {
    const { bytesRead } = await handle.read(bytes, done, size - done, done);
    if (bytesRead === 0) break;
    done += bytesRead;
  }
  return bytes.toString("utf8", 0, done);
}

function versionOf({ ino, size, mtimeMs, ctimeMs }: Stats): string {
  return `${ino}/${size}/${mtimeMs}/${ctimeMs}`;
}

async function writeNew(path: string, text: string, owner: Owner | null): Promise<void> {
  const handle = await open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
  try {
    const bytes = Buffer.from(text, "utf8");
    for (let done = 0; done < bytes.length; ) {
      const { bytesWritten } = await handle.write(bytes, done, bytes.length - done);
      if (bytesWritten === 0) throw Object.assign(new Error("the disk takes no byte"), { code: "ENOSPC" });
      done += bytesWritten;
    }
    if (owner) await handle.chown(owner.uid, owner.gid);
  } finally {
    await handle.close();
  }
}

function missing(error: unknown): false {
  const code = errnoOf(error);
  if (code === "ENOENT" || code === "ENOTDIR") return false;
  throw error;
}

function ignore(...codes: readonly string[]): (error: unknown) => void {
  return (error) => {
    if (!codes.includes(errnoOf(error) ?? "")) throw error;
  };
}
