/**
 * Sessions as an earlier program left them: `<store>/<threadId>/`, plain copies of the session's files, either
 * where the harness keeps them or directly in the folder. Read when a thread has no save; never written or deleted. Its
 * writer replaced files one by one, so a folder may be without its transcript: then there is no session in it.
 */
import { constants } from "node:fs";
import { type FileHandle, lstat, open, readdir } from "node:fs/promises";
import { join } from "node:path";
import { errnoOf } from "../errors.ts";
import type { SessionFiles } from "../harness/port.ts";
import { diskLocalFiles } from "./disk-local-files.ts";
import type { Restored, Staging } from "./restore-session.ts";
import { isSessionId, patternOf } from "./session-paths.ts";
import type { StoredFile } from "./thread-state.ts";

export interface OlderStore {
  /** Its folder on the volume. */
  readonly store: string;
  /** The id that the caller knows; without one, that of the transcript that was written last. */
  readonly session?: string;
}

export interface OlderOrder extends OlderStore {
  readonly threadId: string;
  readonly harness: string;
  readonly sessionFiles: SessionFiles;
}

const PIECE_BYTES = 8 << 20;
/** Stands for the folder that is not known any more: a session is found by its id. */
const SOME_FOLDER = "older-layout";

export async function restoreOlder(order: OlderOrder, staging: Staging): Promise<Restored | undefined> {
  const { store, threadId } = order;
  // The exact name, by the listing: a volume may find "A" under "a", or follow "..".
  if (threadId.includes("/") || !(await namesIn(store)).includes(threadId)) return undefined;
  const opened = await openFolder(join(store, threadId));
  if (!opened) return undefined;
  try {
    // Whatever its name means by now. With a name behind it: by itself it is a link, and taken for one.
    return await restoreFrom(`/proc/self/fd/${opened.fd}/.`, order, staging);
  } finally {
    await opened.close();
  }
}

async function restoreFrom(folder: string, order: OlderOrder, staging: Staging): Promise<Restored | undefined> {
  const { harness, sessionFiles } = order;
  for (const files of [sessionFiles, flat(sessionFiles)]) {
    const session = order.session ?? (await newestSession(folder, files));
    if (session === undefined || !isSessionId(session)) continue;
    const local = diskLocalFiles(folder, files);
    const { files: found, unreadable } = await local.find(session);
    if (found.length === 0) continue;
    const placed: StoredFile[] = [];
    const leftOut = [...unreadable];
    let bytes = 0;
    for (const file of found) {
      const number = placed.length;
      try {
        await staging.truncate(number, 0);
        await staging.append(number, new Uint8Array());
        for (let at = 0; at < file.bytes; at += PIECE_BYTES) {
          await staging.append(number, await local.read(file.path, at, Math.min(at + PIECE_BYTES, file.bytes)));
        }
      } catch (error) {
        if (number === 0) throw error;
        await staging.remove(number);
        leftOut.push(file.path);
        continue;
      }
      const path = files === sessionFiles ? file.path : join(...pathFor(sessionFiles), file.path);
      placed.push({ path, inode: 0, changedAt: 0, segments: [], tailHash: "" });
      bytes += file.bytes;
    }
    return { session, harness, line: [], files: placed, saves: {}, bytes, leftOut };
  }
  return undefined;
}

/** The patterns without the folders before the id. */
function flat({ main, side }: SessionFiles): SessionFiles {
  return { main: main.split("/").at(-1) ?? main, side: side.split("/").at(-1) ?? side };
}

/** The folders before the id, in this layout. */
function pathFor({ main }: SessionFiles): string[] {
  const folders = main.split("/").slice(0, -1);
  return folders.length > 0 ? folders.map((part) => (part === "*" ? SOME_FOLDER : part)) : ["."];
}

async function newestSession(folder: string, { main }: SessionFiles): Promise<string | undefined> {
  const pattern = patternOf(main, "<id>");
  const [before = "", after = ""] = (pattern.at(-1) ?? "").split("<id>");
  let folders = [folder];
  for (const part of pattern.slice(0, -1)) {
    const next: string[] = [];
    for (const path of folders) {
      for (const name of part === "*" ? await namesIn(path) : [part]) next.push(join(path, name));
    }
    folders = next;
  }
  let newest: { id: string; at: number } | undefined;
  for (const path of folders) {
    for (const name of await namesIn(path)) {
      if (!name.startsWith(before) || !name.endsWith(after)) continue;
      const id = name.slice(before.length, name.length - after.length);
      const facts = await lstat(join(path, name));
      if (!isSessionId(id) || !facts.isFile() || facts.size === 0) continue;
      if (!newest || facts.mtimeMs > newest.at) newest = { id, at: facts.mtimeMs };
    }
  }
  return newest?.id;
}

/** Undefined: there is no folder. A link would lead out of the store. */
async function openFolder(path: string): Promise<FileHandle | undefined> {
  try {
    return await open(path, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  } catch (error) {
    if (["ENOENT", "ENOTDIR", "ELOOP"].includes(errnoOf(error) ?? "")) return undefined;
    throw error;
  }
}

async function namesIn(path: string): Promise<string[]> {
  const folder = await openFolder(path);
  await folder?.close();
  return folder ? await readdir(path) : [];
}
