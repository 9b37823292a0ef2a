/**
 * Time, as the daemon sees it. Tests drive one of their own; nothing else calls Date.now, performance.now or
 * setTimeout where a test would have to wait for them.
 */
export interface Clock {
  /** Milliseconds since the epoch, for what people read. May jump. */
  now(): number;
  /** Milliseconds of a clock that never jumps, for spans. */
  monotonic(): number;
  /** Resolves after `ms`, or as soon as `signal` aborts. Never rejects. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** Calls `fn` after `ms`; the returned function cancels it. */
  after(ms: number, fn: () => void): () => void;
  /** Calls `fn` every `ms` until the returned function is called. */
  every(ms: number, fn: () => void): () => void;
}
