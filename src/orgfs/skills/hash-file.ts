/**
 * The file of hashes beside a skill that a pod put on the volume: which files it has, whole. It is written last, so that
 * files which are late, cut short, or of two versions do not agree with it, and a reader keeps the copy that it has.
 *
 *     {"version":1,"ancestors":["…"],"files":{"SKILL.md":{"size":120,"sha256":"…"},"scripts/run.sh":{…}}}
 *
 * `ancestors` are the versions that it was made from, the newest first: a pod that finds another version in the place of
 * its own sees by them whether somebody went on with it or overwrote it unseen, as mounts with old listings do.
 *
 * Files that it does not name are taken as they are. Whoever edits such a skill by hand removes it. One that cannot be
 * read, or is of a later version, agrees with nothing.
 */

export const HASH_FILE = ".dispatchd-hashes.json";

export interface FileSum {
  readonly size: number;
  /** Hex. */
  readonly sha256: string;
}

/** By path below the skill's folder, with `/` between names. */
export type FileSums = Readonly<Record<string, FileSum>>;

export interface Hashes {
  readonly files: FileSums;
  /** As `versionOf` names them. */
  readonly ancestors: readonly string[];
}

const VERSION = 1;
const MAX_ANCESTORS = 32;

export function formatHashFile({ files, ancestors }: Hashes): Buffer {
  const sorted = Object.fromEntries(Object.entries(files).sort(([one], [other]) => (one < other ? -1 : 1)));
  const content = { version: VERSION, ancestors: ancestors.slice(0, MAX_ANCESTORS), files: sorted };
  return Buffer.from(`${JSON.stringify(content)}\n`);
}

/** Undefined: a text that agrees with nothing. */
export function parseHashFile(text: string): Hashes | undefined {
  try {
    const { version, files, ancestors = [] } = JSON.parse(text) as Record<string, unknown>;
    if (version !== VERSION || typeof files !== "object" || files === null) return undefined;
    if (!Array.isArray(ancestors) || !ancestors.every((one) => typeof one === "string")) return undefined;
    const sums = Object.entries(files) as [string, Partial<FileSum> | null][];
    const valid = sums.every(([, sum]) => typeof sum?.size === "number" && typeof sum.sha256 === "string");
    return valid ? { files: files as FileSums, ancestors } : undefined;
  } catch {
    return undefined;
  }
}

export function sumOf(bytes: Uint8Array): FileSum {
  return { size: bytes.length, sha256: new Bun.CryptoHasher("sha256").update(bytes).digest("hex") };
}

/** Names a skill's whole content: alike on every pod that has the same files. */
export function versionOf(files: FileSums): string {
  const lines = Object.entries(files).map(([path, { sha256 }]) => `${path}\0${sha256}\n`);
  return new Bun.CryptoHasher("sha256").update(lines.sort().join("")).digest("hex");
}
