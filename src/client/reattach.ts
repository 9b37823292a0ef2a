/**
 * Which request may open the next connection, and what a refusal of it means. Pure: the table that decides whether a
 * turn could run twice.
 *
 * - Until an answer's headers came, nobody knows whether the dispatch arrived: it is repeated with `after: 0`, which
 *   starts an unknown run and attaches to a known one. It never takes over.
 * - Once they came, a request that could start a turn is not sent again. With frames in hand that is POST with
 *   `after: N`, which also makes this side the owner again; with none, the reader's GET.
 * - A body that ended in an orderly way without `done` was handed to another owner. From then on this side is a
 *   reader: two owners that took each other's place back would never stop.
 */
import type { RefusedError } from "./errors.ts";
import { RunGoneError, StaleError, SupersededError } from "./errors.ts";
import { type Ending, isOutcome } from "./result.ts";
import type { Request } from "./transport.ts";
import type { DispatchInput, Outcome, Settled } from "./wire.ts";

/** What is followed, and from where. */
export type Course = (
  | { readonly type: "dispatch"; readonly input: DispatchInput; readonly takeover: boolean }
  | { readonly type: "attach" }
) & {
  readonly runId: string;
  readonly after: number;
  readonly attempt: number | undefined;
  readonly headers: Readonly<Record<string, string>>;
};

/** What is known of the run so far. */
export interface Position {
  /** The attempt that is followed, once an answer's headers named it. */
  readonly attempt: number | undefined;
  readonly lastSeq: number;
  /** Dispatches that may have arrived. */
  readonly sent: number;
  /** This side must not be the owner. */
  readonly reader: boolean;
  /** This side asked for its end: a refusal for that reason is what it asked for. */
  readonly cancelled: boolean;
  /** The daemon refuses the id since somebody cancelled it; what it wrote can still be read. */
  readonly tombstoned: boolean;
}

/** What a proxy says when it could not ask the daemon. */
const GATEWAY_ERRORS: readonly number[] = [502, 503, 504];

export function isGatewayError({ code, status }: RefusedError): boolean {
  return code === "" && GATEWAY_ERRORS.includes(status);
}

/** The request for the next connection. */
export function nextRequest(course: Course, { attempt, lastSeq, sent, reader }: Position): Request {
  const { runId, headers } = course;
  if (course.type === "attach" || reader || (attempt !== undefined && lastSeq === 0)) {
    const wanted = attempt ?? course.attempt;
    const query = `after=${lastSeq}${wanted === undefined ? "" : `&attempt=${wanted}`}`;
    return { method: "GET", path: `runs/${encodeURIComponent(runId)}/frames?${query}`, headers };
  }
  const wanted = attempt ?? course.attempt;
  const takeover = course.takeover && sent === 0;
  const body = JSON.stringify({
    runId,
    ...(takeover ? {} : { after: lastSeq }),
    ...(wanted === undefined ? {} : { attempt: wanted }),
    input: course.input,
  });
  return { method: "POST", path: "dispatch", headers, body };
}

export type Verdict =
  /** Followed as far as it can be; the refusal says why. */
  | { readonly type: "end"; readonly ending: Ending }
  /** The same, and `error` says it better than the refusal. */
  | { readonly type: "lost"; readonly ending: Ending; readonly error: Error }
  /** How the run ended is known, though its frames are not to be had. */
  | { readonly type: "outcome"; readonly outcome: Outcome; readonly settled: Settled | undefined }
  /** The id is refused, what it wrote is not: go on by reading. */
  | { readonly type: "read" }
  /** Nothing was started; it may be asked again later. */
  | { readonly type: "retry-start" }
  /** A matter of the way there: as if the connection had been cut. */
  | { readonly type: "retry" };

/** What a refusal means for a run that is followed. */
export function judgeRefusal(error: RefusedError, course: Course, position: Position): Verdict {
  const begun = position.attempt !== undefined;
  const known = begun || course.attempt !== undefined || (course.type === "dispatch" && course.after > 0);
  switch (error.code) {
    case "superseded": {
      const message = "a newer attempt of the run took over";
      return { type: "lost", ending: { type: "superseded", message }, error: new SupersededError(message) };
    }
    case "unknown_run": {
      if (position.tombstoned) return CANCELLED;
      if (!known) break;
      const message = "the daemon does not know the run any more";
      const error = new RunGoneError(`run ${course.runId}: ${message}`);
      return { type: "lost", ending: { type: "gone", reason: "unknown_run", message }, error };
    }
    case "ended": {
      const { outcome, settled } = error.body;
      if (!isOutcome(outcome)) break;
      return { type: "outcome", outcome, settled: settled as Settled | undefined };
    }
    case "tombstoned":
      if (position.tombstoned) return CANCELLED;
      // A dispatch that was sent once was refused before it could start; one that was repeated may have run.
      if (!known && position.sent < 2) {
        if (position.cancelled) return CANCELLED;
        break;
      }
      return { type: "read" };
    case "draining":
    case "too_many_runs":
      return { type: "retry-start" };
    case "too_many_readers":
      if (begun) return { type: "retry" };
      break;
    case "":
      if (isGatewayError(error)) return { type: "retry" };
  }
  return { type: "end", ending: refused(error) };
}

const CANCELLED: Verdict = { type: "end", ending: { type: "cancelled", message: "the run was cancelled" } };

/** The ending that a refusal is. */
export function refused(error: RefusedError): Ending {
  const { status, code, detail, retryAfterMs, message } = error;
  return {
    type: "refused",
    status,
    code,
    message,
    ...(detail === undefined ? {} : { detail }),
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    ...(error instanceof StaleError ? { stale: error.stale } : {}),
  };
}
