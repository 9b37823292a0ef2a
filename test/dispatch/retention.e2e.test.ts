/** Ended runs are kept for readers who come late, for a time and within a budget; of what is dropped the outcome stays. */
import { expect, test } from "bun:test";
import { appendFile, readdir } from "node:fs/promises";
import { join } from "node:path";
import type { Dispatch } from "../support/daemon.ts";
import { eventually, TestDaemon } from "../support/daemon.ts";
import { Follower } from "../support/follow.ts";
import { CLOSE, FINISHED, OPEN } from "../support/scripted-harness.ts";
import { missingForSmallDisk, SmallDisk } from "../support/small-disk.ts";
import { follow } from "./run-states.ts";

const missing = await missingForSmallDisk();
if (missing && process.env.CI === "1") throw new Error(`a full disk cannot be tried: ${missing} is missing`);
const skipped = missing === undefined ? "" : ` (skipped: ${missing} is missing)`;

const runFolders = (daemon: TestDaemon): Promise<string[]> => readdir(join(daemon.stateDir, "own/runs"));

async function listed(daemon: TestDaemon): Promise<string[]> {
  const { runs } = (await (await daemon.fetch("/runs")).json()) as { runs: { runId: string }[] };
  return runs.map(({ runId }) => runId);
}

async function refusal(response: Promise<Response>): Promise<Record<string, unknown>> {
  const { status, ...rest } = await response.then(async (r) => ({ status: r.status, ...((await r.json()) as object) }));
  return { status, ...rest };
}

test.concurrent("a dropped run: 410 with its outcome, in every form, and over a restart", async () => {
  await using daemon = await TestDaemon.start({ env: { RUN_RETENTION_MS: "1" } });
  const finished = await daemon.run({ runId: "a/1", threadId: "t", steps: [OPEN, CLOSE, FINISHED] });
  await daemon.run({ runId: "b", steps: [OPEN, { exit: 3 }] });
  await eventually(async () => (await runFolders(daemon)).length === 0);
  expect(await listed(daemon)).toEqual([]);

  const check = async (): Promise<void> => {
    const ended = {
      status: 410,
      error: "ended",
      detail: "the run has ended and its frames were dropped",
      outcome: { type: "finished", usage: { outputTokens: 3 } },
      settled: { saved: false, reason: "no org volume" },
      lastSeq: finished.length,
      attempt: 1,
    };
    for (const more of [{}, { after: 0 }, { after: 1000 }, { attempt: 1 }]) {
      expect(await refusal(daemon.dispatch({ runId: "a/1", threadId: "t", ...more }))).toEqual(ended);
    }
    expect(await refusal(daemon.fetch("/runs/a%2F1/frames"))).toEqual(ended);
    expect(await refusal(daemon.fetch("/runs/a%2F1/frames?after=2"))).toEqual(ended);
    const { status, detail, ...shown } = ended;
    expect(await daemon.show("a/1")).toMatchObject({ runId: "a/1", state: "ended", outcome: shown.outcome });
    expect(await refusal(daemon.dispatch({ runId: "b" }))).toMatchObject({
      status: 410,
      outcome: { type: "failed", error: { code: "harness_crashed" } },
      runError: { code: "harness_crashed", message: "the harness exited with code 3" },
    });
    const conflict = daemon.dispatch({ runId: "a/1", threadId: "elsewhere" });
    expect(await refusal(conflict)).toMatchObject({ status: 409, error: "run_conflict" });
  };
  await check();
  expect(await daemon.stop("SIGKILL")).toBe("SIGKILL");
  // A line that a crash cut must not swallow what comes after it.
  await appendFile(join(daemon.stateDir, "own/ended.ndjson"), '\n{"runId":"torn","thr');
  await daemon.launch();
  await check();
  await daemon.run({ runId: "c", steps: [FINISHED] });
  await eventually(async () => (await runFolders(daemon)).length === 0);
  expect(await daemon.stop()).toBe(0);
  await daemon.launch();
  await check();
  expect(await refusal(daemon.dispatch({ runId: "c" }))).toMatchObject({ status: 410, error: "ended" });

  expect((await daemon.cancel("a/1", "?wait=1")).status).toBe(204);
  const cancelled = daemon.dispatch({ runId: "a/1", threadId: "t" });
  expect(await refusal(cancelled)).toMatchObject({ status: 410, error: "tombstoned" });
  expect(await daemon.starts()).toEqual(["a/1#1", "b#1", "c#1"]);
});

