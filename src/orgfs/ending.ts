import type { Clock } from "../clock/port.ts";

/** Why the wait for a flight is over before the flight is. */
export type EndingType = "overdue" | "aborted";

export interface Ending {
  /** Aborts at the end of the wait. */
  readonly signal: AbortSignal;
  /** Set once the signal has aborted. */
  readonly type: EndingType | undefined;
  /** Resolves when the signal aborts. */
  readonly came: Promise<void>;
  cancel(): void;
}

/** The end of a wait: the deadline, or the first of the signals. */
export function createEnding(clock: Clock, deadlineMs: number, signals: readonly AbortSignal[]): Ending {
  const controller = new AbortController();
  const { promise: came, resolve } = Promise.withResolvers<void>();
  let type: EndingType | undefined;
  const end = (reason: EndingType): void => {
    type ??= reason;
    controller.abort();
    resolve();
  };
  const abort = (): void => end("aborted");
  const cancelDeadline = clock.after(deadlineMs, () => end("overdue"));
  for (const signal of signals) {
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort, { once: true });
  }
  return {
    signal: controller.signal,
    get type() {
      return type;
    },
    came,
    cancel() {
      cancelDeadline();
      for (const signal of signals) signal.removeEventListener("abort", abort);
    },
  };
}
