/** Tells from samples of one connection whether its reader is lost. Pure: the caller samples, and acts. */
import type { PeerState } from "./peer-state.ts";

export interface ReaderSample {
  /** Of a clock that does not jump. */
  readonly atMs: number;
  /** All bytes of the body that the server has taken for this reader so far. */
  readonly takenBytes: number;
  readonly peer: PeerState;
}

/**
 * - `cut`: the peer has acknowledged nothing for two keepalives, although asked again.
 * - `stalled`: the peer answers, or did, but has taken no byte for the stall time while bytes wait.
 */
export type ReaderVerdict = "alive" | "cut" | "stalled";

export interface ReaderLimits {
  readonly keepaliveMs: number;
  readonly stallMs: number;
}

/**
 * Judges one reader. Between two samples a peer may have acknowledged much and the queue be as long as before, because
 * it was filled up again; so it is not the queue that is compared but what has been taken less what is queued. That
 * grows with every acknowledgement, and otherwise at most once, by what the server keeps in its own buffer.
 */
export function createReaderWatch(limits: ReaderLimits): { judge(sample: ReaderSample): ReaderVerdict } {
  let last: ReaderSample | undefined;
  let silentSince: number | undefined;
  let untakenSince: number | undefined;
  return {
    judge(sample) {
      const { atMs, peer } = sample;
      const before = last ?? sample;
      last = sample;
      const took = peer.txQueueBytes === 0 || through(sample) > through(before);
      const answered =
        peer.retransmits + peer.probes === 0 ||
        peer.retransmits < before.peer.retransmits ||
        peer.probes < before.peer.probes;
      untakenSince = took ? undefined : (untakenSince ?? atMs);
      silentSince = took || answered ? undefined : (silentSince ?? atMs);
      if (silentSince !== undefined && atMs - silentSince >= 2 * limits.keepaliveMs) return "cut";
      if (untakenSince !== undefined && atMs - untakenSince >= limits.stallMs) return "stalled";
      return "alive";
    },
  };
}

function through({ takenBytes, peer }: ReaderSample): number {
  return takenBytes - peer.txQueueBytes;
}
