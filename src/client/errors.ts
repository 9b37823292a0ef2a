/** What the client throws. A run's own ending is no error: it is a `RunResult`. */
import type { HttpErrorCode } from "../errors.ts";
import type { Outcome, Staleness } from "./wire.ts";

/** A code of the daemon's closed list; anything else came from something between, or from a newer daemon. */
export type RefusalCode = HttpErrorCode | (string & {});

export class DispatchdError extends Error {
  override name = "DispatchdError";
}

/** The daemon answered and said no. `code` is "" when the answer was not the daemon's JSON. */
export class RefusedError extends DispatchdError {
  override name = "RefusedError";
  constructor(
    readonly status: number,
    readonly code: RefusalCode,
    readonly detail: string | undefined,
    /** From `Retry-After`: when to ask again, in milliseconds. */
    readonly retryAfterMs: number | undefined,
    /** The whole JSON body, for what a code brings beside itself (an outcome, an interrupt). */
    readonly body: Readonly<Record<string, unknown>>,
  ) {
    super(`refused with ${status}${code && ` ${code}`}${detail ? `: ${detail}` : ""}`);
  }
}

/** 409 `stale`: what was answered is not what was asked, or not any more. Nothing was started or carried out. */
export class StaleError extends RefusedError {
  override name = "StaleError";

  get stale(): Staleness {
    return stalenessOf(this.body, this.detail ?? "stale");
  }
}

/** 410 `ended`: the run is over, and takes no answer. */
export class EndedError extends RefusedError {
  override name = "EndedError";

  /** How it ended, where the daemon says so. Suspended: the answers go into a new dispatch. */
  get outcome(): Outcome | undefined {
    const { outcome } = this.body;
    return typeof outcome === "object" && outcome !== null ? (outcome as Outcome) : undefined;
  }
}

/** What a refusal or an error of a run says about a suspension that does not count. */
export function stalenessOf(said: object, message: string): Staleness {
  const { interruptId, reason, dead } = said as Readonly<Record<string, unknown>>;
  return {
    ...(typeof interruptId === "string" ? { interruptId } : {}),
    reason: typeof reason === "string" ? reason : message,
    dead: dead === true,
  };
}

/** Answers that do not fit the questions; found before anything was sent. */
export class AnswersError extends DispatchdError {
  override name = "AnswersError";
  constructor(
    readonly problem: "unknown" | "missing" | "twice",
    readonly interruptId: string,
  ) {
    super(
      {
        unknown: `nothing asks for an answer to "${interruptId}"`,
        missing: `the question "${interruptId}" is not answered: cancel() says that it will not be`,
        twice: `"${interruptId}" is answered twice`,
      }[problem],
    );
  }
}

/** Nothing came from the daemon for too long, or what answers there does not speak its protocol. */
export class UnreachableError extends DispatchdError {
  override name = "UnreachableError";
}

/** The daemon does not know a run any more that it had begun: the pod was replaced without its state. */
export class RunGoneError extends DispatchdError {
  override name = "RunGoneError";
}

/** The attempt that was followed was replaced by a newer one, and the rest of its frames cannot be had. */
export class SupersededError extends DispatchdError {
  override name = "SupersededError";
}

/** An answer that breaks the protocol: a line that is no frame, a gap in seq, headers that are missing. */
export class ProtocolError extends DispatchdError {
  override name = "ProtocolError";
}

/** `/health` was not signed with the token: whoever listens on that port is not the daemon. */
export class ProofError extends DispatchdError {
  override name = "ProofError";
}
