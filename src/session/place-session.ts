/**
 * Puts the files of a restored session in place, as a whole: what is there of that id is set aside, then the files
 * beside the transcript, then the transcript. Whoever calls has taken the thread's pointer away, and writes it afterwards.
 * When something fails, what was set aside comes back; a file beside the transcript that something is in the way of is
 * left out.
 *
 * The folders may belong to the agent's user: no link is followed.
 */
import { copyFile, lchown, lstat, mkdir, rename, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
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
  readonly owner: { readonly uid: number; readonly gid: number } | null;
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
  const { configDir, sessionFiles, sessionId, files, staging, owner } = order;
  await makeFolders(configDir, "", owner);
  const aside = join(configDir, `.dispatchd-${randomHex(8)}`);
  const moved: { from: string; to: string }[] = [];
  const placed: string[] = [];
  const known: StoredFile[] = [];
  const leftOut: string[] = [];
  try {
    for (const pattern of [sessionFiles.main, sessionFiles.side]) {
      for (const { path } of await findPaths(configDir, patternOf(pattern, sessionId))) {
        await mkdir(aside, { recursive: true, mode: 0o700 });
        const to = join(aside, String(moved.length));
        await rename(path, to);
        moved.push({ from: path, to });
      }
    }
    for (let number = files.length - 1; number >= 0; number--) {
      const file = files[number];
      if (!file) continue;
      const path = join(configDir, file.path);
      try {
        await makeFolders(configDir, dirname(file.path), owner);
        if (owner) await lchown(stagedPath(staging, number), owner.uid, owner.gid);
        // What was there is aside: this is another of the files, by the rules of this disk.
        if (await isThere(path)) throw Object.assign(new Error("something is there"), { code: "EEXIST" });
        await move(stagedPath(staging, number), path, owner);
      } catch (error) {
        if (number === 0 || !IN_THE_WAY.has(errnoOf(error))) throw error;
        leftOut.push(file.path);
        continue;
      }
      placed.push(path);
      const { ino: inode, ctimeMs: changedAt } = await lstat(path);
      known.push({ ...file, inode, changedAt });
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

/** Every folder on the way is a folder, and none is a link; those that are made belong to `owner`. */
async function makeFolders(root: string, path: string, owner: PlaceOrder["owner"]): Promise<void> {
  // Not `recursive` over what is there: a link would be followed, and what it leads to given away.
  if (!(await isThere(root))) {
    await mkdir(root, { recursive: true, mode: 0o700 });
    if (owner) await lchown(root, owner.uid, owner.gid);
  }
  await requireFolder(root);
  let folder = root;
  for (const part of path.split("/").filter((each) => each !== "" && each !== ".")) {
    folder = join(folder, part);
    try {
      await mkdir(folder, { mode: 0o700 });
      if (owner) await lchown(folder, owner.uid, owner.gid);
    } catch (error) {
      if (errnoOf(error) !== "EEXIST") throw error;
      await requireFolder(folder);
    }
  }
}

async function requireFolder(path: string): Promise<void> {
  if (!(await lstat(path)).isDirectory()) throw Object.assign(new Error("not a folder"), { code: "ENOTDIR" });
}

/** By rename; where the state folder is another file system, by a copy that is renamed. */
async function move(from: string, to: string, owner: PlaceOrder["owner"]): Promise<void> {
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
