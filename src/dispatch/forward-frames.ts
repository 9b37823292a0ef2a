/**
 * From the harness's stdout to the run's log. Reads as fast as the disk takes it and no faster, decides the outcome
 * when the harness gives one, and goes on reading after it so that the harness can leave.
 */
import type { Clock } from "../clock/port.ts";
import type { HarnessErrorCode } from "../errors.ts";
import { cutMessage, HARNESS_ERROR_CODES, messageOf } from "../errors.ts";
import type { Outcome, Usage } from "../frames/frame.ts";
import type { HarnessFrame, HarnessOutcome } from "../frames/harness-line.ts";
import { parseHarnessLine } from "../frames/harness-line.ts";
import type { LargeJson } from "../frames/large-lines.ts";
import { LARGE_BYTES } from "../frames/large-lines.ts";
import type { LargeFrame } from "../frames/read-large-line.ts";
import type { Lines } from "../frames/split-lines.ts";
import { LineSplitter } from "../frames/split-lines.ts";
import type { HarnessInterrupt, InterruptReason } from "../harness/port.ts";
import type { Log } from "../log/port.ts";
import type { Redactor } from "../log/redact.ts";
import type { Metrics } from "../metrics/port.ts";
import type { RunTools } from "../tools/run-tools.ts";
import type { LineQuota } from "./line-quota.ts";
import type { Attempt } from "./run.ts";

/** As much of a large line as goes to the log, which cuts it itself. */
const SKIPPED_BYTES = 8192;

/** Others are dropped: an outcome is kept for a day, and must not be as large as a harness likes. */
const USAGE_KEYS = Object.keys({
  inputTokens: true,
  outputTokens: true,
  cacheReadTokens: true,
  cacheWriteTokens: true,
  costUsd: true,
  turns: true,
} satisfies Record<keyof Usage, true>);

/** Of a line that is to be changed, and so is read here as a whole: as many take some 20 ms. */
const MAX_TAKEN_VALUES = 200_000;

/** From this mean length on it is cheaper to copy the bytes of lines than to encode their text again. */
const COPY_FROM_BYTES = 512;

export interface ForwardOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly redactor: Redactor;
  readonly largeJson: LargeJson;
  readonly maxFrameBytes: number;
  readonly runMaxBytes: number;
  /** Lines that are no frames share the run's quota of log lines. */
  readonly quota: LineQuota;
  readonly onSession: (sessionId: string) => void;
  readonly tools: Pick<RunTools, "interest" | "take" | "conclude">;
}

export class FrameForwarder {
  /** When the harness last printed, or we last let it wait: for the stall and for the end of stdout. */
  activeAt: number;
  /** True while something that was read is still being worked on. */
  busy = false;
  #frames = 0;
  #bytes = 0;
  #sawByte = false;
  #sawFrame = false;
  /** The harness has given its outcome: what follows is ignored. */
  #over = false;

  constructor(
    private readonly attempt: Attempt,
    private readonly options: ForwardOptions,
  ) {
    this.activeAt = options.clock.monotonic();
  }

