/** Flights: one process each, a deadline each, and nobody waits for a process that is lost. See port.ts. */
import type { Clock } from "../clock/port.ts";
import type { Log } from "../log/port.ts";
import type { Metrics } from "../metrics/port.ts";
import { createEnding } from "./ending.ts";
import { createLanes } from "./lanes.ts";
import type { OrgGuard } from "./pin-paths.ts";
import type { FlightOptions, FlightResult, JobOptions, OrgFs, OrgJobInput, OrgJobName, OrgJobOutput } from "./port.ts";
import { createVolume, type Volume } from "./volume.ts";
import { startWorker, type WorkerProcess } from "./worker-process.ts";

export interface OrgFsOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  /** Starts our own binary as `orgfs-worker`. */
  readonly workerArgv: readonly string[];
  /** Where a volume is mounted. */
  readonly mountPathOf: (volume: string) => string;
  /** Set where the agent is another user: what it puts in the place of a volume is not followed. */
  readonly guard?: OrgGuard;
}

const PROBE_DEADLINE_MS = 5000;
/** A killed worker may finish one call. Its lane is free when it is gone, or after this. */
const LANE_GRACE_MS = 250;

/** From the answer to the exit, which a thread can hold up that hangs all the same. */
const EXIT_MS = 1000;

export function createOrgFs({ clock, log, metrics, workerArgv, mountPathOf, guard }: OrgFsOptions): OrgFs {
  const lanes = createLanes();
  const volumes = new Map<string, Volume>();
  const workers = new Set<WorkerProcess>();
  /** Of each lane, how many of its workers cannot die. */
  const stuck = new Map<string, number>();
  const stopped = new AbortController();

  function volumeOf(name: string): Volume {
    const known = volumes.get(name);
    if (known) return known;
    const probe = async (): Promise<boolean> => {
      const input = { path: mountPathOf(name) };
      const options = { volume: name, deadlineMs: PROBE_DEADLINE_MS };
      return isAnswer(await take("volume-probe", input, options, volume));
    };
    const volume = createVolume({ name, clock, log, metrics, probe });
    volumes.set(name, volume);
    return volume;
  }

  async function fly<J extends OrgJobName>(
    job: J,
    input: OrgJobInput<J>,
    options: JobOptions<OrgJobOutput<J>>,
  ): Promise<FlightResult<OrgJobOutput<J>>> {
    const volume = volumeOf(options.volume);
    const startedAt = clock.monotonic();
    const result = volume.admits ? await take(job, input, options, volume) : ({ type: "refused" } as const);
    metrics.orgFlight(job, result.type, (clock.monotonic() - startedAt) / 1000);
    const proves = result.type !== "done" || (options.proves?.(result.output) ?? true);
    if (isAnswer(result) && proves) volume.answered();
    return result;
  }

  /** The flight itself, whatever the breaker says. */
  async function take<J extends OrgJobName>(
    job: J,
    input: OrgJobInput<J>,
    { deadlineMs, lane, signal }: FlightOptions,
    volume: Volume,
  ): Promise<FlightResult<OrgJobOutput<J>>> {
    const startedAt = clock.monotonic();
    const elapsed = (): number => Math.round(clock.monotonic() - startedAt);
    const ending = createEnding(clock, deadlineMs, signal ? [stopped.signal, signal] : [stopped.signal]);
    const cutShort = (): FlightResult<never> =>
      ending.type === "overdue" ? { type: "overdue", afterMs: elapsed() } : { type: "aborted" };
    try {
      const giveBack = lane === undefined ? () => {} : await lanes.take(lane, ending.signal);
      if (!giveBack) return cutShort();
      if (ending.type) {
        giveBack();
        return cutShort();
      }
      const worker = startWorker(workerArgv, { parent: process.pid, job, input, ...(guard ? { guard } : {}) });
      workers.add(worker);
      worker.gone.then(() => workers.delete(worker));
      const answer = await Promise.race([worker.answer, ending.came]);
      if (!answer) {
        giveUp(worker, job, volume, ending.type === "overdue");
        const cancelWait = clock.after(LANE_GRACE_MS, () => {
          if (lane !== undefined) noteStuck(lane, worker);
          giveBack();
        });
        worker.gone.then(() => {
          cancelWait();
          giveBack();
        });
        if (ending.type === "overdue") {
          log.warn("org flight overdue", { job, afterMs: elapsed(), pid: worker.pid });
          volume.overdue();
        }
        return cutShort();
      }
      giveBack();
      const cancelExit = clock.after(EXIT_MS, () => giveUp(worker, job, volume, true));
      worker.gone.then(cancelExit);
      return "done" in answer
        ? { type: "done", output: answer.done as OrgJobOutput<J>, elapsedMs: elapsed() }
        : { type: "failed", ...answer.failed };
    } finally {
      ending.cancel();
    }
  }

  function giveUp(worker: WorkerProcess, job: string, volume: Volume, overdue: boolean): void {
    worker.abandon();
    volume.watch(worker, job, overdue);
  }

  function noteStuck(lane: string, worker: WorkerProcess): void {
    stuck.set(lane, (stuck.get(lane) ?? 0) + 1);
    worker.gone.then(() => {
      const left = (stuck.get(lane) ?? 1) - 1;
      if (left > 0) stuck.set(lane, left);
      else stuck.delete(lane);
    });
  }

  return {
    fly,
    isStuck: (lane) => stuck.has(lane),
    state: () =>
      Object.fromEntries(
        [...volumes].map(([name, { breaker, stuck }]) => [name, { breaker: breaker.state, stuck }] as const),
      ),
    stop() {
      stopped.abort();
      for (const volume of volumes.values()) volume.stop();
      for (const worker of workers) worker.abandon();
    },
  };
}

/** An error of the volume is an answer too; a worker that crashed says nothing of the volume. */
function isAnswer(result: FlightResult<unknown>): boolean {
  return result.type === "done" || (result.type === "failed" && result.code !== "worker_lost");
}
