/**
 * Reads folders that the agent can write while they are read, by a process that may have more rights than it. No link is
 * followed, in the last name or on the way: every folder is entered through its descriptor. Only regular files with one
 * name count, and none is waited for (a FIFO would hang).
 */
import { closeSync, constants, fstatSync, lstatSync, openSync, readdirSync, readSync, type Stats } from "node:fs";
import { errnoOf } from "../../errors.ts";
import { type FileSums, HASH_FILE, sumOf } from "./hash-file.ts";
import { IGNORED_NAMES, MAX_SKILL_BYTES, MAX_SKILL_DEPTH, MAX_SKILL_FILES, SKILL_FILE } from "./limits.ts";

const { O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;

/** A folder that is held open, so that it is this one whatever its name means by now. */
export interface OpenFolder {
  readonly names: readonly string[];
  /** Undefined: no folder of this name, or a link. */
  enter<T>(name: string, visit: (folder: OpenFolder) => T): T | undefined;
  look(name: string): Stats | undefined;
  /** Undefined: not a regular file with one name, or larger than `maxBytes`. */
  read(name: string, maxBytes: number): Buffer | undefined;
}

export interface PodSkill {
  readonly bytes: number;
  /** Alike as long as no file of it was touched. */
  readonly signature: string;
  /** When a file of it changed last; milliseconds since the epoch. */
  readonly changedMs: number;
  /** Why it cannot be read as a whole. */
  readonly trouble?: string;
}

/** Undefined: no folder at this path, or a link. */
export function enterFolder<T>(path: string, visit: (folder: OpenFolder) => T): T | undefined {
  const fd = openIf(path, O_DIRECTORY | O_NOFOLLOW);
  if (fd === undefined) return undefined;
  try {
    return visit(folderOf(fd));
  } finally {
    closeSync(fd);
  }
}

function folderOf(fd: number): OpenFolder {
  const at = (name: string): string => `/proc/self/fd/${fd}/${name}`;
  return {
    names: readdirSync(`/proc/self/fd/${fd}`).sort(),
    enter: (name, visit) => enterFolder(at(name), visit),
    look: (name) => lstatSync(at(name), { throwIfNoEntry: false }),
    read: (name, maxBytes) => readRegular(at(name), maxBytes),
  };
}

/** Undefined: the folder holds no skill. */
export function lookAtSkill(folder: OpenFolder): PodSkill | undefined {
  const main = folder.look(SKILL_FILE);
  // An empty one is about to be written, or was cut.
  if (!main?.isFile() || main.size === 0) return undefined;
  const lines: string[] = [];
  let bytes = 0;
  let changedMs = 0;
  let trouble: string | undefined;
  walk(folder, (_folder, _name, path, found) => {
    bytes += found.size;
    changedMs = Math.max(changedMs, found.mtimeMs, found.ctimeMs);
    lines.push(`${path}\0${found.size}\0${found.mtimeMs}\0${found.ctimeMs}\0${found.ino}\n`);
    if (found.nlink !== 1) trouble = `${path} has more than one name`;
    if (lines.length > MAX_SKILL_FILES || bytes > MAX_SKILL_BYTES) trouble = "it is too large";
    return trouble === undefined;
  });
  const signature = new Bun.CryptoHasher("sha256").update(lines.join("")).digest("hex");
  return { bytes, signature, changedMs, ...(trouble === undefined ? {} : { trouble }) };
}

/** The content of a skill, file by file. Undefined: it changed so that it cannot be read any more. */
export function readPodSkill(folder: OpenFolder, take?: (path: string, bytes: Buffer) => void): FileSums | undefined {
  // A file may be called `__proto__`.
  const sums = new Map<string, FileSums[string]>();
  let rest = MAX_SKILL_BYTES;
  const whole = walk(folder, (inFolder, name, path) => {
    const bytes = inFolder.read(name, rest);
    if (!bytes) return false;
    rest -= bytes.length;
    sums.set(path, sumOf(bytes));
    take?.(path, bytes);
    return true;
  });
  return whole && sums.has(SKILL_FILE) ? Object.fromEntries(sums) : undefined;
}

type VisitFile = (folder: OpenFolder, name: string, path: string, found: Stats) => boolean;

/** Visits the regular files below; false as soon as a visit says so. */
function walk(folder: OpenFolder, visit: VisitFile, below = "", depth = 0): boolean {
  for (const name of folder.names) {
    if (IGNORED_NAMES.has(name) || name === HASH_FILE) continue;
    const path = below === "" ? name : `${below}/${name}`;
    const found = folder.look(name);
    if (found?.isFile() && !visit(folder, name, path, found)) return false;
    if (!found?.isDirectory() || depth >= MAX_SKILL_DEPTH) continue;
    if (folder.enter(name, (inner) => walk(inner, visit, path, depth + 1)) === false) return false;
  }
  return true;
}

function readRegular(path: string, maxBytes: number): Buffer | undefined {
  const fd = openIf(path, O_NOFOLLOW | O_NONBLOCK);
  if (fd === undefined) return undefined;
  try {
    const found = fstatSync(fd);
    if (!found.isFile() || found.nlink !== 1 || found.size > maxBytes) return undefined;
    const bytes = Buffer.alloc(found.size);
    let done = 0;
    while (done < bytes.length) {
      const got = readSync(fd, bytes, done, bytes.length - done, done);
      if (got === 0) break;
      done += got;
    }
    return bytes.subarray(0, done);
  } finally {
    closeSync(fd);
  }
}

function openIf(path: string, flags: number): number | undefined {
  try {
    return openSync(path, O_RDONLY | flags);
  } catch (error) {
    // Gone, a link, no folder, a socket, or closed to us: nothing that could be read.
    if (["ENOENT", "ELOOP", "ENOTDIR", "ENXIO", "EACCES", "EMLINK"].includes(errnoOf(error) ?? "")) return undefined;
    throw error;
  }
}
