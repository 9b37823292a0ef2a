/**
 * What a run waits for before it starts: `home` mounted and answering, and the org's skills on the pod.
 *
 * - Every run tries: what has changed in the skills since the last one is fetched. Trying is costly, so it is done for
 *   all who wait together, and after a failure not again for `retryEveryMs`.
 * - Waiting is paid for once per pod: all waits in which something was missing share one budget. When that is spent, a
 *   run takes what is there, and gives a try a moment.
 * - Nothing here fails a run. What it did not get is in its log, in the metrics and in its first frame.
 */
import type { Clock } from "../clock/port.ts";
import type { PreparationState } from "../frames/frame.ts";
import type { Log } from "../log/port.ts";
import type { Metrics } from "../metrics/port.ts";
import { HOME } from "./mount-paths.ts";
import type { MountStatus } from "./mount-status.ts";
import { isWell, type Trial, type Trials } from "./try-volume.ts";
import type { Spending, WaitBudget } from "./wait-budget.ts";

export interface Readiness {
  readonly home: PreparationState;
  readonly skills: PreparationState;
  readonly waitedMs: number;
  /** What is missing, for the first frame. */
  readonly reason?: string;
}

export interface ReadyOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly budget: WaitBudget;
  readonly mounts: MountStatus;
  readonly trials: Trials;
}

/** For a try when the budget is spent. A volume that was well just now is trusted for longer. */
const MOMENT_MS = 500;
const TRUSTED_MOMENT_MS = 2000;

/** Resolves when all is there, the budget is spent, or the signal aborts. Never rejects. */
export async function waitUntilReady(options: ReadyOptions, signal: AbortSignal): Promise<Readiness> {
  const { clock, log, metrics, budget } = options;
  const startedAt = clock.monotonic();
  const spending = budget.open();
  const { trial, waited } = await wait(options, spending, signal);
  spending.close(!waited);
  const waitedMs = Math.round(clock.monotonic() - startedAt);
  const readiness = { ...describe(trial), waitedMs };
  metrics.orgWaited(readiness.home, readiness.skills, waitedMs / 1000);
  if (trial && isWell(trial)) log.info("org volume ready", readiness);
  else log.warn("org volume not ready", readiness);
  return readiness;
}

interface Waited {
  /** The try that tells how things are; none when `home` is not mounted. */
  readonly trial: Trial | undefined;
  /** False when the first try was good. */
  readonly waited: boolean;
}

async function wait({ clock, mounts, trials }: ReadyOptions, spending: Spending, signal: AbortSignal): Promise<Waited> {
  async function until(event: Promise<void>, ms: number): Promise<void> {
    const timer = new AbortController();
    await Promise.race([event, clock.sleep(ms, AbortSignal.any([timer.signal, signal]))]);
    timer.abort();
  }

  const isOver = (): boolean => signal.aborted || spending.leftMs === 0;
  await until(mounts.known, spending.leftMs);
  for (let waited = false; ; waited = true) {
    const isMounted = mounts.mounted(HOME);
    if (waited && isOver()) return { trial: isMounted ? trials.newest : undefined, waited };
    const momentMs = trials.last && isWell(trials.last) ? TRUSTED_MOMENT_MS : MOMENT_MS;
    const trial = isMounted ? trials.join() : undefined;
    if (trial) {
      const momentLeftMs = waited ? 0 : trial.startedAt + momentMs - clock.monotonic();
      await until(trial.over, Math.max(spending.leftMs, momentLeftMs));
      if (isWell(trial)) return { trial, waited };
    }
    if (isOver()) return { trial: isMounted ? trials.newest : undefined, waited: true };
    await until(mounts.changed(), isMounted ? Math.min(trials.pauseMs, spending.leftMs) : spending.leftMs);
  }
}

function describe(trial: Trial | undefined): Omit<Readiness, "waitedMs"> {
  if (!trial) return { home: "timeout", skills: "timeout", reason: "the volume home is not mounted" };
  const { home, skills } = trial;
  if (!home) return { home: "timeout", skills: "timeout", reason: "the volume home does not answer" };
  const reason = home.reason ?? (skills ? skills.reason : "copying the skills takes too long");
  return { home: home.state, skills: skills?.state ?? "timeout", ...(reason === undefined ? {} : { reason }) };
}
