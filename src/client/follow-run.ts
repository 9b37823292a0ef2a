/**
 * Follows one attempt of a run over as many connections as it takes: every frame once, in order, without a gap.
 *
 *     open → read → (cut) → pause → open at the next seq → … → finish
 *
 * The pod is unreachable when no byte came for `silenceMs`, over however many connections. Keepalives count, but for the
 * one that opens a body; the time that the consumer takes does not. A single connection is given up after half of that,
 * since a cut cable raises no event while the pod at its other end is well.
 */
import type { Clock } from "../clock/port.ts";
import { type BodyWatch, Connection, framesOf, SilenceError } from "./connection.ts";
import { ProtocolError, type RefusedError, SupersededError, UnreachableError } from "./errors.ts";
import { type Course, judgeRefusal, nextRequest, type Position, refused } from "./reattach.ts";
import { type Ending, endingOf, isOutcome, type RunResult } from "./result.ts";
import { neverDelivered, parseObject, reasonOf, refusalOf, type Transport } from "./transport.ts";
import type { Frame, Outcome, Preparation, Settled } from "./wire.ts";

export interface Patience {
  readonly silenceMs: number;
  /** Pause before a connection is tried again, doubled each time, less up to a half. */
  readonly retryBaseMs: number;
  readonly retryCapMs: number;
  /** For how long a first connection that fails is tried again. */
  readonly connectForMs: number;
  /** For how long a connection that died after the outcome is tried again, for the sake of `settled`. */
  readonly settledForMs: number;
  /** How often a dispatch is repeated that was refused as `draining` or `too_many_runs`. */
  readonly startRetries: number;
}

export interface Started {
  readonly attempt: number;
  readonly bootId: string | undefined;
}

export interface Observer {
  started(started: Started): void;
  /** As soon as it is known, before the frames that follow it. */
  outcome(result: RunResult): void;
}

/** An ending, and what a reader of the chunks is to be told: without an error it has seen all of them. */
export interface Finish {
  readonly result: RunResult;
  readonly error?: Error;
}

interface OpenBody {
  readonly connection: Connection;
  readonly body: ReadableStream<Uint8Array>;
  readonly owner: boolean;
}

/** So many answers in a row that break the protocol are no accident. */
const MAX_FAULTS = 3;

export class Follower {
  #position: Position;
  #bootId: string | undefined;
  #preparation: Preparation | undefined;
  #outcome: Outcome | undefined;
  #settled: Settled | undefined;
  /** Its frame was read: with it all chunks. */
  #outcomeRead = false;
  #done = false;
  #deadline = 0;
  #retryUntil = 0;
  #tries = 0;
  #faults = 0;
  /** The last one that was seen. */
  #gap: string | undefined;
  #startRetries = 0;
  /** The last body gave nothing but the keepalive that it opens with. */
  #barren = false;
  /** Why there is no connection. Undefined: nothing went wrong yet. */
  #cause: unknown;