test.concurrent("a run that somebody reads is kept until they are done", async () => {
  await using daemon = await TestDaemon.start({ env: { RUN_RETENTION_MS: "1" } });
  // More than sockets and pipes hold: the owner has not had all of it when the run ends.
  const slow = await daemon.dispatch({
    runId: "slow",
    steps: [OPEN, { deltas: 400, text: "x".repeat(65_536) }, CLOSE, FINISHED],
  });
  await daemon.event("dispatch done", 0, ({ run }) => run === "slow");
  await daemon.run({ runId: "other", steps: [FINISHED] });
  await eventually(async () => !(await listed(daemon)).includes("other"));
  expect(await daemon.show("slow")).toMatchObject({ state: "ended", readers: 1 });
  const body = new Follower(slow);
  await body.ended;
  expect([body.whole, body.frames.length, body.frames.at(-1)?.done]).toEqual([true, 405, true]);
  await eventually(async () => (await runFolders(daemon)).length === 0);
});

test.concurrent("a live run is never dropped, however long it takes", async () => {
  await using daemon = await TestDaemon.start({ env: { RUN_RETENTION_MS: "1" } });
  const body = await follow(daemon, { runId: "long", steps: [OPEN, { deltas: 10, everyMs: 40 }, CLOSE, FINISHED] });
  await body.ended;
  expect(body.frames.map(({ seq }) => seq)).toEqual(body.frames.map((_, index) => index + 1));
  expect(body.frames.at(-1)?.done).toBe(true);
});

test.concurrent("past RUN_LOG_BYTES the oldest go first", async () => {
  await using daemon = await TestDaemon.start({ env: { RUN_LOG_BYTES: String(1 << 20), RUN_RETENTION_MS: "600000" } });
  const large = (runId: string): Dispatch => ({
    runId,
    steps: [OPEN, { deltas: 40, text: "x".repeat(10_000) }, CLOSE, FINISHED],
  });
  for (const runId of ["1", "2", "3", "4"]) await daemon.run(large(runId));
  await eventually(async () => (await listed(daemon)).length === 2);
  expect(await listed(daemon)).toEqual(["3", "4"]);
  expect(await refusal(daemon.dispatch({ runId: "2" }))).toMatchObject({
    error: "ended",
    outcome: { type: "finished" },
  });
  // A run is dropped from the list first, so that nothing can begin to read what is being removed.
  await eventually(async () => (await runFolders(daemon)).length === 2);
}, 10_000);

test.skipIf(missing !== undefined)(`a full disk is given back what ended runs took${skipped}`, async () => {
  await using disk = await SmallDisk.mount(4 << 20);
  const stateDir = join(disk.path, "state");
  await using daemon = await TestDaemon.start({ env: { STATE_DIR: stateDir, RUN_RETENTION_MS: "500" } });
  const steps = [OPEN, { deltas: 20, text: "x".repeat(50_000) }, CLOSE, FINISHED];
  await daemon.run({ runId: "large", steps });
  await disk.fill();
  await eventually(async () => (await runFolders(daemon)).length === 0);
  const ended = { status: 410, error: "ended", outcome: { type: "finished" } };
  expect(await refusal(daemon.dispatch({ runId: "large" }))).toMatchObject(ended);
  await daemon.stop("SIGKILL");
  await daemon.launch();
  expect(await refusal(daemon.dispatch({ runId: "large" }))).toMatchObject(ended);
  expect((await daemon.run({ runId: "next", steps: [FINISHED] })).at(-1)?.error).toBeUndefined();
});
