import type { Clock } from "../../src/clock/port.ts";

interface Timer {
  at: number;
  readonly everyMs: number | undefined;
  readonly fn: () => void;
}

/** A clock that stands still until the test moves it. */
export class ManualClock implements Clock {
  #time = 0;
  #timers = new Set<Timer>();

  now = (): number => this.#time;
  monotonic = (): number => this.#time;

  after(ms: number, fn: () => void): () => void {
    return this.#add({ at: this.#time + ms, everyMs: undefined, fn });
  }
  every(ms: number, fn: () => void): () => void {
    return this.#add({ at: this.#time + ms, everyMs: ms, fn });
  }
  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      if (signal?.aborted) return resolve();
      const cancel = this.after(ms, resolve);
      signal?.addEventListener("abort", () => {
        cancel();
        resolve();
      });
    });
  }

  /** Lets everything happen that is due within `ms`, in its order, and what follows from it. */
  async advance(ms: number): Promise<void> {
    const until = this.#time + ms;
    await settle();
    for (;;) {
      const due = [...this.#timers].filter((timer) => timer.at <= until).sort((a, b) => a.at - b.at)[0];
      if (!due) break;
      this.#time = Math.max(this.#time, due.at);
      if (due.everyMs === undefined) this.#timers.delete(due);
      else due.at += due.everyMs;
      due.fn();
      await settle();
    }
    this.#time = until;
    await settle();
  }

  #add(timer: Timer): () => void {
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }
}

/** What is to happen without any time passing, has happened. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 3; turn++) await new Promise((resolve) => setImmediate(resolve));
}
