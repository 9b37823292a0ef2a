/**
 * Closes what an earlier daemon on this state folder left: every log gets an outcome and a last frame. One that has no
 * outcome gets `sandbox_gone`, or the ending in its record; one that has one gets a last frame that agrees with it; a
 * whole one is taken as it is.
 */
import { readdir, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import type { Clock } from "../clock/port.ts";
import { parseRecord } from "../disk.ts";
import { errnoOf, messageOf } from "../errors.ts";
import type { Frame, Outcome } from "../frames/frame.ts";
import { LARGE_BYTES, type LargeJson } from "../frames/large-lines.ts";
import { LineSplitter } from "../frames/split-lines.ts";
import type { Log } from "../log/port.ts";
import type { AttemptHooks } from "./run.ts";
import { Attempt, Run } from "./run.ts";
import { RunLog } from "./run-log.ts";
import { logPath, readRecord } from "./run-record.ts";

export interface RecoverOptions {
  readonly folder: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly hooks: AttemptHooks;
  readonly largeJson: LargeJson;
  readonly adopt: (attempt: Attempt) => void;
}

const SCAN_BYTES = 256 << 10;

/** Resolves with the number of runs that were cut off. A folder that cannot be read is logged and left alone. */
export async function recoverRuns(options: RecoverOptions): Promise<number> {
  let cutOff = 0;
  for (const name of await readdir(options.folder)) {
    try {
      if (await recoverRun(join(options.folder, name), options)) cutOff++;
    } catch (error) {
      options.log.error("run not recovered", { folder: name, reason: messageOf(error) });
    }
  }
  return cutOff;
}

/** True when the run had no outcome. */
async function recoverRun(folder: string, { clock, log, hooks, largeJson, adopt }: RecoverOptions): Promise<boolean> {
  const record = await readRecord(folder);
  if (!record) {
    // Nothing was started before its record was there.
    await rm(folder, { recursive: true, force: true });
    return false;
  }
  await removeOlderLogs(folder, record.attempt);
  const path = logPath(folder, record.attempt);
  const onFailure = (error: unknown): void => {
    log.error("run log not stored", { run: record.runId, reason: messageOf(error) });
  };
  const modified = await stat(path).then(
    (found) => found.mtimeMs,
    () => clock.now(),
  );
  const runLog = await openLog(path, onFailure);
  const run = new Run(record.runId, record.threadId, folder);
  const attempt = new Attempt(run, record.attempt, runLog, clock, hooks, record.startedAt);
  const { lastSeq, outcome, settled } = await readEnd(runLog);
  attempt.restore(lastSeq, outcome, settled, modified);
  adopt(attempt);
  const { ending } = record;
  if (!settled && ending) {
    // The disk took no more of its log, and what was told is told again. Frames between are lost, as the seqs show.
    await replayParts(attempt, largeJson);
    attempt.lastSeq = Math.max(lastSeq, ending.lastSeq - 2);
    attempt.conclude(ending.outcome);
    await attempt.end(ending.settled);
    return false;
  }
  if (settled) {
    await runLog.finish();
    return false;
  }
  if (!outcome) {
    await replayParts(attempt, largeJson);
    attempt.stop({ code: "sandbox_gone", message: "the daemon was restarted in mid-turn", reason: "restarted" });
  }
  log.warn("run closed after a restart", { run: run.id, attempt: attempt.number, hadOutcome: outcome !== undefined });
  await attempt.end({ saved: false, reason: "restarted" });
  return outcome === undefined;
}

async function openLog(path: string, onFailure: (error: unknown) => void): Promise<RunLog> {
  try {
    return await RunLog.recover(path, onFailure);
  } catch (error) {
    if (errnoOf(error) !== "ENOENT") throw error;
    // Recorded, and killed before its first frame.
    return RunLog.create(path, Promise.resolve(), onFailure);
  }
}

type LastFrames = Pick<Frame, "outcome" | "settled"> & { lastSeq: number };

/** The outcome is in the frame before the last one, or in the last one of a run that was cut off while it settled. */
async function readEnd(log: RunLog): Promise<LastFrames> {
  const last = parseRecord((await log.lastLine())?.toString("utf8")) as Frame | undefined;
  if (!last) return { lastSeq: 0 };
  const { seq } = last;
  if (last.outcome) return { lastSeq: seq, outcome: last.outcome };
  if (!last.done || !last.settled) return { lastSeq: seq };
  const before = await log.readAll(await log.offsetAfter(seq - 2), (await log.offsetAfter(seq - 1)) - 1);
  const { outcome } = (parseRecord(before.toString("utf8")) ?? {}) as Partial<Frame>;
  // A crash of the machine may have eaten the outcome; the last frame tells how it ended.
  const told: Outcome = last.error ? { type: "failed", error: last.error } : { type: "finished" };
  return { lastSeq: seq, settled: last.settled, outcome: outcome ?? told };
}

/** What was open when the log was cut, so that the end of the message closes it. */
async function replayParts(attempt: Attempt, largeJson: LargeJson): Promise<void> {
  const { log, parts } = attempt;
  const splitter = new LineSplitter(Number.MAX_SAFE_INTEGER, LARGE_BYTES);
  for (let at = 0; at < log.end; ) {
    const block = await log.read(at, SCAN_BYTES);
    at += block.length;
    for (const piece of splitter.push(block)) {
      if (piece.type === "large") {
        const open = parts.state;
        const frame = await largeJson.readLine(piece.bytes, { open });
        if (frame) parts.noteChange(open, frame.open);
      }
      if (piece.type !== "lines") continue;
      for (const line of piece.lines) {
        const { chunks } = (parseRecord(line) ?? {}) as Partial<Frame>;
        for (const chunk of chunks ?? []) parts.note(chunk);
      }
    }
  }
}

async function removeOlderLogs(folder: string, newest: number): Promise<void> {
  for (const name of await readdir(folder)) {
    const number = /^(\d+)\.ndjson$/.exec(name)?.[1];
    if (number !== undefined && Number(number) !== newest) await rm(join(folder, name), { force: true });
  }
}
