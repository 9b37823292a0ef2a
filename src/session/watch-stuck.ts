/**
 * While an earlier flight of a thread hangs in a call that cannot be ended, it holds up others of the thread's folder. What
 * somebody waits for (the look before a run, the save after it) then gets a moment, and goes on with what the pod has. What
 * nobody waits for keeps its time: the volume may answer all but that one call.
 */
import type { Clock } from "../clock/port.ts";
import type { OrgFs } from "../orgfs/port.ts";

/** From when it is known that a flight hangs; for a listing that is no more than slow. */
const MOMENT_MS = 2000;
const LOOK_EVERY_MS = 100;

export interface StuckWatch extends Disposable {
  /** Aborts when the moment is over. */
  readonly signal: AbortSignal;
}

export function watchStuck(
  clock: Clock,
  { orgFs, lane }: { readonly orgFs: OrgFs; readonly lane: string },
  /** Aborts when there is no other time to try: from then on nothing is given up. */
  last?: AbortSignal,
): StuckWatch {
  const over = new AbortController();
  let since: number | undefined;
  const look = (): void => {
    since = orgFs.isStuck(lane) ? (since ?? clock.monotonic()) : undefined;
    if (since !== undefined && !last?.aborted && clock.monotonic() - since >= MOMENT_MS) over.abort();
  };
  look();
  const stop = clock.every(LOOK_EVERY_MS, look);
  return { signal: over.signal, [Symbol.dispose]: stop };
}
