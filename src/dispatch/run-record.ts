/**
 * A run on the pod's disk: a folder with `record.json` and a log per attempt. The record is there before the harness
 * starts: a restart that does not find it may start the run, because nothing of it was carried out.
 */
import { mkdir, open } from "node:fs/promises";
import { join } from "node:path";
import { fileNameOf, parseRecord, readIfThere, writeWhole } from "../disk.ts";
import type { Outcome, Settled } from "../frames/frame.ts";
import type { Attempt } from "./run.ts";

export interface RunRecord {
  readonly runId: string;
  readonly threadId: string;
  /** The newest attempt. */
  readonly attempt: number;
  /** Milliseconds since the epoch. */
  readonly startedAt: number;
  /** How it ended, when its log could not be stored to the end. */
  readonly ending?: RunEnding;
}

export interface RunEnding {
  readonly lastSeq: number;
  readonly outcome: Outcome;
  readonly settled: Settled;
}

/** Room that a record keeps for an ending: it is written when the disk is full. */
const ENDING_BYTES = 8192;

const RECORD = "record.json";

export function logPath(folder: string, attempt: number): string {
  return join(folder, `${attempt}.ndjson`);
}

/** The name of an attempt towards the process table. */
export function runNameOf(attempt: Attempt): string {
  return `${fileNameOf(attempt.run.id)}-${attempt.number}`;
}

export async function makeRunFolder(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
}

export async function writeRecord(attempt: Attempt): Promise<void> {
  const { run, number, startedAt } = attempt;
  const record: RunRecord = { runId: run.id, threadId: run.threadId, attempt: number, startedAt };
  await writeWhole(join(run.folder, RECORD), JSON.stringify(record) + " ".repeat(ENDING_BYTES));
}

/**
 * Writes the ending of an attempt over the room that its record keeps, for a log that the disk would not take: what was
 * told must be told again after a restart. Does nothing when the record is a newer attempt's, or there is none.
 */
export async function writeEnding(attempt: Attempt, ending: RunEnding): Promise<void> {
  const { run, number } = attempt;
  const record = await readRecord(run.folder);
  if (record?.attempt !== number) return;
  const bytes = Buffer.from(JSON.stringify({ ...record, ending }), "utf8");
  const file = await open(join(run.folder, RECORD), "r+");
  try {
    const { size } = await file.stat();
    if (bytes.length > size) throw new Error("the ending does not fit");
    // In one call, and up to the end: nothing of what was there may be left behind it.
    await file.write(Buffer.concat([bytes, Buffer.alloc(size - bytes.length, " ")]), 0, size, 0);
  } finally {
    await file.close();
  }
}

/** Undefined when the folder holds no run that was recorded. */
export async function readRecord(folder: string): Promise<RunRecord | undefined> {
  const record = parseRecord(await readIfThere(join(folder, RECORD))) ?? {};
  const { runId, threadId, attempt, startedAt, ending } = record;
  if (typeof runId !== "string" || typeof threadId !== "string") return undefined;
  if (typeof attempt !== "number" || typeof startedAt !== "number") return undefined;
  return { runId, threadId, attempt, startedAt, ...(ending ? { ending: ending as RunEnding } : {}) };
}
