/**
 * Saves while a turn goes on. The first as soon as the transcript holds what the user said, so that a pod that dies early
 * costs no message; then every `everyMs` if it grew, but at least ten times as long after the last one as that took.
 */
import type { Clock } from "../clock/port.ts";

export interface CheckpointParts {
  readonly clock: Clock;
  readonly everyMs: number;
  /** Bytes of the main transcript; 0 when there is none. */
  readonly size: () => Promise<number>;
  /** As `size`, when the run began; 0 for a transcript that it did not begin with. */
  readonly sizeBefore: () => number;
  /** Does what came to the transcript hold the user's message? */
  readonly holdsMessage: () => Promise<boolean>;
  /** False: no more of them. */
  readonly save: () => Promise<boolean>;
}

const LOOK_EVERY_MS = 250;
const TIMES_ITS_LENGTH = 10;

/** Goes on until the signal aborts; resolves when no save of it is under way any more. Never rejects if `save` does not. */
export async function checkpoint(parts: CheckpointParts, signal: AbortSignal): Promise<void> {
  const { clock, everyMs } = parts;
  const startedAt = clock.monotonic();
  while (!signal.aborted && !(await parts.holdsMessage())) {
    if (clock.monotonic() - startedAt >= everyMs && (await hasChanged(parts))) break;
    await clock.sleep(LOOK_EVERY_MS, signal);
  }
  let saved = parts.sizeBefore();
  while (!signal.aborted) {
    const size = await parts.size();
    const from = clock.monotonic();
    if (size > 0 && size !== saved) {
      if (!(await parts.save())) return;
      saved = size;
    }
    const took = clock.monotonic() - from;
    await clock.sleep(Math.max(everyMs, TIMES_ITS_LENGTH * took), signal);
  }
}

/** A transcript that was compacted is shorter than it was. */
async function hasChanged({ size, sizeBefore }: CheckpointParts): Promise<boolean> {
  const bytes = await size();
  return bytes > 0 && bytes !== sizeBefore();
}
