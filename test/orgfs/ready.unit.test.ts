import { expect, test } from "bun:test";
import type { MountStatus } from "../../src/orgfs/mount-status.ts";
import { type Readiness, waitUntilReady } from "../../src/orgfs/ready.ts";
import { type Brought, createTrials } from "../../src/orgfs/try-volume.ts";
import { createWaitBudget } from "../../src/orgfs/wait-budget.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { recordingLog, silentMetrics } from "../support/silent.ts";

const BUDGET_MS = 90_000;
const RETRY_MS = 15_000;
const READY: Brought = { state: "ready" };

class Pod {
  readonly clock = new ManualClock();
  readonly log = recordingLog();
  /** What the parts of a try answer, and when each was asked. */
  probe: () => Promise<Brought> = async () => READY;
  skills: () => Promise<Brought> = async () => READY;
  readonly probes: number[] = [];
  readonly fetches: number[] = [];
  #volumes = new Set<string>();
  #change = Promise.withResolvers<void>();

  readonly mounts: MountStatus = {
    mounted: (volume) => this.#volumes.has(volume),
    volumes: () => [...this.#volumes],
    known: Promise.resolve(),
    changed: () => this.#change.promise,
    stop() {},
  };
  readonly #budget = createWaitBudget(this.clock, BUDGET_MS);
  readonly #trials = createTrials({
    clock: this.clock,
    log: this.log,
    retryEveryMs: RETRY_MS,
    probe: () => {
      this.probes.push(this.clock.monotonic());
      return this.probe();
    },
    bringSkills: () => {
      this.fetches.push(this.clock.monotonic());
      return this.skills();
    },
  });

  report(...volumes: string[]): void {
    this.#volumes = new Set(volumes);
    const { resolve } = this.#change;
    this.#change = Promise.withResolvers<void>();
    resolve();
  }

  /** A run that waits; `result` is set when it goes on. */
  run(signal = new AbortController().signal): { result: Readiness | undefined } {
    const run: { result: Readiness | undefined } = { result: undefined };
    const { clock, log, mounts } = this;
    const parts = { clock, log, mounts, metrics: silentMetrics(), budget: this.#budget, trials: this.#trials };
    void waitUntilReady(parts, signal).then((result) => {
      run.result = result;
    });
    return run;
  }
}

/** Answers after `ms` of the pod's time. */
const after = (pod: Pod, ms: number, brought: Brought) => async (): Promise<Brought> => {
  await pod.clock.sleep(ms);
  return brought;
};
const never = () => new Promise<Brought>(() => {});

test("a pod with everything in place waits for nothing, and looks again for every run", async () => {
  const pod = new Pod();
  pod.report("home");
  for (let run = 1; run <= 3; run++) {
    const { clock } = pod;
    const one = pod.run();
    await clock.advance(0);
    expect(one.result).toEqual({ home: "ready", skills: "ready", waitedMs: 0 });
    expect(pod.fetches.length).toBe(run);
  }
  expect(pod.log.said.map(({ level, event }) => `${level} ${event}`)).toEqual(Array(3).fill("info org volume ready"));
});

test("home that is mounted after 60 s is waited for, and no longer", async () => {
  const pod = new Pod();
  pod.report(".outputs");
  const run = pod.run();
  await pod.clock.advance(60_000);
  expect(run.result).toBeUndefined();
  expect(pod.probes).toEqual([]);
  pod.report(".outputs", "home");
  await pod.clock.advance(0);
  expect(run.result).toEqual({ home: "ready", skills: "ready", waitedMs: 60_000 });
});

test("home that is never mounted costs the budget once, whoever comes later", async () => {
  const pod = new Pod();
  pod.report(".outputs");
  const first = pod.run();
  await pod.clock.advance(30_000);
  const second = pod.run();
  await pod.clock.advance(BUDGET_MS - 30_000 - 1);
  expect([first.result, second.result]).toEqual([undefined, undefined]);
  await pod.clock.advance(1);
  const missing = { home: "timeout", skills: "timeout", reason: "the volume home is not mounted" } as const;
  expect(first.result).toEqual({ ...missing, waitedMs: BUDGET_MS });
  expect(second.result).toEqual({ ...missing, waitedMs: BUDGET_MS - 30_000 });
  const third = pod.run();
  await pod.clock.advance(0);
  expect(third.result).toEqual({ ...missing, waitedMs: 0 });
  expect(pod.log.said.map(({ level, event }) => `${level} ${event}`)).toEqual(
    Array(3).fill("warn org volume not ready"),
  );
  // And it is used as soon as it is there.
  pod.report("home");
  const fourth = pod.run();
  await pod.clock.advance(0);
  expect(fourth.result?.home).toBe("ready");
});

test("what fails is tried again every 15 s, never at a change of the status, and not for each run", async () => {
  const pod = new Pod();
  pod.probe = async () => ({ state: "failed", reason: "the volume home cannot be read: EIO" });
  pod.report("home");
  const runs = [pod.run(), pod.run(), pod.run()];
  for (let second = 0; second < 40; second++) {
    await pod.clock.advance(1000);
    pod.report("home", `volume ${second}`);
  }
  expect(pod.probes).toEqual([0, 15_000, 30_000]);
  expect(pod.fetches).toEqual([]);
  pod.probe = async () => READY;
  await pod.clock.advance(5000);
  expect(runs.map(({ result }) => result)).toEqual(Array(3).fill({ home: "ready", skills: "ready", waitedMs: 45_000 }));
});

