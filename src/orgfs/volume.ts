/** What is known of one volume: its breaker, and the workers that are lost at it. */
import type { Clock } from "../clock/port.ts";
import type { Log } from "../log/port.ts";
import type { Metrics } from "../metrics/port.ts";
import { type Breaker, createBreaker } from "./breaker.ts";
import type { WorkerProcess } from "./worker-process.ts";

/** A process that got SIGKILL and can die is gone by then. */
const STUCK_AFTER_MS = 1000;
/** Each costs 3 MB. A volume at which this many hang gets no more of them, whatever its breaker says. */
const MAX_STUCK = 32;
/** From the opening to the first probe. It doubles with every probe and every opening until a flight comes back. */
const FIRST_PAUSE_MS = 1000;
const MAX_PAUSE_MS = 300_000;

export interface VolumeOptions {
  readonly name: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  /** True when the volume answered. */
  readonly probe: () => Promise<boolean>;
}

export interface Volume {
  readonly breaker: Breaker;
  readonly stuck: number;
  readonly admits: boolean;
  answered(): void;
  overdue(): void;
  /** A worker that got SIGKILL is watched until it is gone. One that is stuck hangs, overdue or not. */
  watch(worker: WorkerProcess, job: string, overdue: boolean): void;
  stop(): void;
}

export function createVolume({ name, clock, log, metrics, probe }: VolumeOptions): Volume {
  const breaker = createBreaker();
  let stuck = 0;
  let pauseMs = FIRST_PAUSE_MS;
  let cancelProbe = (): void => {};
  let stopped = false;
  const tell = (): void => metrics.orgVolume(name, breaker.state, stuck);

  function probeIn(ms: number): void {
    cancelProbe();
    if (!stopped) cancelProbe = clock.after(ms, () => void probeNow());
  }

  function probeAfterPause(): void {
    probeIn(pauseMs);
    pauseMs = Math.min(pauseMs * 2, MAX_PAUSE_MS);
  }

  async function probeNow(): Promise<void> {
    if (breaker.state !== "open" || stopped) return;
    breaker.probing();
    tell();
    const answered = await probe();
    breaker.probed(answered);
    tell();
    if (answered) log.info("org volume answers again", { volume: name, stuck });
    else probeAfterPause();
  }

  function overdue(): void {
    if (!breaker.overdue()) return;
    log.error("org volume does not answer", { volume: name, stuck });
    tell();
    probeAfterPause();
  }

  return {
    breaker,
    get stuck() {
      return stuck;
    },
    get admits() {
      return breaker.state === "closed" && stuck < MAX_STUCK;
    },
    answered() {
      breaker.answered();
      pauseMs = FIRST_PAUSE_MS;
    },
    overdue,
    watch(worker, job, wasOverdue) {
      const since = clock.monotonic();
      let isStuck = false;
      const cancel = clock.after(STUCK_AFTER_MS, () => {
        isStuck = true;
        stuck++;
        log.warn("org worker stuck", { volume: name, job, pid: worker.pid, stuck });
        tell();
        if (!wasOverdue) overdue();
      });
      worker.gone.then(() => {
        cancel();
        if (!isStuck) return;
        stuck--;
        log.info("org worker gone", { volume: name, job, stuck, elapsedMs: Math.round(clock.monotonic() - since) });
        tell();
        // What it hung at was answered: the best moment to ask.
        probeIn(0);
      });
    },
    stop() {
      stopped = true;
      cancelProbe();
    },
  };
}
