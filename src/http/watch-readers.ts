/**
 * Finds readers that are lost without a word, now and then: those whose cable is cut and those who have stopped reading
 * (reader-watch.ts tells them). A socket that closes is told by the runtime at once.
 */
import type { Clock } from "../clock/port.ts";
import type { Reader } from "../dispatch/reader.ts";
import { messageOf } from "../errors.ts";
import type { Log } from "../log/port.ts";
import type { Connection, PeerState } from "./peer-state.ts";
import { readPeerStates } from "./peer-state.ts";
import { createReaderWatch } from "./reader-watch.ts";

export interface WatchOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly keepaliveMs: number;
  readonly stallMs: number;
  readonly readers: () => readonly Reader[];
}

/** Samples per span that is judged; a loss is found this much later at most. */
const SAMPLES_PER_SPAN = 4;
const MIN_ROUND_MS = 50;

/** Returns a function that ends the watch. */
export function watchReaders({ clock, log, keepaliveMs, stallMs, readers }: WatchOptions): () => void {
  const watches = new WeakMap<Reader, ReturnType<typeof createReaderWatch>>();
  const watchOf = (reader: Reader): ReturnType<typeof createReaderWatch> => {
    const known = watches.get(reader) ?? createReaderWatch({ keepaliveMs, stallMs });
    watches.set(reader, known);
    return known;
  };
  const judge = (reader: Reader, peer: PeerState): void => {
    const sample = { atMs: clock.monotonic(), takenBytes: reader.handedBytes, peer };
    const verdict = watchOf(reader).judge(sample);
    if (verdict === "alive") return;
    log.warn("reader lost", { run: reader.attempt.run.id, why: verdict, waitingBytes: peer.txQueueBytes });
    reader.lose(verdict);
  };
  const round = async (): Promise<void> => {
    const watched = readers().flatMap((reader) => (reader.connection ? [{ reader, at: reader.connection }] : []));
    const peers = await readPeerStates(watched.map(({ at }): Connection => at));
    watched.forEach(({ reader }, index) => {
      const peer = peers[index];
      // A connection that the table does not have is closed: the runtime is about to say so.
      if (peer) judge(reader, peer);
    });
  };
  let looking = false;
  const everyMs = Math.max(MIN_ROUND_MS, Math.min(keepaliveMs, stallMs) / SAMPLES_PER_SPAN);
  return clock.every(everyMs, () => {
    if (looking) return;
    looking = true;
    round()
      .catch((error: unknown) => log.error("readers not looked at", { reason: messageOf(error) }))
      .finally(() => {
        looking = false;
      });
  });
}