  get counts(): { frames: number; bytes: number } {
    return { frames: this.#frames, bytes: this.#bytes };
  }

  /** What reading failed with, for the operator: the outcome says only that it did. */
  reportFailure(error: unknown): void {
    this.options.log.error("harness output not read", { reason: messageOf(error), stack: (error as Error)?.stack });
  }

  /** Resolves at the end of `stdout`. */
  async run(stdout: AsyncIterable<Uint8Array>): Promise<void> {
    const { clock, maxFrameBytes } = this.options;
    const splitter = new LineSplitter(maxFrameBytes, LARGE_BYTES);
    for await (const piece of stdout) {
      if (!this.#sawByte) this.#first("byte");
      this.busy = true;
      this.#bytes += piece.length;
      if (this.#reads) for (const lines of splitter.push(piece)) await this.#take(lines);
      await this.attempt.log.drained();
      this.activeAt = clock.monotonic();
      this.busy = false;
    }
    if (this.#reads) for (const lines of splitter.end()) await this.#take(lines);
    // stderr, which reports at its end too, may have ended before.
    this.options.quota.report();
  }

  /** How the turn ended, by the harness's word or by its exit. Resolves when the attempt has its outcome. */
  async conclude(outcome: Outcome, parked: readonly HarnessInterrupt[] = []): Promise<void> {
    this.#over = true;
    await this.options.tools.conclude(outcome, parked);
  }

  get #reads(): boolean {
    return this.attempt.live && !this.#over;
  }

  async #take(lines: Lines): Promise<void> {
    const { attempt, options } = this;
    if (!this.#reads) return;
    if (attempt.log.end + attempt.log.pendingBytes > options.runMaxBytes) {
      const message = `the run printed more than ${options.runMaxBytes} bytes`;
      attempt.stop({ code: "output_too_large", message });
      return;
    }
    switch (lines.type) {
      case "overflow": {
        const message = `a line of the harness is longer than ${options.maxFrameBytes} bytes`;
        attempt.stop({ code: "frame_too_large", message });
        return;
      }
      case "large": {
        const { length } = lines.bytes;
        const beginning = lines.bytes.toString("utf8", 0, SKIPPED_BYTES);
        const open = attempt.parts.state;
        const frame = await options.largeJson.readLine(lines.bytes, { open, interest: options.tools.interest });
        if (!this.#reads) return;
        if (!frame) return this.#skip(beginning, length);
        // Rare, and to be changed: a chunk in it is about a call of the run's tools.
        if (frame.concerned) return this.#takeWhole(frame, length);
        this.#forwarded(1, length);
        if (frame.hasChunks || !frame.outcome) attempt.forwardBytes(frame, open);
        this.#note(frame);
        return;
      }
      case "lines":
        this.#takeShort(lines);
    }
  }

  /** The line itself went to whoever read it. */
  #takeWhole({ body: bytes, values, sessionId, outcome }: LargeFrame, length: number): void {
    if (values > MAX_TAKEN_VALUES) {
      const message = `a line with a call of the run's tools has more than ${MAX_TAKEN_VALUES} values in it`;
      this.attempt.stop({ code: "frame_too_large", message });
      return;
    }
    const body = new TextDecoder().decode(bytes);
    const { chunks } = JSON.parse(`{${body}`) as Pick<HarnessFrame, "chunks">;
    const said = { ...(sessionId === undefined ? {} : { sessionId }), ...(outcome ? { outcome } : {}) };
    const frame = this.options.tools.take({ ...said, chunks, body, verbatim: false });
    this.#forwarded(1, length);
    if (!frame) return;
    if (frame.chunks.length > 0 || !frame.outcome) this.attempt.forward([frame], false);
    this.#note(frame);
  }

  #takeShort({ lines, bytes: source, ascii }: Extract<Lines, { type: "lines" }>): void {
    const frames: HarnessFrame[] = [];
    const starts: number[] = [];
    let next = 0;
    let onlyAscii = ascii;
    let bytes = 0;
    let last: HarnessFrame | undefined;
    for (const line of lines) {
      const start = next;
      next += line.length + 1;
      const parsed = parseHarnessLine(line);
      if (!parsed) {
        this.#skip(line, line.length);
        continue;
      }
      const frame = this.options.tools.take(parsed);
      if (!frame) continue;
      bytes += line.length;
      onlyAscii &&= frame.verbatim;
      // An outcome has a frame of its own, written by the daemon.
      if (frame.chunks.length > 0 || !frame.outcome) {
        frames.push(frame);
        starts.push(start);
      }
      if (frame.sessionId !== undefined) this.options.onSession(frame.sessionId);
      if (frame.outcome) {
        last = frame;
        break;
      }
    }
    if (frames.length > 0 || last) this.#forwarded(frames.length, bytes);
    if (onlyAscii && bytes >= frames.length * COPY_FROM_BYTES) this.attempt.forwardCopies(frames, source, starts);
    else this.attempt.forward(frames, onlyAscii);
    if (last) this.#note({ outcome: last.outcome as HarnessOutcome });
  }

  #note(frame: Pick<HarnessFrame, "sessionId" | "outcome">): void {
    if (frame.sessionId !== undefined) this.options.onSession(frame.sessionId);
    if (!frame.outcome) return;
    const { outcome, parked } = readOutcome(frame.outcome, this.options.redactor);
    // Never rejects for what a harness says; a fault of ours is the attempt's outcome.
    this.conclude(outcome, parked).catch((error: unknown) => {
      this.reportFailure(error);
      this.attempt.stop({ code: "internal", message: "the daemon failed to end the turn" });
    });
  }

  #forwarded(frames: number, bytes: number): void {
    if (!this.#sawFrame) this.#first("frame");
    this.#frames += frames;
    this.options.metrics.frames(frames, bytes);
    this.options.log.debug("dispatch frame", { seq: this.attempt.lastSeq + frames, frames, bytes });
  }

  #first(what: "byte" | "frame"): void {
    const seconds = (this.options.clock.monotonic() - this.attempt.begunAt) / 1000;
    if (what === "byte") {
      this.#sawByte = true;
      this.options.metrics.firstByte(seconds);
    } else {
      this.#sawFrame = true;
      this.options.metrics.firstFrame(seconds);
    }
  }

