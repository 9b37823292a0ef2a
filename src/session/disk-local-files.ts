/**
 * A session's files below a harness's configuration folder. The agent may have put anything there, and the daemon may be
 * another user: links are not followed, FIFOs not waited for, and what was opened is a file below that folder.
 */
import { constants } from "node:fs";
import { lstat, open, readdir, readlink, realpath } from "node:fs/promises";
import { join } from "node:path";
import { errnoOf } from "../errors.ts";
import type { SessionFiles } from "../harness/port.ts";
import { ifReadable, type LocalFile, type LocalFiles } from "./local-files.ts";
import { isSessionId, kindOfPath, MAX_SIDE_FILES, patternOf } from "./session-paths.ts";

const READ = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
/** What lies deeper is no work of a turn. */
const MAX_DEPTH = 8;

interface Found extends LocalFile {
  readonly modifiedAt: number;
}

export function diskLocalFiles(configDir: string, files: SessionFiles): LocalFiles {
  return {
    async find(sessionId) {
      if (!isSessionId(sessionId)) return { files: [], unreadable: [] };
      const mains: Found[] = [];
      for (const path of await expand(configDir, patternOf(files.main, sessionId))) {
        const file = await ifOpen(() => regularFile(configDir, path));
        if (file && file.bytes > 0) mains.push(file);
      }
      // Two folders may hold the same id: the one that was written last is the conversation.
      const [main] = mains.sort((a, b) => b.modifiedAt - a.modifiedAt);
      if (!main) return { files: [], unreadable: [] };
      const beside: Beside = { files: [], unreadable: [] };
      for (const path of await expand(configDir, patternOf(files.side, sessionId))) {
        if (await ifOpen(() => isFolder(join(configDir, path)))) await collect(configDir, path, beside, MAX_DEPTH);
      }
      const known = beside.files.filter(({ path }) => kindOfPath(path, files, sessionId) === "side");
      known.sort((a, b) => (a.path < b.path ? -1 : 1));
      const all = [main, ...known].map(({ path, bytes, inode, changedAt }) => ({ path, bytes, inode, changedAt }));
      return { files: all, unreadable: beside.unreadable };
    },
    async read(path, from, to) {
      const bytes = Buffer.allocUnsafe(to - from);
      if (bytes.length === 0) return bytes;
      const file = await open(join(configDir, path), READ);
      try {
        const real = await readlink(`/proc/self/fd/${file.fd}`);
        if (real !== join(await realpath(configDir), path) || !(await file.stat()).isFile()) {
          throw Object.assign(new Error("not a file of the session"), { code: "ELOOP" });
        }
        for (let done = 0; done < bytes.length; ) {
          const { bytesRead } = await file.read(bytes, done, bytes.length - done, from + done);
          if (bytesRead === 0) throw Object.assign(new Error("the file has become shorter"), { code: "ESTALE" });
          done += bytesRead;
        }
        return bytes;
      } finally {
        await file.close();
      }
    },
  };
}

/** Paths below `root` that the pattern may stand for. */
async function expand(root: string, pattern: readonly string[]): Promise<string[]> {
  let paths = [""];
  for (const part of pattern) {
    const next: string[] = [];
    for (const path of paths) {
      if (part !== "*") next.push(join(path, part));
      else
        for (const entry of await entriesOf(join(root, path)))
          if (entry.isDirectory()) next.push(join(path, entry.name));
    }
    paths = next;
  }
  return paths;
}

/** What lies beside a transcript. */
interface Beside {
  readonly files: Found[];
  readonly unreadable: string[];
}

async function collect(root: string, folder: string, into: Beside, depth: number): Promise<void> {
  if (depth === 0) return;
  // Read by name alone, it would be that of a link.
  const look = async () => ((await isFolder(join(root, folder))) ? await entriesOf(join(root, folder)) : []);
  const entries = await ifReadable(look);
  if (!entries) into.unreadable.push(folder);
  for (const entry of entries ?? []) {
    if (into.files.length + into.unreadable.length >= MAX_SIDE_FILES) return;
    const path = join(folder, entry.name);
    if (entry.isDirectory()) await collect(root, path, into, depth - 1);
    if (!entry.isFile()) continue;
    const found = await ifReadable(async () => ({ file: await regularFile(root, path) }));
    if (!found) into.unreadable.push(path);
    else if (found.file) into.files.push(found.file);
  }
}

async function regularFile(root: string, path: string): Promise<Found | undefined> {
  const facts = await ifThere(() => lstat(join(root, path)));
  if (!facts?.isFile()) return undefined;
  const { size: bytes, ino: inode, ctimeMs: changedAt, mtimeMs: modifiedAt } = facts;
  return { path, bytes, inode, changedAt, modifiedAt };
}

async function isFolder(path: string): Promise<boolean> {
  return (await ifThere(() => lstat(path)))?.isDirectory() === true;
}

async function entriesOf(path: string) {
  return (await ifThere(() => readdir(path, { withFileTypes: true }))) ?? [];
}

/** Of the folders that a session may be in, one that is closed to us has none that we could go on with. */
async function ifOpen<T>(look: () => Promise<T>): Promise<T | undefined> {
  try {
    return await look();
  } catch (error) {
    if (errnoOf(error) === "EACCES") return undefined;
    throw error;
  }
}

async function ifThere<T>(look: () => Promise<T>): Promise<T | undefined> {
  try {
    return await look();
  } catch (error) {
    const code = errnoOf(error);
    if (code === "ENOENT" || code === "ENOTDIR") return undefined;
    throw error;
  }
}