test("a volume that hangs is left at the end of the budget, and the next run is not slowed", async () => {
  const pod = new Pod();
  pod.probe = after(pod, 10_000, { state: "timeout", reason: "the volume home does not answer" });
  pod.report("home");
  const first = pod.run();
  await pod.clock.advance(BUDGET_MS);
  expect(first.result).toEqual({
    home: "timeout",
    skills: "timeout",
    waitedMs: BUDGET_MS,
    reason: "the volume home does not answer",
  });
  expect(pod.probes).toEqual([0, 15_000, 30_000, 45_000, 60_000, 75_000]);
  const second = pod.run();
  await pod.clock.advance(500);
  expect(second.result).toMatchObject({ home: "timeout", waitedMs: 500 });
  const third = pod.run();
  await pod.clock.advance(0);
  expect(third.result).toMatchObject({ home: "timeout", waitedMs: 0 });
  expect(pod.probes.at(-1)).toBe(BUDGET_MS);
  expect(pod.probes.length).toBe(7);
});

test("a wait that is over a moment before its timer knows tells of the try that is under way", async () => {
  const pod = new Pod();
  pod.probe = never;
  pod.report("home");
  const sleep = pod.clock.sleep.bind(pod.clock);
  pod.clock.sleep = (ms, signal) => sleep(ms > 0.5 ? ms - 0.5 : ms, signal);
  const run = pod.run();
  await pod.clock.advance(BUDGET_MS);
  expect(run.result).toMatchObject({ home: "timeout", reason: "the volume home does not answer" });
});

test("a try that has only just begun hides nothing of why the last one failed", async () => {
  for (const [sinceMs, told] of [
    [100, { home: "failed", reason: "EIO" }],
    [700, { home: "timeout", reason: "the volume home does not answer" }],
  ] as const) {
    const pod = new Pod();
    pod.report("home");
    pod.probe = async () => ({ state: "failed", reason: "EIO" });
    const end = new AbortController();
    const run = pod.run(end.signal);
    await pod.clock.advance(RETRY_MS - 1);
    pod.probe = never;
    await pod.clock.advance(1 + sinceMs);
    expect(pod.probes.length).toBe(2);
    end.abort();
    await pod.clock.advance(0);
    expect(run.result).toMatchObject(told);
  }
});

test("skills that do not come are told apart from a home that does not", async () => {
  const pod = new Pod();
  pod.skills = async () => ({ state: "failed", reason: "no room" });
  pod.report("home");
  const run = pod.run();
  await pod.clock.advance(BUDGET_MS);
  expect(run.result).toEqual({ home: "ready", skills: "failed", waitedMs: BUDGET_MS, reason: "no room" });
  pod.skills = never;
  await pod.clock.advance(RETRY_MS);
  const later = pod.run();
  await pod.clock.advance(500);
  expect(later.result).toMatchObject({ home: "ready", skills: "timeout", waitedMs: 500 });
});

test("an org without skills is ready, and one skill that is missing is said and not waited for", async () => {
  const pod = new Pod();
  pod.report("home");
  pod.skills = async () => ({ state: "none" });
  const one = pod.run();
  await pod.clock.advance(0);
  expect(one.result).toEqual({ home: "ready", skills: "none", waitedMs: 0 });
  pod.skills = async () => ({ state: "ready", reason: "1 skill cannot be read" });
  const other = pod.run();
  await pod.clock.advance(0);
  expect(other.result).toEqual({ home: "ready", skills: "ready", waitedMs: 0, reason: "1 skill cannot be read" });
});

test("a healthy pod spends nothing of its budget: a hang that comes later may still take all of it", async () => {
  const pod = new Pod();
  pod.report("home");
  pod.skills = after(pod, 1500, READY);
  for (let run = 0; run < 100; run++) {
    const one = pod.run();
    await pod.clock.advance(1500);
    expect(one.result?.skills).toBe("ready");
  }
  pod.skills = never;
  const hung = pod.run();
  await pod.clock.advance(BUDGET_MS);
  expect(hung.result).toMatchObject({ home: "ready", skills: "timeout", waitedMs: BUDGET_MS });
});

test("a run that is ended meanwhile waits no longer, and others wait on", async () => {
  const pod = new Pod();
  const controller = new AbortController();
  const ended = pod.run(controller.signal);
  const other = pod.run();
  await pod.clock.advance(10_000);
  controller.abort();
  await pod.clock.advance(0);
  expect(ended.result).toMatchObject({ home: "timeout", waitedMs: 10_000 });
  expect(other.result).toBeUndefined();
  await pod.clock.advance(80_000);
  expect(other.result).toMatchObject({ home: "timeout", waitedMs: BUDGET_MS });
});

test("an error of our own in a try fails no run", async () => {
  const pod = new Pod();
  pod.report("home");
  pod.skills = () => Promise.reject(new Error("a fault"));
  const run = pod.run();
  await pod.clock.advance(BUDGET_MS);
  expect(run.result).toMatchObject({ home: "ready", skills: "failed", reason: "an error of the daemon" });
});
