/** What the client throws. A run's own ending is no error: it is a `RunResult`. */
import type { HttpErrorCode } from "../errors.ts";

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
