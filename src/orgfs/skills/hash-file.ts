/**
 * The file of hashes beside a skill that a pod put on the volume: which files it has, whole. It is written last, so that
 * files which are late, cut short, or of two versions do not agree with it, and a reader keeps the copy that it has.
 *
 *     {"version":1,"files":{"SKILL.md":{"size":120,"sha256":"…"},"scripts/run.sh":{…}}}
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

const VERSION = 1;

export function formatHashFile(files: FileSums): Buffer {
  const sorted = Object.fromEntries(Object.entries(files).sort(([one], [other]) => (one < other ? -1 : 1)));
  return Buffer.from(`${JSON.stringify({ version: VERSION, files: sorted })}\n`);
}

/** Undefined: a text that agrees with nothing. */
export function parseHashFile(text: string): FileSums | undefined {
  try {
    const { version, files } = JSON.parse(text) as { version?: unknown; files?: unknown };
    if (version !== VERSION || typeof files !== "object" || files === null) return undefined;
    const sums = Object.entries(files) as [string, Partial<FileSum> | null][];
    const valid = sums.every(([, sum]) => typeof sum?.size === "number" && typeof sum.sha256 === "string");
    return valid ? (files as FileSums) : undefined;
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
