/**
 * Folders that belong to the harness's user. What the agent may have put in the way is not followed: giving away what a
 * link points to would hand it the machine.
 */
import { constants } from "node:fs";
import { lstat, mkdir, open, realpath } from "node:fs/promises";
import { dirname } from "node:path";
import { isThere } from "../disk.ts";
import { errnoOf } from "../errors.ts";

export interface Owner {
  readonly uid: number;
  readonly gid: number;
}

/** Makes the folder, its parents included. What is there already, folder or not, is left as it is, and not followed. */
export async function giveFolder(path: string, owner: Owner | null): Promise<void> {
  if (await isThere(path)) return;
  const created = await mkdir(path, { recursive: true, mode: 0o700 });
  if (created !== undefined && owner) await changeDownFrom(created, path, owner);
}

/**
 * Makes the folder, or gives one that is there and belongs to us. Only while nothing of the agent is running. False when
 * the folder is somebody else's, or is reached over a link: then it stays as it is.
 */
export async function takeOverFolder(path: string, owner: Owner): Promise<boolean> {
  if ((await isThere(path)) && !(await lstat(path)).isDirectory()) return false;
  const created = await mkdir(path, { recursive: true, mode: 0o700 });
  if ((await realpath(path)) !== path) return false;
  return changeDownFrom(created ?? path, path, owner);
}

/** Of several folders that were made, those above are closed to the owner too until they are given. */
async function changeDownFrom(first: string, last: string, owner: Owner): Promise<boolean> {
  for (let path = last; path !== first; path = dirname(path)) if (!(await change(path, owner))) return false;
  return change(first, owner);
}

async function change(path: string, owner: Owner): Promise<boolean> {
  let handle: Awaited<ReturnType<typeof open>>;
  try {
    handle = await open(path, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  } catch (error) {
    const code = errnoOf(error);
    if (code === "ELOOP" || code === "ENOTDIR") return false;
    throw error;
  }
  try {
    const { uid } = await handle.stat();
    if (uid === owner.uid) return true;
    if (uid !== process.getuid?.()) return false;
    await handle.chown(owner.uid, owner.gid);
    return true;
  } finally {
    await handle.close();
  }
}
