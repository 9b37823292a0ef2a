/**
 * A session's files below a harness's configuration folder. The agent may have put anything there, and the daemon may be
 * another user: links are not followed, FIFOs not waited for, and what was opened is a file below that folder.
 */
import { constants } from "node:fs";
import { lstat, open, readdir, readlink, realpath } from "node:fs/promises";
import { join } from "node:path";
import { errnoOf } from "../errors.ts";
import type { SessionFiles } from "../harness/port.ts";
import type { LocalFile, LocalFiles } from "./local-files.ts";
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
      if (!isSessionId(sessionId)) return [];
      const mains: Found[] = [];
      for (const path of await expand(configDir, patternOf(files.main, sessionId))) {
        const file = await regularFile(configDir, path);
        if (file && file.bytes > 0) mains.push(file);
      }
      // Two folders may hold the same id: the one that was written last is the conversation.
      const [main] = mains.sort((a, b) => b.modifiedAt - a.modifiedAt);
      if (!main) return [];
      const side: Found[] = [];
      for (const path of await expand(configDir, patternOf(files.side, sessionId))) {
        await collect(configDir, path, side, MAX_DEPTH);
      }
      const known = side.filter(({ path }) => kindOfPath(path, files, sessionId) === "side");
      known.sort((a, b) => (a.path < b.path ? -1 : 1));
      return [main, ...known].map(({ path, bytes, inode, changedAt }) => ({ path, bytes, inode, changedAt }));
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

async function collect(root: string, folder: string, into: Found[], depth: number): Promise<void> {
  if (depth === 0 || !(await isFolder(join(root, folder)))) return;
  for (const entry of await entriesOf(join(root, folder))) {
    if (into.length >= MAX_SIDE_FILES) return;
    const path = join(folder, entry.name);
    if (entry.isDirectory()) await collect(root, path, into, depth - 1);
    const file = entry.isFile() ? await regularFile(root, path) : undefined;
    if (file) into.push(file);
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

async function ifThere<T>(look: () => Promise<T>): Promise<T | undefined> {
  try {
    return await look();
  } catch (error) {
    const code = errnoOf(error);
    if (code === "ENOENT" || code === "ENOTDIR") return undefined;
    throw error;
  }
}
