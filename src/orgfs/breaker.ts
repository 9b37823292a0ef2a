/**
 * When flights to a volume are no longer worth a process:
 *
 *     closed → open      at the fourth overdue flight in a row
 *     open → probing     a probe is under way
 *     probing → open     it did not come back
 *     probing → closed   it did; but a single overdue flight opens it again, until one has come back
 *
 * So a volume that lists its folders and hangs at its files costs one process more each time, and not four.
 */
export type BreakerState = "closed" | "open" | "probing";

const STRIKES = 4;

export interface Breaker {
  readonly state: BreakerState;
  /** A flight did not come back in time. True when that opens the breaker. */
  overdue(): boolean;
  /** A flight came back, with whatever result. */
  answered(): void;
  probing(): void;
  probed(answered: boolean): void;
}

export function createBreaker(): Breaker {
  let state: BreakerState = "closed";
  let strikes = 0;
  return {
    get state() {
      return state;
    },
    overdue() {
      strikes++;
      if (state !== "closed" || strikes < STRIKES) return false;
      state = "open";
      return true;
    },
    answered() {
      if (state === "closed") strikes = 0;
    },
    probing() {
      state = "probing";
    },
    probed(answered) {
      state = answered ? "closed" : "open";
      if (answered) strikes = STRIKES - 1;
    },
  };
}
