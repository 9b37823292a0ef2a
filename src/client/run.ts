/// <reference lib="esnext.disposable" preserve="true" />
/**
 * A run as a caller holds it. The request goes out when the run is made, whether anybody reads or not; frames are
 * fetched as they are asked for, so a slow consumer slows the daemon's writing and not our memory. Who reads is
 * decided once: the iteration over chunks, the one over frames, `stream()`, or else `result()`, which reads for itself.
 */
import type { UIMessageChunk } from "ai";
import type { Finish, Follower, Observer, Started } from "./follow-run.ts";
import { OpenQuestions } from "./open-questions.ts";
import type { RunResult } from "./result.ts";
import type { Suspended } from "./resume.ts";
import type { Answer, DispatchInput, Frame, Interrupt, UserMessage, Waiting } from "./wire.ts";

export interface RunParts {
  readonly runId: string;
  readonly follow: (observer: Observer, stop: AbortSignal) => Follower;
  readonly cancel: (options: { wait?: boolean }) => Promise<void>;
  readonly answer: (answers: readonly Answer[]) => Promise<number>;
  readonly resume: (suspended: Suspended, answers: readonly Answer[], options: RunResumeOptions) => Run;
  readonly onWaiting: ((waiting: Waiting, run: Run) => void) | undefined;
  readonly signal: AbortSignal | undefined;
}

export interface RunResumeOptions {
  /** Of the next run. Made up when missing. */
  readonly runId?: string;
  /** A text of the person beside the answers. */
  readonly userMessage?: UserMessage;
  /** Over what the suspended run was dispatched with, key by key. */
  readonly input?: Partial<DispatchInput>;
  /** Called as soon as the next run asks, as in a dispatch. */
  readonly onWaiting?: (waiting: Waiting, run: Run) => void;
  /** Stops reading the next run; it goes on. */
  readonly signal?: AbortSignal;
  readonly headers?: Readonly<Record<string, string>>;
}

export class Run implements AsyncIterable<UIMessageChunk>, AsyncDisposable {
  readonly runId: string;
  readonly #follower: Follower;
  readonly #frames: AsyncGenerator<Frame, Finish>;
  readonly #stop = new AbortController();
  readonly #parts: RunParts;
  readonly #questions = new OpenQuestions();
  readonly #started = new Deferred<Started>();
  readonly #outcome = new Deferred<RunResult>();
  readonly #result = new Deferred<RunResult>();
  /** The request is on its way before anybody asks for a frame. */
  #first: Promise<IteratorResult<Frame, Finish>> | undefined;
  #taken = false;
  #abortReason: unknown;
  #suspended: Suspended | undefined;

