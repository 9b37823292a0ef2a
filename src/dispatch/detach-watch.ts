/** A run that nobody reads goes on for a while, and is then ended: nobody is left to hear of it. */
import type { Clock } from "../clock/port.ts";
import type { Attempt } from "./run.ts";

export function createDetachWatch(clock: Clock, graceMs: number): (attempt: Attempt) => void {
  const timers = new WeakMap<Attempt, () => void>();
  /** Called whenever readers come or go, and at the outcome. */
  return function watch(attempt) {
    timers.get(attempt)?.();
    timers.delete(attempt);
    if (!attempt.live || attempt.readers.size > 0) return;
    timers.set(
      attempt,
      clock.after(graceMs, () => {
        const message = `nobody read the run for ${graceMs} ms`;
        attempt.stopOrPark({ code: "sandbox_gone", message, reason: "detached" });
        // One that goes on, without what a person did not answer, has as long again.
        watch(attempt);
      }),
    );
  };
}
