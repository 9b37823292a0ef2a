/**
 * A run on the pod's disk: a folder with `record.json` and a log per attempt. The record is there before the harness
 * starts: a restart that does not find it may start the run, because nothing of it was carried out.
 */
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { fileNameOf, parseRecord, readIfThere, writeWhole } from "../disk.ts";
import type { Attempt } from "./run.ts";

export interface RunRecord {
  readonly runId: string;
  readonly threadId: string;
  /** The newest attempt. */
  readonly attempt: number;
  /** Milliseconds since the epoch. */
  readonly startedAt: number;
}

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
  await writeWhole(join(run.folder, RECORD), JSON.stringify(record));
}

/** Undefined when the folder holds no run that was recorded. */
export async function readRecord(folder: string): Promise<RunRecord | undefined> {
  const { runId, threadId, attempt, startedAt } = parseRecord(await readIfThere(join(folder, RECORD))) ?? {};
  if (typeof runId !== "string" || typeof threadId !== "string") return undefined;
  if (typeof attempt !== "number" || typeof startedAt !== "number") return undefined;
  return { runId, threadId, attempt, startedAt };
}