  constructor(parts: RunParts) {
    const { runId, follow, signal } = parts;
    this.runId = runId;
    this.#parts = parts;
    const observer: Observer = {
      started: (started) => this.#started.resolve(started),
      outcome: (result) => {
        this.#end(result);
        this.#outcome.resolve(result);
      },
    };
    this.#follower = follow(observer, this.#stop.signal);
    this.#frames = this.#follower.frames();
    this.#first = this.#next();
    this.#first.catch(() => {}); // Whoever asks for the first frame is told.
    if (signal === undefined) return;
    const abort = (): void => {
      this.#abortReason = signal.reason;
      this.detach();
    };
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort, { once: true });
    void this.#result.promise.then(() => signal.removeEventListener("abort", abort));
  }

  /** Seq of the last frame that was read; with `attempt`, where another reader can go on. */
  get lastSeq(): number {
    return this.#follower.position.lastSeq;
  }

  /** The attempt that is followed, once the daemon has named it. */
  get attempt(): number | undefined {
    return this.#follower.position.attempt;
  }

  /**
   * The questions that are open, as far as the run was read: of the newest `waiting` frame, less what was answered since;
   * once it is suspended, those of its outcome.
   */
  get interrupts(): readonly Interrupt[] {
    return this.#questions.interrupts;
  }

  /** While the run waits for answers: the questions, and until when it does. */
  get waiting(): Waiting | undefined {
    return this.#questions.waiting;
  }

  /**
   * Resolves when the daemon has taken the run and its headers came; rejects with what the iteration would throw.
   * No turn needs to have begun by then: the preparation comes after it.
   */
  started(): Promise<Started> {
    return this.#started.promise;
  }

  /** The result as soon as the outcome is known, before the settling; the final result where none becomes known. */
  outcome(): Promise<RunResult> {
    this.#readUnlessTaken();
    return this.#outcome.promise;
  }

  /**
   * How it ended. Never rejects. Where nothing else reads the run this does, and iterating afterwards is an error:
   * begin to iterate first to have both.
   */
  result(): Promise<RunResult> {
    this.#readUnlessTaken();
    return this.#result.promise;
  }

  /** The chunks, in order. Throws as `frames()` does. */
  [Symbol.asyncIterator](): AsyncGenerator<UIMessageChunk, void> {
    return chunksOf(this.frames());
  }

  /**
   * Every frame once, in order. Ends when the run has been read as far as its outcome. Throws RefusedError,
   * UnreachableError, RunGoneError or SupersededError when there are frames that cannot be had, and the reason of the
   * caller's signal. Leaving the loop closes the connection and cancels nothing.
   */
  frames(): AsyncGenerator<Frame, void> {
    if (this.#taken) throw new TypeError("this run is read already; a run has one reader, attach() makes another");
    this.#taken = true;
    return this.#read();
  }

  /** The chunks as a stream, for `readUIMessageStream` of `ai` or a response. Cancelling it detaches. */
  stream(): ReadableStream<UIMessageChunk> {
    const chunks = this[Symbol.asyncIterator]();
    return new ReadableStream<UIMessageChunk>({
      pull: async (controller) => {
        const next = await chunks.next();
        if (next.done) controller.close();
        else controller.enqueue(next.value);
      },
      cancel: () => this.detach(),
    });
  }

  /** Stops reading and closes the connection. The run goes on; without any reader for three minutes it is ended. */
  detach(): void {
    if (this.#stop.signal.aborted) return;
    this.#stop.abort(new Error("detached"));
    const detached = this.#follower.detached();
    void this.#frames.return(detached).then(({ value }) => this.#settle(value as Finish));
  }

  /**
   * Answers questions of the run while it waits: all of these or none; others may follow. Sent again where a connection
   * breaks, since the same answer counts once. Resolves with their number when the daemon has taken them. Throws
   * StaleError for what is not asked, or not any longer: not `dead`, the answers are good for `resume`. EndedError when
   * the run is over, RefusedError (`bad_input`) for a payload that does not fit.
   */
  async answer(answers: readonly Answer[]): Promise<number> {
    const accepted = await this.#parts.answer(answers);
    this.#questions.close(answers.map(({ interruptId }) => interruptId));
    return accepted;
  }

  /**
   * Goes on with a run that ended with open questions (`interrupt`): dispatches the next one of its thread, with the
   * input of this one, an answer to each question, and the suspension. Throws AnswersError when a question has no answer
   * or an answer no question, TypeError when the run is not suspended, or `options.input` lacks what an attached run
   * cannot know. On another pod the thread is there once `result()` has resolved.
   */
  resume(answers: readonly Answer[], options: RunResumeOptions = {}): Run {
    if (!this.#suspended)
      throw new TypeError(`run ${this.runId} is not known to be suspended: there is nothing to resume`);
    return this.#parts.resume(this.#suspended, answers, options);
  }

  /** Asks the daemon to end the run; its frames then come to an end by themselves. */
  cancel(options: { wait?: boolean } = {}): Promise<void> {
    // It may overtake the dispatch, which is then refused.
    this.#follower.noteCancel();
    return this.#parts.cancel(options);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.detach();
    await this.#result.promise;
  }

  async *#read(): AsyncGenerator<Frame, void> {
    try {
      for (;;) {
        const first = this.#first;
        this.#first = undefined;
        const next = await (first ?? this.#next());
        if (!next.done) yield next.value;
        else if (this.#abortReason !== undefined) throw this.#abortReason;
        else if (next.value.error) throw next.value.error;
        else return;
      }
    } finally {
      this.detach();
    }
  }

  async #next(): Promise<IteratorResult<Frame, Finish>> {
    const next = await this.#frames.next();
    if (!next.done) {
      this.#note(next.value);
      return next;
    }
    // Left between two frames: the finish was `detach`'s, and the generator has none any more.
    const value = (next.value as Finish | undefined) ?? this.#follower.detached();
    this.#settle(value);
    return { done: true, value };
  }

  #note(frame: Frame): void {
    this.#questions.note(frame);
    const { onWaiting } = this.#parts;
    const { waiting } = this.#questions;
    // In a step of its own: what the caller throws is the caller's, and no fault of the connection.
    if (frame.waiting && waiting && onWaiting) queueMicrotask(() => onWaiting(waiting, this));
  }

  #end(result: RunResult): void {
    this.#questions.end(result);
    if (result.type === "interrupt") this.#suspended = result;
  }

  #settle({ result, error }: Finish): void {
    this.#end(result);
    this.#started.reject(error ?? new Error("detached"));
    this.#outcome.resolve(result);
    this.#result.resolve(result);
  }

  #readUnlessTaken(): void {
    if (this.#taken) return;
    const frames = this.frames();
    const drain = async (): Promise<void> => {
      for await (const _ of frames);
    };
    drain().catch(() => {}); // The result says what went wrong.
  }
}

async function* chunksOf(frames: AsyncGenerator<Frame, void>): AsyncGenerator<UIMessageChunk, void> {
  for await (const frame of frames) yield* frame.chunks as unknown as readonly UIMessageChunk[];
}

/** A promise that is settled from outside, once. Its rejection is for whoever looks. */
class Deferred<T> {
  readonly promise: Promise<T>;
  resolve: (value: T) => void = () => {};
  reject: (reason: unknown) => void = () => {};

  constructor() {
    this.promise = new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
    this.promise.catch(() => {});
  }
}
