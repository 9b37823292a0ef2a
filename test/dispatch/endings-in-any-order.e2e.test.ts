/**
 * Dispatches, readers, cancels, lost connections and restarts in an order that a seed decides. Whatever comes of it:
 * every run has one outcome and one last frame that agree, every reader saw the lines of the log without a gap, no
 * attempt started twice, no two harnesses of a thread at a time, and nothing is left over.
 */
import { expect, test } from "bun:test";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Frame } from "../../src/frames/frame.ts";
import { eventually, parseFrames, TestDaemon } from "../support/daemon.ts";
import { Follower } from "../support/follow.ts";
import { readMessage } from "../support/read-message.ts";
import type { Step } from "../support/scripted-harness.ts";
import { CLOSE, FINISHED, OPEN } from "../support/scripted-harness.ts";
import { alone } from "./run-states.ts";

const ACTIONS = 250;
const SHORT = { KILL_GRACE_MS: "150", EXIT_GRACE_MS: "200", EOF_GRACE_MS: "100", DETACH_GRACE_MS: "300" };
const ABORTS = ["cancelled", "superseded", "sandbox_gone"];
const ENDINGS: readonly (readonly Step[])[] = [
  [CLOSE, FINISHED],
  [{ exit: 1 }],
  [FINISHED, { sleepMs: 200 }],
  [{ sleepMs: 400 }, CLOSE, FINISHED],
  [{ signal: "SIGKILL" }],
  [],
];

interface Reading {
  readonly runId: string;
  readonly attempt: number;
  readonly body: Follower;
}

interface ListedRun {
  readonly runId: string;
  readonly attempt: number;
  readonly state: string;
}

/** The same numbers for the same seed. */
function randomOf(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state * 1103515245 + 12345) % 2 ** 31;
    return Math.floor((state / 2 ** 31) * below);
  };
}

const runsOf = async (daemon: TestDaemon): Promise<ListedRun[]> =>
  ((await (await daemon.fetch("/runs")).json()) as { runs: ListedRun[] }).runs;

async function actAtRandom(daemon: TestDaemon, random: (below: number) => number): Promise<Reading[]> {
  const readings: Reading[] = [];
  const keep = async (runId: string, asked: (signal: AbortSignal) => Promise<Response>): Promise<void> => {
    const left = new AbortController();
    const response = await asked(left.signal);
    expect(response.status).toBeLessThan(500);
    if (response.status !== 200) return void (await response.text());
    readings.push({ runId, attempt: Number(response.headers.get("x-run-attempt")), body: new Follower(response) });
    if (random(3) === 0) setTimeout(() => left.abort(), random(200));
  };
  for (let action = 0; action < ACTIONS; action++) {
    // Names come up again while their runs are still young, and are left behind then.
    const number = Math.floor(action / 60) * 10 + random(10);
    const [runId, threadId] = [`run ${number}`, `thread ${number % 4}`];
    switch (["post", "post", "post", "read", "read", "wait", "rare"][random(7)]) {
      case "post": {
        const stubborn: Step[] = random(4) === 0 ? [{ ignoreTerm: true }] : [];
        const deltas = { deltas: random(30), everyMs: random(10) };
        const steps = [alone(daemon, threadId), ...stubborn, OPEN, deltas, ...(ENDINGS[random(ENDINGS.length)] ?? [])];
        const after = random(2) === 0 ? {} : { after: random(3) * random(8) };
        await keep(runId, (signal) => daemon.dispatch({ runId, threadId, steps, ...after, signal }));
        break;
      }
      case "read": {
        const path = `/runs/${encodeURIComponent(runId)}/frames?after=${random(2) * random(6)}`;
        await keep(runId, (signal) => daemon.fetch(path, { signal }));
        break;
      }
      case "wait":
        await Bun.sleep(random(60));
        break;
      case "rare":
        if (random(3) > 0) expect((await daemon.cancel(runId, random(2) ? "?wait=1" : "")).status).toBe(204);
        else if (random(4) === 0) {
          await daemon.stop(random(2) ? "SIGKILL" : "SIGTERM");
          await daemon.launch();
        }
    }
  }
  return readings;
}

async function expectWholeRun(frames: readonly Frame[]): Promise<void> {
  expect(frames.map(({ seq }) => seq)).toEqual(frames.map((_, index) => index + 1));
  expect(frames.map(({ done }) => done === true)).toEqual(frames.map((_, index) => index === frames.length - 1));
  const outcomes = frames.flatMap(({ outcome }) => (outcome ? [outcome] : []));
  const [outcome] = outcomes;
  const error = outcome?.type === "failed" ? outcome.error : undefined;
  expect([outcomes.length, frames.at(-1)?.error]).toEqual([1, error]);
  const chunks = frames.flatMap((frame) => frame.chunks);
  const { errors } = await readMessage(chunks);
  // The run's own failure is an error of the message too; nothing else is.
  const told = error !== undefined && chunks.length > 0 && !ABORTS.includes(error.code);
  expect(errors).toEqual(told ? [error.message] : []);
}

for (const seed of [20, 26]) {
  test.concurrent(`seed ${seed}`, async () => {
    await using daemon = await TestDaemon.start({ env: { ...SHORT, MAX_RUNS: "8" } });
    const readings = await actAtRandom(daemon, randomOf(seed));
    await eventually(async () => (await runsOf(daemon)).every(({ state }) => state === "ended"));
    await Promise.all(readings.map(({ body }) => body.ended));

    for (const { runId, attempt } of await runsOf(daemon)) {
      const lines = (await (await daemon.fetch(`/runs/${encodeURIComponent(runId)}/frames`)).text())
        .split("\n")
        .filter(Boolean);
      await expectWholeRun(parseFrames(lines.join("\n")));
      for (const reading of readings) {
        if (reading.runId !== runId || reading.attempt !== attempt) continue;
        const { frameLines, frames } = reading.body;
        const first = (frames[0]?.seq ?? 1) - 1;
        expect(frameLines).toEqual(lines.slice(first, first + frameLines.length));
      }
    }
    const starts = await daemon.starts();
    expect(starts.length).toBe(new Set(starts).size);
    expect(starts.length).toBeGreaterThan(5);
    expect(await readFile(daemon.path("overlaps"), "utf8")).toBe("");
    expect(await readdir(join(daemon.stateDir, "agent/runs"))).toEqual([]);
    await eventually(async () => !(await daemon.openFiles()).some((path) => path.endsWith(".ndjson")));
    expect(daemon.log.filter(({ level }) => level === "error")).toEqual([]);
    expect(daemon.noise).toEqual([]);
  }, 60_000);
}
