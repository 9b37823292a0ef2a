import { afterAll, beforeAll, expect, test } from "bun:test";
import { appendFile, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Clock } from "../../src/clock/port.ts";
import { EndedRuns } from "../../src/dispatch/ended-runs.ts";
import type { RunSummary } from "../../src/frames/run-summary.ts";

const DAY_MS = 24 * 3600_000;
const KEPT_RUNS = 10_000;

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "dispatchd-ended-"));
});
afterAll(async () => {
  await rm(folder, { recursive: true });
});

let nowMs = Date.parse("2030-01-01T00:00:00Z");
const clock = { now: () => nowMs } as Clock;
let files = 0;
const newFile = (): string => join(folder, `${++files}.ndjson`);

function summary(runId: string): RunSummary {
  const at = new Date(nowMs).toISOString();
  const outcome = { type: "finished" } as const;
  return {
    runId,
    attempt: 1,
    threadId: "t",
    state: "ended",
    startedAt: at,
    endedAt: at,
    lastSeq: 3,
    readers: 0,
    outcome,
  };
}

test("a run is known for a day, by the next daemon too", async () => {
  const path = newFile();
  const runs = new EndedRuns(path, clock);
  await runs.add(summary("a"));
  nowMs += DAY_MS;
  const next = new EndedRuns(path, clock);
  await next.load();
  expect([runs.get("a"), next.get("a")].map((run) => run?.outcome)).toEqual([
    { type: "finished" },
    { type: "finished" },
  ]);
  nowMs += 1;
  expect([runs.get("a"), next.get("a"), next.list()]).toEqual([undefined, undefined, []]);
  const later = new EndedRuns(path, clock);
  await later.load();
  expect([later.list(), await readFile(path, "utf8")]).toEqual([[], ""]);
});

test("10,000 runs are known, the oldest is forgotten first, and the file does not grow for ever", async () => {
  const path = newFile();
  const runs = new EndedRuns(path, clock);
  const adding = Array.from({ length: 2 * KEPT_RUNS + 2 }, (_, index) => runs.add(summary(String(index))));
  expect(runs.get(String(2 * KEPT_RUNS + 1))?.runId).toBe(String(2 * KEPT_RUNS + 1)); // At once.
  await Promise.all(adding);
  expect([runs.list().length, runs.get(String(KEPT_RUNS + 1)), runs.get(String(KEPT_RUNS + 2))?.runId]).toEqual([
    KEPT_RUNS,
    undefined,
    String(KEPT_RUNS + 2),
  ]);
  expect((await readFile(path, "utf8")).split("\n").length).toBeLessThanOrEqual(KEPT_RUNS + 2);
  const next = new EndedRuns(path, clock);
  await next.load();
  expect(next.list()).toEqual(runs.list());
}, 20_000);

test("the newest line of a run counts, and torn or strange lines are nothing", async () => {
  const path = newFile();
  await writeFile(path, ["nonsense", "[]", '{"runId":7}', '{"runId":"b"}', JSON.stringify(summary("a"))].join("\n"));
  await appendFile(path, `\n${JSON.stringify({ ...summary("a"), attempt: 2 })}\n{"runId":"c","att`);
  const runs = new EndedRuns(path, clock);
  await runs.load();
  expect(runs.list().map(({ runId, attempt }) => [runId, attempt])).toEqual([["a", 2]]);
});

test("a run that could not be stored is known all the same, and the ones after it are stored", async () => {
  const path = join(folder, "none", "ended.ndjson");
  const runs = new EndedRuns(path, clock);
  await expect(runs.add(summary("a"))).rejects.toThrow();
  expect(runs.get("a")?.runId).toBe("a");
  await Bun.write(path, "");
  await runs.add(summary("b"));
  expect(await readFile(path, "utf8")).toContain('"runId":"b"');
});
