import type { Clock } from "./port.ts";

/** The longest delay that a timer takes; anything longer waits in pieces that nobody will live to see. */
const MAX_TIMER_MS = 2 ** 31 - 1;

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  sleep(ms, signal) {
    if (signal?.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const finish = (): void => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", finish);
        resolve();
      };
      const timer = setTimeout(finish, Math.min(ms, MAX_TIMER_MS));
      signal?.addEventListener("abort", finish, { once: true });
    });
  },
  after(ms, fn) {
    const timer = setTimeout(fn, Math.min(ms, MAX_TIMER_MS));
    return () => clearTimeout(timer);
  },
  every(ms, fn) {
    const timer = setInterval(fn, Math.min(ms, MAX_TIMER_MS));
    return () => clearInterval(timer);
  },
};
