/**
 * A frame is one line of a run's output: a JSON object, split at 0x0A only. These types are the wire; the golden
 * files under test/http/golden pin them.
 */
import type { RunErrorCode } from "../errors.ts";

/** A `UIMessageChunk` of the AI SDK. What a harness sends is passed on as it is, so only `type` is known here. */
export interface Chunk {
  readonly type: string;
  readonly [key: string]: unknown;
}

export interface RunError {
  readonly code: RunErrorCode;
  readonly message: string;
  /** Of `sandbox_gone`: why the pod could not finish. */
  readonly reason?: GoneReason;
  /** Of `stale`: the question that it is about, and true when asking again is the only way out. */
  readonly interruptId?: string;
  readonly dead?: boolean;
}

export type GoneReason = "shutdown" | "detached" | "restarted";

/** How much a turn used, as the model's endpoint counted it. */
export interface Usage {
  readonly inputTokens?: number;
  readonly outputTokens?: number;
  readonly cacheReadTokens?: number;
  readonly cacheWriteTokens?: number;
  readonly costUsd?: number;
  readonly turns?: number;
}

/** As much of a question to a person as frames need to know: the rest is for who shows it. */
export interface InterruptOnWire {
  readonly id: string;
  readonly toolCallId: string;
}

/** How a run ended. Final: whoever has read it knows that the turn is not to be run again. */
export type Outcome =
  | { readonly type: "finished"; readonly usage?: Usage }
  /** Parked: a later dispatch brings the answers and the suspension. */
  | {
      readonly type: "interrupt";
      readonly interrupts: readonly InterruptOnWire[];
      readonly suspension: string;
      readonly usage?: Usage;
    }
  | { readonly type: "failed"; readonly error: RunError; readonly usage?: Usage };

export type PreparationState = "none" | "ready" | "timeout" | "failed";
export type SessionState = "fresh" | "local" | "restored" | "stale-session";

/** What the turn got before it started. The first frame of every attempt. */
export interface Preparation {
  readonly home: PreparationState;
  readonly skills: PreparationState;
  readonly waitedMs: number;
  readonly session: SessionState;
  readonly generation?: string;
  readonly reason?: string;
}

export interface Settled {
  readonly saved: boolean;
  readonly generation?: string;
  readonly bytes?: number;
  readonly reason?: string;
}

export interface Frame {
  readonly seq: number;
  readonly chunks: readonly Chunk[];
  readonly preparation?: Preparation;
  readonly waiting?: unknown;
  readonly outcome?: Outcome;
  readonly settled?: Settled;
  readonly error?: RunError;
  readonly done?: true;
}
