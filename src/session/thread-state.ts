/**
 * What this pod knows of a thread's saves: which save the local files equal, what is stored of each file, which saves
 * are its own. Written before and after each file that a flight writes, so that a flight that is cut off takes no name
 * twice and is not begun anew. On the pod's own disk, in the daemon's half of the state folder.
 */

import { compareSaves, formatSaveName, type RunKey, runKeyOf, type SaveName } from "./save-name.ts";
import type { SuspensionUse } from "./suspension-uses.ts";

export interface ThreadState {
  readonly session?: { readonly id: string; readonly harness: string };
  /** The run that may save. */
  readonly run?: SavingRun;
  /** The save that the local files equal, or went on from. */
  readonly last?: LastSave;
  /** The runs that the local files descend from, the newest first. */
  readonly line: readonly RunKey[];
  readonly files: readonly StoredFile[];
  /** Lengths of the saves that `files` refer to. */
  readonly saves: Readonly<Record<string, number>>;
  /** Saves of this pod, the oldest first. */
  readonly own: readonly OwnSave[];
  /** The newest unmarked save that this pod read back from the volume. */
  readonly proof?: OwnSave;
  /** Used suspensions in the head of `last`. */
  readonly used?: readonly SuspensionUse[];
}

export interface SavingRun {
  readonly fence: number;
  readonly turn: number;
  readonly id: string;
  /** Of its next save. */
  readonly number: number;
  readonly marked: boolean;
  /** It began without a listing of the store: the first one gives it its place. */
  readonly unlisted?: { readonly fenced: boolean };
  /** What its marked saves name as the last unmarked one that they descend from. */
  readonly parent?: SaveName;
  /** Names that were no whole saves when it began, or turned out to be nobody's since: none of them passes it. */
  readonly passedOver?: readonly SaveName[];
  /** A later run's save was seen: this one saves no more. */
  readonly passedBy?: SaveName;
}

export interface LastSave {
  readonly name: SaveName;
  /** Of a marked save. */
  readonly parent?: SaveName;
}

export interface OwnSave {
  readonly name: SaveName;
  readonly refs: readonly SaveName[];
}

export interface StoredFile {
  readonly path: string;
  /** Of the local file; 0 while it is not in its place yet. */
  readonly inode: number;
  /** Of the local file when it was looked at for the save. */
  readonly changedAt: number;
  readonly segments: readonly Segment[];
  /** The hash of the last bytes that are stored, `TAIL_BYTES` of them or all. */
  readonly tailHash: string;
}

export interface Segment {
  readonly save: SaveName;
  /** Where the frame begins, counted back from the end of its file, and its length. */
  readonly at: number;
  readonly length: number;
  readonly size: number;
  readonly hash: string;
}

export const TAIL_BYTES = 4096;

export const NO_STATE: ThreadState = { line: [], files: [], saves: {}, own: [] };

/** Where a state is kept. */
export interface StateFile {
  /** Undefined when there is none that can be read. */
  read(): Promise<ThreadState | undefined>;
  write(state: ThreadState): Promise<void>;
}

/** The name of the run's next save. */
export function nextName(run: SavingRun): SaveName {
  return formatSaveName({ ...run, run: run.id });
}

export function keyOfRun(run: SavingRun): RunKey {
  return runKeyOf(formatSaveName({ ...run, run: run.id, number: 0 }));
}

export function sizeOf(segments: readonly Segment[]): number {
  return segments.reduce((sum, { size }) => sum + size, 0);
}

/** The saves that files refer to, each once. */
export function refsOf(files: readonly StoredFile[]): SaveName[] {
  return [...new Set(files.flatMap(({ segments }) => segments.map(({ save }) => save)))].sort(compareSaves);
}
