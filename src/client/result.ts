/** How following a run ended: what the daemon said of the run, or why nothing could be learned. */
import type { RunErrorCode } from "../errors.ts";
import { type RefusalCode, stalenessOf } from "./errors.ts";
import type { GoneReason, Interrupt, Outcome, Preparation, RunError, Settled, Staleness, Usage } from "./wire.ts";

export interface RunFacts {
  readonly runId: string;
  /** Of the answer's headers. Absent: no answer came. */
  readonly attempt?: number;
  /** Of the daemon that answered last. */
  readonly bootId?: string;
  /** Seq of the last frame that was handed over; with `attempt`, the place to go on from. 0: none. */
  readonly lastSeq: number;
  /**
   * True when the daemon itself said how the attempt ended: the turn is not to be run again under this id. Also true
   * when the connection died right after it, and then `settled` may be missing.
   */
  readonly final: boolean;
  /** True when the run was read through its very last frame. */
  readonly complete: boolean;
  readonly preparation?: Preparation;
  readonly usage?: Usage;
  readonly settled?: Settled;
}

export type Ending =
  | { readonly type: "finished" }
  /** The turn waits for a person: `resume` goes on with the answers, on any pod. */
  | { readonly type: "interrupt"; readonly interrupts: readonly Interrupt[]; readonly suspension?: string }
  /** Somebody asked for it. */
  | { readonly type: "cancelled"; readonly message: string }
  /** A newer dispatch took over. */
  | { readonly type: "superseded"; readonly message: string }
  /** The pod could not finish; `unknown_run`: the daemon has lost what it knew of the run. */
  | { readonly type: "gone"; readonly reason: GoneReason | "unknown_run" | "unknown"; readonly message: string }
  /** The harness died or hung. */
  | { readonly type: "crashed"; readonly code: RunErrorCode; readonly message: string }
  /** The turn failed in an orderly way: model, credential, limits, storage. */
  | {
      readonly type: "failed";
      readonly code: RunErrorCode;
      readonly message: string;
      /** Of the code `stale`: no answer was carried out. */
      readonly stale?: Staleness;
    }
  /** Not a byte for `silenceMs`. The run may still be going on. */
  | { readonly type: "unreachable"; readonly message: string; readonly cause: unknown }
  /** The daemon said no. With an `attempt`, the run had begun before it did. */
  | {
      readonly type: "refused";
      readonly status: number;
      readonly code: RefusalCode;
      readonly detail?: string;
      readonly retryAfterMs?: number;
      readonly message: string;
      /** Of the code `stale`: nothing was started. */
      readonly stale?: Staleness;
    }
  /** This side stopped reading. The run goes on. */
  | { readonly type: "detached" };

export type RunResult = RunFacts & Ending;

const ENDING_OF_CODE = {
  cancelled: "cancelled",
  superseded: "superseded",
  sandbox_gone: "gone",
  harness_crashed: "crashed",
  harness_stalled: "crashed",
  turn_failed: "failed",
  mcp_unavailable: "failed",
  unknown_harness: "failed",
  stale: "failed",
  frame_too_large: "failed",
  output_too_large: "failed",
  storage_failed: "failed",
  internal: "failed",
} as const satisfies Record<RunErrorCode, Ending["type"]>;

/** The ending that an outcome means. A code that is newer than this client is a failure. */
export function endingOf(outcome: Outcome): Ending {
  switch (outcome.type) {
    case "finished":
      return { type: "finished" };
    case "interrupt": {
      const { interrupts, suspension } = outcome;
      return { type: "interrupt", interrupts, ...(suspension === undefined ? {} : { suspension }) };
    }
    case "failed":
      return endingOfError(outcome.error);
  }
}

function endingOfError(error: RunError): Ending {
  const { code, message, reason } = error;
  const type = ENDING_OF_CODE[code] ?? "failed";
  switch (type) {
    case "gone":
      return { type, reason: reason ?? "unknown", message };
    case "crashed":
      return { type, code, message };
    case "failed":
      return { type, code, message, ...(code === "stale" ? { stale: stalenessOf(error, message) } : {}) };
    default:
      return { type, message };
  }
}

/** True for what has the shape of an outcome: a reader must not trip over a proxy's JSON. */
export function isOutcome(value: unknown): value is Outcome {
  if (typeof value !== "object" || value === null) return false;
  const { type, error, interrupts } = value as Readonly<Record<string, unknown>>;
  if (type === "interrupt") return Array.isArray(interrupts);
  return type === "finished" || (type === "failed" && typeof error === "object" && error !== null);
}
