/**
 * A run and its attempts. An attempt goes `preparing → running → settling → ended` and never back:
 *
 * - It has one outcome. Whoever gives it first decides (`conclude`); what the harness prints afterwards is ignored.
 * - `stop(reason)` is how anything ends it: cancel, takeover, shutdown, detach, stall. Before the outcome the reason
 *   becomes the outcome; after it, it only shortens the settling. One signal carries it to whatever waits.
 * - `released` resolves when its process tree can run no more code and its session's pointer is written: then the
 *   thread may have its next writer.
 * - It belongs to itself: readers come and go, and only the loss of all of them for `detachGraceMs` stops it.
 */
import type { Clock } from "../clock/port.ts";
import { endOfMessage } from "../frames/end-of-message.ts";
import type { Chunk, Frame, GoneReason, Outcome, Preparation, RunError, Settled } from "../frames/frame.ts";
import type { HarnessFrame } from "../frames/harness-line.ts";
import { OpenParts, type OpenState } from "../frames/open-parts.ts";
import type { LargeFrame } from "../frames/read-large-line.ts";
import type { RunState, RunSummary } from "../frames/run-summary.ts";
import type { Waiting } from "../tools/open-questions.ts";
import type { ToolSpec } from "../tools/port.ts";
import type { RunTools } from "../tools/run-tools.ts";
import type { DispatchInput } from "./input.ts";
import type { Reader } from "./reader.ts";
import type { RunLog } from "./run-log.ts";
import type { Resume } from "./suspensions.ts";

const NEWLINE = 0x0a;
/** `{"seq":`, a comma, a newline, and a number as long as they get. */
const SEQ_TEXT_BYTES = 32;

/** Why an attempt is ended from outside. */
export interface StopReason {
  readonly code: RunError["code"];
  readonly message: string;
  readonly reason?: GoneReason;
}

export interface AttemptHooks {
  /** Called in the step in which the outcome is decided. */
  readonly onOutcome: (attempt: Attempt) => void;
  /** `reader` came or went. */
  readonly onReader: (attempt: Attempt, reader: Reader) => void;
}

export class Attempt {
  state: RunState = "preparing";
  outcome: Outcome | undefined;
  settled: Settled | undefined;
  /** True when `stop` decided the outcome. */
  stopped = false;
  isReleased = false;
  detachedAt: number | undefined;
  endedAt: number | undefined;
  lastSeq = 0;
  owner: Reader | undefined;
  /** How far whole frames were handed to the last owner, for a dispatch that takes up where it was lost. */
  ownerOffset = 0;
  readonly readers = new Set<Reader>();
  readonly parts = new OpenParts();
  /** While the harness runs. */
  tools: RunTools | undefined;
  /** The suspension that it goes on from. */
  resumes: string | undefined;
  /** That suspension is used. */
  hasResumed = false;
  /** Its questions that were answered while it waited: a suspension of them is good for no run. */
  readonly answered = new Set<string>();
  /** Where a runner outside the pod answers. */
  relayDirectory: string | undefined;
  /** For people, and for spans. */
  readonly startedAt: number;
  readonly begunAt: number;
  /** Resolves with the outcome's decision. */
  readonly concluded: Promise<void>;
  /** Resolves when nothing of it can run code any more: the thread is free for its next run. */
  readonly released: Promise<void>;
  readonly ended: Promise<void>;
  readonly #conclude: () => void;
  readonly #release: () => void;
  readonly #end: () => void;
  readonly #stop = new AbortController();
  readonly #superseded = new AbortController();

