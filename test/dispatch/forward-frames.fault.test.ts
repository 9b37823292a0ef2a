/** A disk that takes nothing holds back the harness, and is not taken for a harness that says nothing. */
import { afterAll, expect, test } from "bun:test";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "../../src/clock/system.ts";
import { watchHarness } from "../../src/dispatch/end-harness.ts";
import { FrameForwarder } from "../../src/dispatch/forward-frames.ts";
import { LineQuota } from "../../src/dispatch/line-quota.ts";
import { Attempt, Run } from "../../src/dispatch/run.ts";
import { MAX_PENDING_BYTES, RunLog } from "../../src/dispatch/run-log.ts";
import { createLargeJson } from "../../src/frames/large-lines.ts";
import { createJsonLog } from "../../src/log/json-log.ts";
import { Redactor } from "../../src/log/redact.ts";
import { createPrometheusMetrics } from "../../src/metrics/prometheus.ts";
import type { ExitStatus } from "../../src/process/port.ts";
import { eventually } from "../support/daemon.ts";

const FRAME = `{"chunks":[{"type":"data-x","data":"${"x".repeat(1000)}"}]}\n`;
const PIECE_FRAMES = 60;
const PIECE = Buffer.from(FRAME.repeat(PIECE_FRAMES));
const PIECES = 100;
const largeJson = createLargeJson();
const folders: string[] = [];
afterAll(async () => {
  largeJson.stop();
  for (const folder of folders) await rm(folder, { recursive: true });
});

/** An attempt whose log cannot be written before `letGo`, and a harness that prints 6 MB as fast as it may. */
async function heldBack(harnessStallMs: number) {
  const folder = await mkdtemp(join(tmpdir(), "dispatchd-forward-"));
  folders.push(folder);
  const { promise: gate, resolve: letGo } = Promise.withResolvers<void>();
  const path = join(folder, "1.ndjson");
  const log = RunLog.create(path, gate, () => {});
  const attempt = new Attempt(new Run("r", "t", folder), 1, log, systemClock, {
    onOutcome: () => {},
    onReader: () => {},
  });
  const redactor = new Redactor();
  const silent = createJsonLog({ clock: systemClock, redactor, level: "error", write: () => {} });
  const metrics = createPrometheusMetrics(systemClock, "0", { runs: () => 0, readers: () => 0, draining: () => false });
  const forwarder = new FrameForwarder(attempt, {
    clock: systemClock,
    log: silent,
    metrics,
    redactor,
    largeJson,
    maxFrameBytes: 1 << 20,
    runMaxBytes: 1 << 30,
    quota: new LineQuota(systemClock, silent, redactor),
    onSession: () => {},
    tools: {
      interest: undefined,
      take: (frame) => frame,
      conclude: async (outcome) => void attempt.conclude(outcome),
    },
  });
  const { promise: exited, resolve: exit } = Promise.withResolvers<ExitStatus>();
  let taken = 0;
  async function* stdout(): AsyncGenerator<Uint8Array> {
    for (let piece = 0; piece < PIECES; piece++) {
      taken++;
      yield Buffer.from(PIECE);
    }
    exit({ type: "exit", code: 0 });
  }
  const process = {
    pid: undefined,
    stdout: stdout(),
    stderr: stdout(),
    exited,
    inert: exited.then(() => {}),
    closeOutput: () => {},
    end: () => Promise.resolve({ strays: 0, left: [] }),
  };
  const limits = { harnessStallMs, runMaxMs: 0, eofGraceMs: 1000, exitGraceMs: 0, killGraceMs: 0 };
  const watched = watchHarness(attempt, process, forwarder, limits, systemClock);
  return { attempt, path, letGo, watched, taken: () => taken, stop: () => metrics.stop() };
}

test("at most a mebibyte waits for the disk, and nothing is lost when it takes bytes again", async () => {
  const { attempt, path, letGo, watched, taken, stop } = await heldBack(0);
  await eventually(() => attempt.log.pendingBytes >= MAX_PENDING_BYTES);
  for (let turn = 0; turn < 50; turn++) await new Promise((resolve) => setImmediate(resolve));
  expect(attempt.log.pendingBytes).toBeLessThan(MAX_PENDING_BYTES + 2 * PIECE.length);
  expect(taken()).toBeLessThan(PIECES / 2);
  letGo();
  await watched;
  expect(attempt.outcome).toEqual({ type: "finished" });
  await attempt.end({ saved: false });
  const lines = (await readFile(path, "utf8")).split("\n");
  expect(lines.length).toBe(PIECES * PIECE_FRAMES + 3);
  expect(lines[0]).toBe(`{"seq":1,${FRAME.slice(1, -1)}`);
  stop();
});

test("a harness that is held back by the disk for longer than the stall is not called stalled", async () => {
  const { attempt, letGo, watched, stop } = await heldBack(100);
  await eventually(() => attempt.log.pendingBytes >= MAX_PENDING_BYTES);
  const heldAt = performance.now();
  await eventually(() => performance.now() - heldAt > 500);
  expect(attempt.live).toBe(true);
  letGo();
  await watched;
  expect(attempt.outcome).toEqual({ type: "finished" });
  await attempt.end({ saved: false });
  stop();
});
