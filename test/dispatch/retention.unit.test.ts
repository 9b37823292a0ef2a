import { expect, test } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "../../src/clock/system.ts";
import { EndedRuns } from "../../src/dispatch/ended-runs.ts";
import type { DispatchBody } from "../../src/dispatch/input.ts";
import { RunRegistry } from "../../src/dispatch/registry.ts";
import { dropEndedRuns, dropOldAttempt } from "../../src/dispatch/retention.ts";
import { Attempt, Run } from "../../src/dispatch/run.ts";
import { RunLog } from "../../src/dispatch/run-log.ts";
import { logPath } from "../../src/dispatch/run-record.ts";
import { Tombstones } from "../../src/dispatch/tombstones.ts";
import { createJsonLog } from "../../src/log/json-log.ts";
import { Redactor } from "../../src/log/redact.ts";

const log = createJsonLog({ clock: systemClock, redactor: new Redactor(), level: "error", write: () => {} });
const hooks = { onOutcome: () => {}, onReader: () => {} };

test("a run that is being dropped is known at every moment: its id never starts again", async () => {
  const folder = await mkdtemp(join(tmpdir(), "dispatchd-drop-"));
  try {
    const endedRuns = new EndedRuns(join(folder, "ended.ndjson"), systemClock);
    const registry = new RunRegistry({
      maxRuns: 4,
      tombstones: new Tombstones(folder, systemClock),
      endedRuns,
      draining: () => false,
      retryAfterS: 1,
      ownerIsThere: () => false,
      folderOf: (runId) => join(folder, runId),
      createAttempt: () => {
        throw new Error("the run was started again");
      },
    });
    const run = new Run("r", "t", join(folder, "r"));
    const runLog = RunLog.create(join(folder, "1.ndjson"), Promise.resolve(), () => {});
    const closing = Promise.withResolvers<void>();
    const close = runLog.close.bind(runLog);
    runLog.close = async () => {
      await closing.promise;
      await close();
    };
    const attempt = new Attempt(run, 1, runLog, systemClock, hooks);
    registry.adopt(attempt);
    attempt.conclude({ type: "finished" });
    await attempt.end({ saved: false });

    const dropped = dropEndedRuns({ registry, endedRuns, clock: systemClock, log, retentionMs: 0, maxBytes: 1 });
    const body = { runId: "r", input: { threadId: "t", userMessage: "again" } } as DispatchBody;
    expect(() => registry.claim(body)).toThrow("ended");
    closing.resolve();
    await dropped;
    expect(() => registry.claim(body)).toThrow("ended");
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

test("an attempt's log stays until the one that replaced it is recorded", async () => {
  const folder = await mkdtemp(join(tmpdir(), "dispatchd-drop-"));
  try {
    const run = new Run("r", "t", folder);
    const path = logPath(folder, 1);
    const older = new Attempt(
      run,
      1,
      RunLog.create(path, Promise.resolve(), () => {}),
      systemClock,
      hooks,
    );
    older.conclude({ type: "finished" });
    await older.end({ saved: false });
    for (const fails of [true, false]) {
      const record = Promise.withResolvers<void>();
      run.attempt = new Attempt(
        run,
        2,
        RunLog.create(logPath(folder, 2), record.promise, () => {}),
        systemClock,
        hooks,
      );
      const dropped = dropOldAttempt(older, log);
      await older.log.close();
      expect(await Bun.file(path).exists()).toBe(true);
      // In this order: a record that failed keeps the log, one that is there lets it go.
      if (fails) record.reject(new Error("the disk is full"));
      else record.resolve();
      await dropped;
      expect(await Bun.file(path).exists()).toBe(fails);
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
