/** The head of a save: whose session it is, where it comes from, and of which pieces its files are made. */
import { isSaveName, type RunKey, type SaveName } from "./save-name.ts";
import { parseUses, type SuspensionUse } from "./suspension-uses.ts";

export interface SaveHead {
  readonly thread: string;
  readonly session: string;
  /** The program that the session belongs to. */
  readonly harness: string;
  /** True: frames for a later save of the same run, and no state of the session. */
  readonly part?: true;
  /** Of a marked save: the last unmarked one that it descends from, if there was one. */
  readonly parent?: SaveName;
  /** The runs that it descends from, its own first. */
  readonly line: readonly RunKey[];
  /** The saves that segments refer to, with the lengths of their files. */
  readonly saves: readonly (readonly [name: SaveName, bytes: number])[];
  /** The main transcript first. */
  readonly files: readonly HeadFile[];
  /** Suspensions of the thread that are used up; absent when there are none. */
  readonly used?: readonly SuspensionUse[];
}

export interface HeadFile {
  /** Below the harness's configuration folder. */
  readonly path: string;
  readonly segments: readonly HeadSegment[];
}

export interface HeadSegment {
  /** Index into `saves`; -1: this save. */
  readonly save: number;
  /** Where the frame begins, counted back from the end of its file, and its length. */
  readonly at: number;
  readonly length: number;
  /** Bytes of the text, and its SHA-256. */
  readonly size: number;
  readonly hash: string;
}

/** How many runs a save names as those it descends from. */
export const LINE_RUNS = 64;

/** A text says why it is none. Keys that are unknown are ignored: they are for later readers. */
export function parseHead(text: string): SaveHead | string {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return "its head is no JSON";
  }
  if (!isObject(value)) return "its head is no object";
  const { thread, session, harness, part, parent, line, saves, files, used: uses } = value;
  if (typeof thread !== "string" || typeof session !== "string" || typeof harness !== "string") {
    return "its head lacks thread, session or harness";
  }
  if (parent !== undefined && !isName(parent)) return "its head's parent is no save";
  if (!Array.isArray(line) || !line.every((run) => typeof run === "string" && isName(`${run}-000000-s`))) {
    return "its head's line is no list of runs";
  }
  if (!Array.isArray(saves) || !saves.every(isSaveEntry)) return "its head's saves are no list of saves";
  if (!Array.isArray(files) || !files.every((file) => isHeadFile(file, saves.length))) {
    return "its head's files are not described";
  }
  const used = parseUses(uses);
  return {
    thread,
    session,
    harness,
    ...(part === true ? { part } : {}),
    ...(parent ? { parent } : {}),
    line: line as RunKey[],
    saves,
    files,
    ...(used.length > 0 ? { used } : {}),
  };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isName(value: unknown): value is SaveName {
  return typeof value === "string" && isSaveName(value);
}

function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}

function isSaveEntry(value: unknown): value is readonly [SaveName, number] {
  return Array.isArray(value) && value.length === 2 && isName(value[0]) && isCount(value[1]);
}

function isHeadFile(value: unknown, saves: number): value is HeadFile {
  if (!isObject(value) || typeof value.path !== "string" || !Array.isArray(value.segments)) return false;
  return value.segments.every((segment) => {
    if (!isObject(segment)) return false;
    const { save, at, length, size, hash } = segment;
    if (!isCount(at) || !isCount(length) || !isCount(size)) return false;
    if (typeof save !== "number" || !Number.isInteger(save) || save < -1 || save >= saves) return false;
    return typeof hash === "string" && /^[0-9a-f]{64}$/.test(hash);
  });
}
