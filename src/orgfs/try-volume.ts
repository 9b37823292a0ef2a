/** The costly part of getting ready, for all who wait: does `home` answer, and are the org's skills on the pod. */
import type { Clock } from "../clock/port.ts";
import { messageOf } from "../errors.ts";
import type { PreparationState } from "../frames/frame.ts";
import type { Log } from "../log/port.ts";

export interface Brought {
  readonly state: PreparationState;
  readonly reason?: string | undefined;
}

/** One try; its parts are known one after the other. */
export interface Trial {
  readonly startedAt: number;
  readonly home: Brought | undefined;
  readonly skills: Brought | undefined;
  readonly over: Promise<void>;
}

export interface Trials {
  /** The one under way, or else a new one; undefined when it is too soon after one that failed. */
  join(): Trial | undefined;
  /** The one that ended last. */
  readonly last: Trial | undefined;
  /** The one under way, or else the last; that one too when it failed, and the one under way has only just begun. */
  readonly newest: Trial | undefined;
  /** Until a new one may begin. */
  readonly pauseMs: number;
}

export interface TrialsOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly retryEveryMs: number;
  readonly probe: () => Promise<Brought>;
  readonly bringSkills: () => Promise<Brought>;
}

/** A try that has no answer for so long says something. */
const NEWS_MS = 500;

export function isWell(trial: Trial): boolean {
  return trial.home?.state === "ready" && (trial.skills?.state === "ready" || trial.skills?.state === "none");
}

export function createTrials({ clock, log, retryEveryMs, probe, bringSkills }: TrialsOptions): Trials {
  let current: Trial | undefined;
  let last: Trial | undefined;

  /** A fault of ours is no reason not to run. */
  async function guarded(part: () => Promise<Brought>): Promise<Brought> {
    try {
      return await part();
    } catch (error) {
      log.error("org volume not tried", { reason: messageOf(error), stack: (error as Error).stack });
      return { state: "failed", reason: "an error of the daemon" };
    }
  }

  function begin(): Trial {
    const { promise: over, resolve } = Promise.withResolvers<void>();
    const trial: { -readonly [K in keyof Trial]: Trial[K] } = {
      startedAt: clock.monotonic(),
      home: undefined,
      skills: undefined,
      over,
    };
    void (async () => {
      trial.home = await guarded(probe);
      trial.skills = trial.home.state === "ready" ? await guarded(bringSkills) : trial.home;
      last = trial;
      current = undefined;
      resolve();
    })();
    return trial;
  }

  const pauseMs = (): number =>
    !last || isWell(last) ? 0 : Math.max(0, last.startedAt + retryEveryMs - clock.monotonic());
  return {
    join() {
      if (!current && pauseMs() === 0) current = begin();
      return current;
    },
    get last() {
      return last;
    },
    get newest() {
      const isNews = !last || isWell(last) || !current || clock.monotonic() - current.startedAt >= NEWS_MS;
      return isNews ? (current ?? last) : last;
    },
    get pauseMs() {
      return pauseMs();
    },
  };
}