  constructor(
    private readonly transport: Transport,
    private readonly clock: Clock,
    private readonly patience: Patience,
    private readonly course: Course,
    private readonly observer: Observer,
    private readonly stop: AbortSignal,
  ) {
    const reader = course.type === "attach";
    this.#position = {
      attempt: undefined,
      lastSeq: course.after,
      sent: 0,
      reader,
      cancelled: false,
      tombstoned: false,
    };
  }

  get position(): Position {
    return this.#position;
  }

  /** This side has asked for the end of the run. */
  noteCancel(): void {
    this.#position = { ...this.#position, cancelled: true };
  }

  get bootId(): string | undefined {
    return this.#bootId;
  }

  /** The frames from where the course begins. Never throws: how it went is what it returns. */
  async *frames(): AsyncGenerator<Frame, Finish> {
    this.#touch();
    this.#retryUntil = this.clock.monotonic() + this.patience.connectForMs;
    for (;;) {
      const opened = await this.#connect();
      if ("result" in opened) return opened;
      yield* this.#readBody(opened);
      // Begun behind the outcome's frame, it is not known yet; the next request is answered with 204, and then asks.
      if (this.#done && this.#outcome !== undefined) return this.#finish();
    }
  }

  /** The finish of a reader that goes away. */
  detached(): Finish {
    return this.#finish({ type: "detached" });
  }

  async *#readBody({ connection, body, owner }: OpenBody): AsyncGenerator<Frame, void> {
    const watch: BodyWatch = {
      within: (work) => this.#within(connection, work),
      alive: () => this.#alive(),
    };
    try {
      for await (const frame of framesOf(body, watch)) {
        if (!this.#accept(frame)) continue;
        yield frame;
        if (frame.done) return;
        this.#touch();
      }
      if (owner) this.#position = { ...this.#position, reader: true };
      this.#broke(new Error("the body ended without its last frame"));
    } catch (thrown) {
      this.#broke(thrown);
    } finally {
      connection.close();
    }
  }

  /** Takes what a frame says. False: it was read before. */
  #accept(frame: Frame): boolean {
    const { lastSeq } = this.#position;
    if (frame.seq <= lastSeq) return false;
    if (frame.seq > lastSeq + 1) this.#checkGap(lastSeq, frame.seq);
    this.#position = { ...this.#position, lastSeq: frame.seq };
    this.#faults = 0;
    if (frame.preparation) this.#preparation = frame.preparation;
    if (frame.done) this.#done = true;
    if (frame.settled) this.#settled = frame.settled;
    if (isOutcome(frame.outcome)) {
      this.#outcomeRead = true;
      this.#learn(frame.outcome, frame.settled);
    }
    return true;
  }

  /** Frames are missing: they are asked for once more. If they are missing again, the pod's disk has lost them. */
  #checkGap(before: number, seq: number): void {
    const gap = `frame ${seq} came after ${before}`;
    if (this.#gap === gap) return;
    this.#gap = gap;
    throw new ProtocolError(gap);
  }

  #learn(outcome: Outcome, settled: Settled | undefined): void {
    const first = this.#outcome === undefined;
    this.#outcome ??= outcome;
    if (settled) this.#settled = settled;
    if (first) this.observer.outcome(this.#finish().result);
  }

  /** The next body of frames, tried for until there is one or trying makes no sense any more. */
  async #connect(): Promise<OpenBody | Finish> {
    for (;;) {
      if (this.#cause !== undefined && !(await this.#pause())) return this.#givenUp();
      if (this.stop.aborted) return this.detached();
      const connection = new Connection(this.clock, this.stop);
      let opened: OpenBody | Finish | undefined;
      try {
        opened = await this.#open(connection);
      } catch (thrown) {
        this.#broke(thrown);
      }
      if (opened !== undefined && "body" in opened) return opened;
      connection.close();
      if (this.stop.aborted) return this.detached();
      if (opened !== undefined) return opened;
    }
  }

  /** One try. Undefined: ask again, otherwise or later. */
  async #open(connection: Connection): Promise<OpenBody | Finish | undefined> {
    const request = nextRequest(this.course, this.#position);
    const owner = request.method === "POST";
    const { sent } = this.#position;
    if (owner) this.#position = { ...this.#position, sent: sent + 1 };
    const answer = this.transport.open(request, connection.signal).catch((thrown: unknown) => {
      if (neverDelivered(thrown)) this.#position = { ...this.#position, sent };
      throw thrown;
    });
    const response = await this.#within(connection, answer);
    if (response.status === 204) return this.#lookUp(connection);
    if (!response.ok) return this.#judge(await this.#within(connection, refusalOf(response)));
    const attempt = Number(response.headers.get("x-run-attempt"));
    if (!Number.isSafeInteger(attempt) || attempt < 1 || response.body === null) {
      throw new ProtocolError("the answer has no X-Run-Attempt: it is not the daemon's");
    }
    if (attempt !== (this.#attempt() ?? attempt)) return this.#superseded();
    this.#begin(attempt, response.headers.get("x-boot-id") ?? undefined);
    return { connection, body: response.body, owner };
  }

  #begin(attempt: number, bootId: string | undefined): void {
    const first = this.#position.attempt === undefined;
    this.#position = { ...this.#position, attempt };
    this.#bootId = bootId;
    // Headers are a sign of life, but not again and again with nothing behind them.
    if (!this.#barren) {
      this.#touch();
      this.#retryUntil = Number.POSITIVE_INFINITY;
    }
    this.#barren = true;
    if (first) this.observer.started({ attempt, bootId });
  }

  /** Nothing more to read: what became of the run is asked for. */
  async #lookUp(connection: Connection): Promise<Finish | undefined> {
    const path = `runs/${encodeURIComponent(this.course.runId)}`;
    const request = { method: "GET", path, headers: this.course.headers } as const;
    const response = await this.#within(connection, this.transport.open(request, connection.signal));
    if (!response.ok) return this.#judge(await this.#within(connection, refusalOf(response)));
    const run = parseObject(await this.#within(connection, response.text()));
    const attempt = this.#attempt();
    if (attempt !== undefined && run?.attempt !== attempt) return this.#superseded();
    if (isOutcome(run?.outcome)) this.#learn(run.outcome, run.settled as Settled | undefined);
    if (run?.state === "ended" && this.#outcome !== undefined) return this.#finish();
    throw new Error("nothing more to read of a run that has not ended");
  }

  #judge(error: RefusedError): Finish | undefined {
    const verdict = judgeRefusal(error, this.course, this.#position);
    switch (verdict.type) {
      case "end":
        // What was cancelled before it began has nothing to be missed.
        if (verdict.ending.type === "cancelled" && this.#position.attempt === undefined)
          return this.#finish(verdict.ending);
        return this.#finish(verdict.ending, error);
      case "lost":
        return this.#finish(verdict.ending, verdict.error);
      case "outcome":
        this.#learn(verdict.outcome, verdict.settled);
        return this.#finish(undefined, error);
      case "read":
        this.#position = { ...this.#position, reader: true, tombstoned: true };
        return undefined;
      case "retry-start":
        if (this.#startRetries++ >= this.patience.startRetries) return this.#finish(refused(error), error);
        this.#touch();
        this.#retryUntil = this.clock.monotonic() + this.patience.connectForMs + (error.retryAfterMs ?? 0);
        throw error;
      case "retry":
        throw error;
    }
  }

  #attempt(): number | undefined {
    return this.#position.attempt ?? this.course.attempt;
  }

  /** `work` within what a connection may take without a byte. */
  #within<T>(connection: Connection, work: Promise<T>): Promise<T> {
    const left = this.#deadline - this.clock.monotonic();
    return connection.within(Math.max(0, Math.min(this.patience.silenceMs / 2, left)), work);
  }

  #touch(): void {
    this.#deadline = this.clock.monotonic() + this.patience.silenceMs;
  }

  #alive(): void {
    this.#touch();
    this.#barren = false;
    this.#tries = 0;
    this.#retryUntil = Number.POSITIVE_INFINITY;
  }

  #broke(thrown: unknown): void {
    this.#cause = thrown;
    if (thrown instanceof ProtocolError) this.#faults++;
    if (this.#outcome === undefined) return;
    this.#retryUntil = Math.min(this.#retryUntil, this.clock.monotonic() + this.patience.settledForMs);
  }

  /** Waits before the next try; false when there is to be none. */
  async #pause(): Promise<boolean> {
    const { retryBaseMs, retryCapMs } = this.patience;
    const backoff = Math.min(retryCapMs, retryBaseMs * 2 ** this.#tries++) * (0.5 + Math.random() / 2);
    const asked = (this.#cause as Partial<RefusedError>).retryAfterMs ?? 0;
    // A connection that was only quiet is replaced at once: it has cost its time already.
    const wait = this.#cause instanceof SilenceError ? 0 : Math.max(backoff, asked);
    const limit = Math.min(this.#deadline, this.#retryUntil);
    const left = limit - this.clock.monotonic();
    if (this.#faults >= MAX_FAULTS || left <= 0) return false;
    await this.clock.sleep(Math.min(wait, left), this.stop);
    return this.clock.monotonic() < limit;
  }

  #givenUp(): Finish {
    const cause = this.#cause;
    const message = `nothing to be had from the daemon: ${reasonOf(cause)}`;
    const error = new UnreachableError(message, { cause });
    return this.#finish({ type: "unreachable", message, cause }, error);
  }

  #superseded(): Finish {
    const message = "a newer attempt of the run took over";
    return this.#finish({ type: "superseded", message }, new SupersededError(message));
  }

  /** How it ended: as the outcome says, else as `ending` says. Who has read it as far as its outcome misses nothing. */
  #finish(ending: Ending = { type: "detached" }, error?: Error): Finish {
    const outcome = this.#outcome;
    const { attempt, lastSeq } = this.#position;
    const said = outcome ? endingOf(outcome) : ending;
    const result: RunResult = {
      runId: this.course.runId,
      ...(attempt === undefined ? {} : { attempt }),
      ...(this.#bootId === undefined ? {} : { bootId: this.#bootId }),
      lastSeq,
      final: outcome !== undefined || said.type === "superseded" || said.type === "cancelled",
      complete: this.#done,
      ...(this.#preparation ? { preparation: this.#preparation } : {}),
      ...(outcome?.usage ? { usage: outcome.usage } : {}),
      ...(this.#settled ? { settled: this.#settled } : {}),
      ...said,
    };
    return error && !this.#outcomeRead ? { result, error } : { result };
  }
}
