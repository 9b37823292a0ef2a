/**
 * Puts the files of a restored session in place, as a whole: what is there of that id is set aside, then the files
 * beside the transcript, then the transcript. Whoever calls has taken the thread's pointer away, and writes it afterwards.
 * When something fails, what was set aside comes back; a file beside the transcript that something is in the way of is
 * left out.
 *
 * The folders may belong to the agent's user, who may put a link in their place at any moment: each is entered through the
 * descriptor of the one above, and what is placed is placed there.
 */
import type { Stats } from "node:fs";
import { copyFile, type FileHandle, lchown, lstat, mkdir, rename, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { type Owner, openAgentFolder, openBelow } from "../agent-folder.ts";
import { isThere } from "../disk.ts";
import { errnoOf } from "../errors.ts";
import type { SessionFiles } from "../harness/port.ts";
import { randomHex } from "../random-hex.ts";
import { stagedPath } from "./disk-staging.ts";
import { findPaths } from "./find-paths.ts";
import { patternOf } from "./session-paths.ts";
import type { StoredFile } from "./thread-state.ts";

export interface PlaceOrder {
  readonly configDir: string;
  readonly sessionFiles: SessionFiles;
  readonly sessionId: string;
  /** In the order of their numbers in the staging folder: the main transcript first. */
  readonly files: readonly StoredFile[];
  readonly staging: string;
  /** Whose the files are to be; null: the daemon's. */
  readonly owner: Owner | null;
}

export interface Placed {
  /** As they are known on this pod. */
  readonly files: readonly StoredFile[];
  /** Paths of files beside the transcript. */
  readonly leftOut: readonly string[];
}

/** Two files of one name, one within the other, or one whose name this disk does not take. */
const IN_THE_WAY: ReadonlySet<string | undefined> = new Set([
  "EEXIST",
  "ENOTEMPTY",
  "ENOTDIR",
  "EISDIR",
  "ENAMETOOLONG",
  "EILSEQ",
  "EINVAL",
]);

export async function placeSession(order: PlaceOrder): Promise<Placed> {
  const root = await openRoot(order);
  try {
    return await placeBelow(root, order);
  } finally {
    await root.close();
  }
}

async function placeBelow(root: Folder, order: PlaceOrder): Promise<Placed> {
  const { sessionFiles, sessionId, files, staging, owner } = order;
  const aside = join(root.path, `.dispatchd-${randomHex(8)}`);
  const moved: { from: string; to: string }[] = [];
  const placed: string[] = [];
  const known: StoredFile[] = [];
  const leftOut: string[] = [];
  try {
    for (const pattern of [sessionFiles.main, sessionFiles.side]) {
      for (const { path } of await findPaths(root.path, patternOf(pattern, sessionId))) {
        await mkdir(aside, { recursive: true, mode: 0o700 });
        const to = join(aside, String(moved.length));
        await rename(path, to);
        moved.push({ from: path, to });
      }
    }
    for (let number = files.length - 1; number >= 0; number--) {
      const file = files[number];
      if (!file) continue;
      try {
        if (owner) await lchown(stagedPath(staging, number), owner.uid, owner.gid);
        const { ino: inode, ctimeMs: changedAt } = await placeFile(root, file.path, stagedPath(staging, number), owner);
        known.push({ ...file, inode, changedAt });
      } catch (error) {
        if (number === 0 || !IN_THE_WAY.has(errnoOf(error))) throw error;
        leftOut.push(file.path);
        continue;
      }
      placed.push(join(root.path, file.path));
    }
  } catch (error) {
    for (const path of placed) await rm(path, { force: true });
    for (const { from, to } of moved.reverse()) await rename(to, from);
    throw error;
  } finally {
    await rm(aside, { recursive: true, force: true });
  }
  return { files: known.reverse(), leftOut };
}

/** A folder that is open, for as long as something is placed in it. */
interface Folder {
  /** Leads to it whatever its name means by now. */
  readonly path: string;
  below(path: string): Promise<Folder>;
  close(): Promise<void>;
}

async function openRoot({ configDir, owner }: PlaceOrder): Promise<Folder> {
  if (owner) return agentFolder(await openAgentFolder(configDir, owner), owner);
  if (!(await isThere(configDir))) await mkdir(configDir, { recursive: true, mode: 0o700 });
  return plainFolder(configDir, "");
}

/** Of the daemon's own user, who has no more rights than the agent; a link may still lead onto a volume that hangs. */
async function plainFolder(root: string, path: string): Promise<Folder> {
  let folder = root;
  await requireFolder(folder);
  for (const name of path.split("/").filter((each) => each !== "" && each !== ".")) {
    folder = join(folder, name);
    await mkdir(folder, { mode: 0o700 }).catch((error: unknown) => {
      if (errnoOf(error) !== "EEXIST") throw error;
    });
    await requireFolder(folder);
  }
  return { path: folder, below: (more) => plainFolder(folder, more), close: async () => {} };
}

async function requireFolder(path: string): Promise<void> {
  if (!(await lstat(path)).isDirectory()) throw notAFolder();
}

function agentFolder(handle: FileHandle | undefined, owner: Owner): Folder {
  if (!handle) throw notAFolder();
  return {
    // With a name behind it: by itself it is a link, and taken for one.
    path: `/proc/self/fd/${handle.fd}/.`,
    below: async (path) => agentFolder(await openBelow(handle, path, owner), owner),
    close: () => handle.close(),
  };
}

function notAFolder(): Error {
  return Object.assign(new Error("not a folder"), { code: "ENOTDIR" });
}

async function placeFile(root: Folder, path: string, from: string, owner: Owner | null): Promise<Stats> {
  const folder = await root.below(dirname(path));
  try {
    const to = join(folder.path, basename(path));
    // What was there is aside: this is another of the files, by the rules of this disk.
    if (await isThere(to)) throw Object.assign(new Error("something is there"), { code: "EEXIST" });
    await move(from, to, owner);
    return await lstat(to);
  } finally {
    await folder.close();
  }
}

/** By rename; where the state folder is another file system, by a copy that is renamed. */
async function move(from: string, to: string, owner: Owner | null): Promise<void> {
  try {
    await rename(from, to);
  } catch (error) {
    if (errnoOf(error) !== "EXDEV") throw error;
    const temporary = `${to}.${randomHex(6)}.tmp`;
    try {
      await copyFile(from, temporary);
      if (owner) await lchown(temporary, owner.uid, owner.gid);
      await rename(temporary, to);
    } catch (failure) {
      await rm(temporary, { force: true });
      throw failure;
    }
  }
}