  #skip(line: string, length: number): void {
    if (line.trim() === "") return;
    this.options.metrics.lineSkipped();
    this.options.quota.log("harness printed a line that is no frame", line, length);
  }
}

/** A harness's outcome, as far as it is believed, and the calls that it says it parked. Exported for its test. */
export function readOutcome(said: HarnessOutcome, redactor: Redactor): ReadOutcome {
  const usage = readUsage(said.usage);
  const failed = (code: HarnessErrorCode, message: string): ReadOutcome => ({
    outcome: { type: "failed", error: { code, message: cutMessage(redactor.clean(message)) }, ...usage },
    parked: [],
  });
  switch (said.type) {
    case "finished":
      return { outcome: { type: "finished", ...usage }, parked: [] };
    case "interrupt": {
      const parked = (Array.isArray(said.interrupts) ? said.interrupts : []).flatMap((each) =>
        readInterrupt(each, redactor),
      );
      if (parked.length === 0) return failed("turn_failed", "the harness parked the turn and named no call");
      return { outcome: { type: "finished", ...usage }, parked };
    }
    case "failed": {
      const { code, message } = (said.error ?? {}) as { code?: unknown; message?: unknown };
      const known = HARNESS_ERROR_CODES.find((candidate) => candidate === code);
      return failed(known ?? "turn_failed", typeof message === "string" ? message : "the harness gave no reason");
    }
    default:
      return failed("turn_failed", "the harness gave an outcome of an unknown type");
  }
}

export interface ReadOutcome {
  readonly outcome: Outcome;
  readonly parked: readonly HarnessInterrupt[];
}

const INTERRUPT_REASONS: readonly unknown[] = Object.keys({
  tool_call: true,
  input_required: true,
  confirmation: true,
  "dispatchd:client_tool": true,
} satisfies Record<InterruptReason, true>);

function readInterrupt(said: unknown, redactor: Redactor): HarnessInterrupt[] {
  const { toolCallId, toolName, input, reason, message } = (said ?? {}) as Partial<Record<string, unknown>>;
  if (typeof toolCallId !== "string" || typeof toolName !== "string") return [];
  return [
    {
      toolCallId,
      toolName,
      input: input ?? null,
      ...(INTERRUPT_REASONS.includes(reason) ? { reason: reason as InterruptReason } : {}),
      ...(typeof message === "string" ? { message: cutMessage(redactor.clean(message)) } : {}),
    },
  ];
}

function readUsage(said: unknown): { usage?: Usage } {
  if (typeof said !== "object" || said === null) return {};
  const given = said as Readonly<Record<string, unknown>>;
  const numbers = USAGE_KEYS.flatMap((key) => (Number.isFinite(given[key]) ? [[key, given[key]]] : []));
  return numbers.length > 0 ? { usage: Object.fromEntries(numbers) as Usage } : {};
}
