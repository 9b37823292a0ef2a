/** Turns within a lane: each holder waits until the one before it has given its turn back. */
export interface Lanes {
  /** Resolves with what gives the turn back, or undefined when `signal` aborts first: then there was no turn. */
  take(lane: string, signal: AbortSignal): Promise<(() => void) | undefined>;
}

export function createLanes(): Lanes {
  /** Of each lane the promise that resolves when its last holder is through. */
  const tails = new Map<string, Promise<void>>();
  return {
    async take(lane, signal) {
      const before = tails.get(lane);
      const { promise: through, resolve: pass } = Promise.withResolvers<void>();
      const tail = before ? before.then(() => through) : through;
      tails.set(lane, tail);
      tail.then(() => {
        if (tails.get(lane) === tail) tails.delete(lane);
      });
      if (before && !(await endsBefore(before, signal))) {
        pass();
        return undefined;
      }
      return pass;
    },
  };
}

/** True when the promise resolves, false when the signal aborts before. */
function endsBefore(promise: Promise<void>, signal: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    const abort = (): void => resolve(false);
    if (signal.aborted) return abort();
    signal.addEventListener("abort", abort, { once: true });
    promise.then(() => {
      signal.removeEventListener("abort", abort);
      resolve(true);
    });
  });
}
