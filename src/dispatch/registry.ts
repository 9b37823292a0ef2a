/**
 * Which runs there are, and what a dispatch means for them: the table of section 6, in one synchronous step, so that
 * two dispatches in one millisecond cannot both start.
 *
 * One thread has one writer: `claim` ends the attempt that works on the thread and hands it to the new one, which
 * waits for it to be released. An attempt that waits can itself be taken over; the chain holds, because it is
 * released no earlier than what it waited for.
 */
import { HttpError } from "../errors.ts";
import type { RunSummary } from "../frames/run-summary.ts";
import type { Suspension } from "../suspension/port.ts";
import type { EndedRuns } from "./ended-runs.ts";
import type { DispatchBody } from "./input.ts";
import type { Attempt } from "./run.ts";
import { Run } from "./run.ts";
import type { Resume, StaleResume } from "./suspensions.ts";
import type { Tombstones } from "./tombstones.ts";

export type Claim =
  /** A new attempt. `predecessor` works on the same thread and was told to stop. */
  | { readonly type: "start"; readonly attempt: Attempt; readonly predecessor: Attempt | undefined }
  /** Read the run from `from`: a byte of the log, or the frame after a seq. Its poster becomes the owner of a live one. */
  | { readonly type: "attach"; readonly attempt: Attempt; readonly from: ReadFrom }
  /** There is nothing after what the caller has. */
  | { readonly type: "nothing" };

export type ReadFrom = { readonly offset: number } | { readonly after: number };

export interface RegistryOptions {
  readonly maxRuns: number;
  readonly tombstones: Tombstones;
  readonly endedRuns: EndedRuns;
  readonly draining: () => boolean;
  /** Seconds for `Retry-After`. */
  readonly retryAfterS: number;
  /** True when the attempt's owner still has its connection: looked up, not assumed. */
  readonly ownerIsThere: (attempt: Attempt) => boolean;
  readonly createAttempt: (run: Run, number: number) => Attempt;
  readonly folderOf: (runId: string) => string;
}

export class RunRegistry {
  readonly #runs = new Map<string, Run>();
  /** The newest attempt of every thread that has one which has not ended. */
  readonly #writers = new Map<string, Attempt>();

  constructor(private readonly options: RegistryOptions) {}

  /** Decides and claims. Throws the HttpError of a refusal, and then has changed nothing. */
  claim(body: DispatchBody, resume?: Resume | StaleResume): Claim {
    const { tombstones, endedRuns } = this.options;
    if (tombstones.has(body.runId)) throw new HttpError("tombstoned", "the run was cancelled");
    const known = this.#runs.get(body.runId)?.attempt;
    if (known) {
      if (known.run.threadId !== body.input.threadId) {
        throw new HttpError("run_conflict", "the run id belongs to another thread");
      }
      const attached = this.#attach(known, body);
      if (attached) return attached;
    } else {
      const dropped = endedRuns.get(body.runId);
      if (dropped) {
        if (dropped.threadId !== body.input.threadId) {
          throw new HttpError("run_conflict", "the run id belongs to another thread");
        }
        throw endedError(dropped);
      }
      // Who names an attempt, or has frames, speaks of a run that began: it is not begun a second time.
      if ((body.after ?? 0) > 0 || body.attempt !== undefined)
        throw new HttpError("unknown_run", "the run is not known here");
    }
    return this.#start(body, resume);
  }

  /** A reader's place in a run, by the rules of `GET /runs/:id/frames`. Undefined: nothing after `after`. */
  read(
    runId: string,
    after: number,
    attemptNumber: number | undefined,
  ): { attempt: Attempt; from: ReadFrom } | undefined {
    const attempt = this.find(runId);
    checkAttempt(attempt, attemptNumber);
    return isPastEnd(attempt, after) ? undefined : { attempt, from: { after } };
  }

  /** The newest attempt of a run. Throws `ended` for a dropped one, `unknown_run` else. */
  find(runId: string): Attempt {
    const attempt = this.#runs.get(runId)?.attempt;
    if (attempt) return attempt;
    const dropped = this.options.endedRuns.get(runId);
    if (dropped) throw endedError(dropped);
    throw new HttpError("unknown_run", "the run is not known here");
  }

  summary(runId: string): RunSummary {
    const summary = this.#runs.get(runId)?.attempt?.summary() ?? this.options.endedRuns.get(runId);
    if (!summary) throw new HttpError("unknown_run", "the run is not known here");
    return summary;
  }

