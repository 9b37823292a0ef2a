/** Ended runs are kept for readers who come late: for a time, and within a budget of disk. The oldest go first. */
import { rm } from "node:fs/promises";
import type { Clock } from "../clock/port.ts";
import { messageOf } from "../errors.ts";
import type { Log } from "../log/port.ts";
import type { EndedRuns } from "./ended-runs.ts";
import type { RunRegistry } from "./registry.ts";
import type { Attempt } from "./run.ts";
import { logPath } from "./run-record.ts";

export interface RetentionOptions {
  readonly registry: RunRegistry;
  readonly endedRuns: EndedRuns;
  readonly clock: Clock;
  readonly log: Log;
  readonly retentionMs: number;
  readonly maxBytes: number;
}

/** Drops what is over. A run that somebody reads stays until they are done. */
export async function dropEndedRuns(options: RetentionOptions): Promise<void> {
  const { registry, clock, retentionMs, maxBytes } = options;
  const ended = registry
    .attempts()
    .filter((attempt) => attempt.endedAt !== undefined)
    .sort((a, b) => (b.endedAt ?? 0) - (a.endedAt ?? 0));
  let bytes = 0;
  for (const attempt of ended) {
    bytes += attempt.log.storedBytes;
    const isOver = clock.now() - (attempt.endedAt ?? 0) >= retentionMs || bytes > maxBytes;
    if (isOver && attempt.readers.size === 0) await dropRun(attempt, options);
  }
}

async function dropRun(attempt: Attempt, { registry, endedRuns, log }: RetentionOptions): Promise<void> {
  const { run } = attempt;
  try {
    const summary = attempt.summary();
    // In one step: a run that is in neither list would be started a second time.
    registry.drop(run);
    const stored = endedRuns.add(summary);
    stored.catch(() => {}); // Looked at below, when the log is closed.
    await attempt.log.close();
    try {
      await stored;
    } catch {
      // On a full disk the log makes the room for what stays of it; whatever else it was is told by the second time.
      await rm(logPath(run.folder, attempt.number), { force: true });
      await endedRuns.add(summary);
    }
    await rm(run.folder, { recursive: true, force: true });
    log.debug("run dropped", { run: run.id });
  } catch (error) {
    log.error("run not dropped cleanly", { run: run.id, reason: messageOf(error) });
  }
}

/** The log of an attempt that a newer one replaced, once its last reader is gone. */
export async function dropOldAttempt(attempt: Attempt, log: Log): Promise<void> {
  const newest = attempt.run.attempt;
  if (!newest || newest === attempt || attempt.state !== "ended" || attempt.readers.size > 0) return;
  try {
    // Until the newer one is recorded, this one is what a restart would find: what was read of it has to be known then.
    await newest.log.placed;
  } catch {
    return; // Its disk failed: that is told where it is written to.
  }
  try {
    await attempt.log.close();
    await rm(logPath(attempt.run.folder, attempt.number), { force: true });
  } catch (error) {
    log.error("log of an old attempt not removed", { run: attempt.run.id, reason: messageOf(error) });
  }
}
