/** Time that all waits of a pod share: while several wait at once, it is spent once. */
import type { Clock } from "../clock/port.ts";

export interface WaitBudget {
  open(): Spending;
}

export interface Spending {
  readonly leftMs: number;
  /** A wait in which nothing was missing is `free`. */
  close(free: boolean): void;
}

export function createWaitBudget(clock: Clock, budgetMs: number): WaitBudget {
  const open = new Set<{ readonly since: number }>();
  let spentMs = 0;
  /** What lies before it is in `spentMs`. */
  let countedUntil = Number.NEGATIVE_INFINITY;
  return {
    open() {
      const wait = { since: clock.monotonic() };
      open.add(wait);
      return {
        get leftMs() {
          const since = Math.max(countedUntil, Math.min(...[...open].map((one) => one.since)));
          return Math.max(0, budgetMs - spentMs - (clock.monotonic() - since));
        },
        close(free) {
          open.delete(wait);
          if (free) return;
          const now = clock.monotonic();
          spentMs += now - Math.max(countedUntil, wait.since);
          countedUntil = now;
        },
      };
    },
  };
}