  attempts(): Attempt[] {
    return [...this.#runs.values()].flatMap((run) => (run.attempt ? [run.attempt] : []));
  }

  /** Attempts without an outcome. */
  get liveCount(): number {
    let count = 0;
    for (const run of this.#runs.values()) if (run.attempt?.live) count++;
    return count;
  }

  get(runId: string): Attempt | undefined {
    return this.#runs.get(runId)?.attempt;
  }

  /** What this pod knows of without looking: whoever is refused here has ended no other run. */
  #refuseUsed({ id, runId: asker, interrupts }: Suspension, runId: string, predecessor: Attempt | undefined): void {
    // No turn is ended for one that may not start: least of all the one that goes on with it.
    const user = predecessor?.live
      ? this.attempts().find((each) => each.resumes === id && (each === predecessor || each.hasResumed))
      : undefined;
    if (user && user.run.id !== runId) {
      const reason = `the suspension ${user.hasResumed ? "was used" : "is about to be used"} by the run ${user.run.id}`;
      // One that has not used it yet may fail before it does: then the answers are still good.
      throw staleError({ interruptId: interrupts[0]?.id, reason, dead: user.hasResumed });
    }
    const asked = this.#runs.get(asker)?.attempt;
    // A turn that failed may have lost its answers: they may be brought again.
    if (!asked || asked.outcome?.type === "failed") return;
    const closed = interrupts.find((interrupt) => asked.answered.has(interrupt.id));
    if (closed) {
      throw staleError({ interruptId: closed.id, reason: "it was answered while the run waited", dead: true });
    }
  }

  /** Takes in a run of an earlier daemon, ended. */
  adopt(attempt: Attempt): void {
    this.#runs.set(attempt.run.id, attempt.run);
    attempt.run.attempt = attempt;
  }

  drop(run: Run): void {
    this.#runs.delete(run.id);
  }

  /** For an attempt that attaches or replays; undefined when it has to start anew (take over). */
  #attach(known: Attempt, body: DispatchBody): Claim | undefined {
    checkAttempt(known, body.attempt);
    const { after } = body;
    if (after !== undefined) {
      return isPastEnd(known, after) ? { type: "nothing" } : { type: "attach", attempt: known, from: { after } };
    }
    if (!known.live) return { type: "attach", attempt: known, from: { offset: 0 } };
    if (known.owner && this.options.ownerIsThere(known)) return undefined;
    return { type: "attach", attempt: known, from: { offset: known.owner?.wholeOffset ?? known.ownerOffset } };
  }

  #start(body: DispatchBody, resume: Resume | StaleResume | undefined): Claim {
    const { draining, retryAfterS, maxRuns } = this.options;
    if (draining()) {
      throw new HttpError("draining", "the daemon is shutting down", {}, { "Retry-After": String(retryAfterS) });
    }
    if (resume && "reason" in resume) throw staleError(resume);
    const { threadId } = body.input;
    const predecessor = this.#writers.get(threadId);
    const suspension = resume?.suspension;
    if (suspension) this.#refuseUsed(suspension, body.runId, predecessor);
    if (this.liveCount - (predecessor?.live ? 1 : 0) >= maxRuns) {
      throw new HttpError("too_many_runs", `${maxRuns} runs are at work`);
    }
    predecessor?.stop({ code: "superseded", message: "a newer dispatch took over" });
    const run = this.#runs.get(body.runId) ?? new Run(body.runId, threadId, this.options.folderOf(body.runId));
    const attempt = this.options.createAttempt(run, (run.attempt?.number ?? 0) + 1);
    attempt.resumes = suspension?.id;
    run.attempt = attempt;
    this.#runs.set(run.id, run);
    this.#writers.set(threadId, attempt);
    void attempt.ended.then(() => {
      if (this.#writers.get(threadId) === attempt) this.#writers.delete(threadId);
    });
    // One that only saves is told, and not waited for.
    return { type: "start", attempt, predecessor: predecessor?.isReleased ? undefined : predecessor };
  }
}

function staleError({
  interruptId,
  reason,
  dead,
}: {
  readonly interruptId?: string | undefined;
  readonly reason: string;
  readonly dead: boolean;
}): HttpError {
  return new HttpError("stale", reason, { ...(interruptId ? { interruptId } : {}), reason, dead });
}

function checkAttempt(attempt: Attempt, asked: number | undefined): void {
  if (asked === undefined || asked === attempt.number) return;
  throw new HttpError("superseded", `the newest attempt is ${attempt.number}`, { attempt: attempt.number });
}

/** Nothing comes after `after`. What a live run has not written yet cannot be asked for. */
function isPastEnd(attempt: Attempt, after: number): boolean {
  if (attempt.state === "ended") return after >= attempt.lastSeq;
  if (after > attempt.lastSeq) throw new HttpError("bad_after", `the run has written ${attempt.lastSeq} frames`);
  return false;
}

function endedError(run: RunSummary): HttpError {
  const { outcome, settled, error, lastSeq, attempt } = run;
  return new HttpError("ended", "the run has ended and its frames were dropped", {
    outcome,
    settled,
    ...(error ? { runError: error } : {}),
    lastSeq,
    attempt,
  });
}
