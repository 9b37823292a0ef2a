/** Small files of a worker, one a skill. One that cannot be read is none: what it said is found out again. */
import { readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileNameOf, parseRecord } from "../../disk.ts";
import { randomHex } from "../../random-hex.ts";
import type { FileSums } from "./hash-file.ts";
import type { VolumeFile } from "./volume-files.ts";

export interface Records<T> {
  read(name: string): T | undefined;
  write(name: string, record: T): void;
  remove(name: string): void;
  names(): readonly string[];
}

/** What the pod and the volume agreed on last, of one skill of the home volume. */
export interface SkillRecord {
  readonly name: string;
  /** The version of both; null: they never agreed. */
  readonly base: string | null;
  /** The files of that version. */
  readonly files: FileSums;
  /** The versions that it was made from. */
  readonly ancestors?: readonly string[];
  /** This pod wrote it to the volume. */
  readonly mine?: true;
  /** The volume's listing then; empty: to be read again whatever it says. */
  readonly remote: string;
  /** A listing whose files cannot be believed, and why: not read again before it changes. */
  readonly refused?: { readonly remote: string; readonly reason: string; readonly sinceMs: number };
  /** The pod's files then, so that they need not be read to see that they are the same. */
  readonly local?: string;
  /** Set while this pod is the only one known to have it: the volume took it, which is not yet to keep it. */
  readonly returnedAtMs?: number;
  /** A version on its way to the volume, and what lay there before: by these a flight that was lost is gone on with. */
  readonly writing?: {
    readonly files: FileSums;
    /** The texts of the file of hashes, the one before the others and the last. */
    readonly hashes: readonly string[];
    readonly before: Readonly<Record<string, VolumeFile>>;
  };
}

/** A skill whose reading took too long. */
export interface Suspicion {
  readonly name: string;
  readonly times: number;
  readonly sinceMs: number;
}

/** Which copy of a set is handed over. */
export interface SetRecord {
  readonly name: string;
  /** The plugin's folder. */
  readonly dir: string;
  /** Signature of each skill in it, as it was listed; empty: an earlier copy, to be read again. */
  readonly skills: Readonly<Record<string, string>>;
}

export function recordsIn<T extends { readonly name: string }>(folder: string): Records<T> {
  const pathOf = (name: string): string => join(folder, `${fileNameOf(name)}.json`);
  const readAt = (path: string): T | undefined => {
    try {
      return parseRecord(readFileSync(path, "utf8")) as T | undefined;
    } catch {
      // None, or one that cannot be read.
      return undefined;
    }
  };
  return {
    read: (name) => {
      const record = readAt(pathOf(name));
      return record?.name === name ? record : undefined;
    },
    write(name, record) {
      const temporary = `${pathOf(name)}.${randomHex(6)}.tmp`;
      writeFileSync(temporary, JSON.stringify(record), { mode: 0o600 });
      renameSync(temporary, pathOf(name));
    },
    remove: (name) => rmSync(pathOf(name), { force: true }),
    names: () =>
      readdirSync(folder)
        .filter((file) => file.endsWith(".json"))
        .flatMap((file) => readAt(join(folder, file))?.name ?? []),
  };
}