  constructor(
    readonly run: Run,
    readonly number: number,
    readonly log: RunLog,
    private readonly clock: Clock,
    private readonly hooks: AttemptHooks,
    startedAt = clock.now(),
  ) {
    this.startedAt = startedAt;
    this.begunAt = clock.monotonic();
    ({ promise: this.concluded, resolve: this.#conclude } = Promise.withResolvers<void>());
    ({ promise: this.released, resolve: this.#release } = Promise.withResolvers<void>());
    ({ promise: this.ended, resolve: this.#end } = Promise.withResolvers<void>());
  }

  /** Aborts at the first `stop`, with its StopReason. */
  get signal(): AbortSignal {
    return this.#stop.signal;
  }
  /** Aborts when another run wants the thread, before the outcome or after it. */
  get superseded(): AbortSignal {
    return this.#superseded.signal;
  }
  get live(): boolean {
    return this.outcome === undefined;
  }

  stop(reason: StopReason): void {
    if (this.conclude({ type: "failed", error: reason })) this.stopped = true;
    if (!this.#stop.signal.aborted) this.#stop.abort(reason);
    if (reason.code === "superseded") this.#superseded.abort();
  }

  /** Decides the outcome and sends it. False when it was decided already. */
  conclude(outcome: Outcome): boolean {
    if (this.outcome !== undefined) return false;
    this.outcome = outcome;
    this.state = "settling";
    this.emit({ chunks: endOfMessage(this.parts, outcome), outcome });
    this.#conclude();
    this.hooks.onOutcome(this);
    return true;
  }

  prepared(preparation: Preparation): void {
    if (this.live) this.emit({ preparation });
  }

  /** A frame of the daemon's own, about the run's tools. */
  say(chunks: readonly Chunk[], waiting?: Waiting): void {
    if (!this.live) return;
    for (const chunk of chunks) this.parts.note(chunk);
    this.emit({ chunks, ...(waiting ? { waiting } : {}) });
  }

  /**
   * As `stop`, for what is nobody's wish: a turn that waits for a person, and for nothing else, is parked instead. Where
   * only subagents ask, it goes on without the answer; so only where there is another end to it.
   */
  stopOrPark(reason: StopReason): void {
    const waits = this.live ? this.tools?.waitsOnly(this.parts.openCalls) : undefined;
    const mayGoOn = reason.reason === "detached" || reason.code === "harness_stalled";
    if (waits === "turn" || (waits === "subagent" && mayGoOn)) this.tools?.park(reason.message);
    else this.stop(reason);
  }

  /** Frames of the harness, in order. Nothing after the outcome. */
  forward(frames: readonly HarnessFrame[], ascii: boolean): void {
    if (!this.live || frames.length === 0) return;
    let text = "";
    for (const frame of frames) {
      for (const chunk of frame.chunks) this.parts.note(chunk);
      text += `{"seq":${++this.lastSeq},${frame.body}\n`;
    }
    this.log.append(Buffer.from(text, ascii ? "latin1" : "utf8"));
  }

  /** As `forward`, for frames whose bodies are ASCII text that begins behind the brace at `starts` in `source`. */
  forwardCopies(frames: readonly HarnessFrame[], source: Buffer, starts: readonly number[]): void {
    if (!this.live || frames.length === 0) return;
    const lines = Buffer.allocUnsafeSlow(source.length + frames.length * SEQ_TEXT_BYTES);
    let at = 0;
    for (const [index, { chunks, body }] of frames.entries()) {
      for (const chunk of chunks) this.parts.note(chunk);
      at += lines.write(`{"seq":${++this.lastSeq},`, at, "latin1");
      const start = (starts[index] ?? 0) + 1;
      at += source.copy(lines, at, start, start + body.length);
      lines[at++] = NEWLINE;
    }
    this.log.append(lines.subarray(0, at));
  }

  /** As `forward`, for one frame whose text is bytes already. `before` is what was open when it was sent to be read. */
  forwardBytes({ body, open }: Pick<LargeFrame, "body" | "open">, before: OpenState): void {
    if (!this.live) return;
    this.parts.noteChange(before, open);
    this.log.append(Buffer.concat([Buffer.from(`{"seq":${++this.lastSeq},`), body, Buffer.from("\n")]));
  }

  release(): void {
    this.isReleased = true;
    this.#release();
  }

  /** The last frame. Resolves when it is readable and the log is closed for writing. */
  async end(settled: Settled): Promise<void> {
    const error = this.outcome?.type === "failed" ? this.outcome.error : undefined;
    // Before the frame: who has read it and asks finds the run ended.
    this.settled = settled;
    this.state = "ended";
    this.endedAt = this.clock.now();
    this.emit({ settled, ...(error ? { error } : {}), done: true });
    await this.log.finish();
    this.#release();
    this.#end();
  }

  /** Takes over what an earlier daemon's log says; nothing of it is sent again. */
  restore(lastSeq: number, outcome: Outcome | undefined, settled: Settled | undefined, endedAt: number): void {
    this.lastSeq = lastSeq;
    if (outcome === undefined) return;
    this.outcome = outcome;
    this.state = "settling";
    this.#conclude();
    if (settled === undefined) return;
    this.settled = settled;
    this.state = "ended";
    this.endedAt = endedAt;
    this.#release();
    this.#end();
  }

  addReader(reader: Reader): void {
    this.readers.add(reader);
    this.detachedAt = undefined;
    this.hooks.onReader(this, reader);
  }

  removeReader(reader: Reader): void {
    if (!this.readers.delete(reader)) return;
    if (this.owner === reader) {
      this.ownerOffset = reader.wholeOffset;
      this.owner = undefined;
    }
    if (this.readers.size === 0) this.detachedAt = this.clock.now();
    this.hooks.onReader(this, reader);
  }

  summary(): RunSummary {
    const iso = (ms: number | undefined): string | undefined =>
      ms === undefined ? undefined : new Date(ms).toISOString();
    const endedAt = iso(this.endedAt);
    const detachedAt = iso(this.state === "ended" ? undefined : this.detachedAt);
    return {
      runId: this.run.id,
      attempt: this.number,
      threadId: this.run.threadId,
      state: this.state,
      startedAt: new Date(this.startedAt).toISOString(),
      ...(endedAt ? { endedAt } : {}),
      ...(detachedAt ? { detachedAt } : {}),
      lastSeq: this.lastSeq,
      readers: this.readers.size,
      ...(this.relayDirectory && this.live ? { relay: { directory: this.relayDirectory } } : {}),
      ...(this.outcome ? { outcome: this.outcome } : {}),
      ...(this.outcome?.type === "failed" ? { error: this.outcome.error } : {}),
      ...(this.settled ? { settled: this.settled } : {}),
    };
  }

  private emit(frame: Partial<Omit<Frame, "seq">>): void {
    const { chunks = [], ...rest } = frame;
    this.log.append(Buffer.from(`${JSON.stringify({ seq: ++this.lastSeq, chunks, ...rest })}\n`));
  }
}

export class Run {
  /** The newest attempt. Older ones live on only for the readers that they have. */
  attempt: Attempt | undefined;
  /** The folder of its logs, on the pod's disk. */
  readonly folder: string;

  constructor(
    readonly id: string,
    readonly threadId: string,
    folder: string,
  ) {
    this.folder = folder;
  }
}

/** What a new attempt is started with. */
export interface AttemptOrder {
  readonly input: DispatchInput;
  readonly specs: readonly ToolSpec[];
  /** What it goes on from, verified on the request alone. */
  readonly resume?: Resume;
  readonly traceparent?: string;
}
