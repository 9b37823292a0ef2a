/**
 * What of the harness's frames reaches the reader, and what is learned from them. Order, for a reader: the call, then
 * what becomes of it, always written by the daemon. What the harness reports of these calls is dropped, and so is what
 * it does after the turn was parked.
 */
import type { Chunk } from "../frames/frame.ts";
import type { HarnessFrame } from "../frames/harness-line.ts";
import type { Interest } from "../frames/interest.ts";
import type { AnnouncedCalls, Call } from "./announced-calls.ts";
import type { ToolSpec } from "./port.ts";

/** A call whose subagent works on in the background. */
export interface OpenSubagent {
  readonly toolCallId: string;
  readonly toolName: string;
  readonly input: unknown;
}

export interface FilterParts {
  readonly specs: ReadonlyMap<string, ToolSpec>;
  readonly calls: AnnouncedCalls;
  /** Put behind the message's `start`: the results of an earlier run's calls. */
  readonly opening: readonly Chunk[];
  /** The harness parks calls by itself, and ends its turn when it is time. */
  readonly parksItself: boolean;
  /** It may ask a person although the run has no tools. */
  readonly mayAsk: boolean;
  readonly isParked: () => boolean;
  /** The turn goes on although it is parked: what it does now nobody asked for. */
  readonly onOverrun: () => void;
  /** The harness refused the call, or gave it up: nobody waits any more. */
  readonly onGivenUp: (call: Call) => void;
}

/** Chunks of which more than the outline is looked at, or that may be left out. */
const TAKEN: ReadonlySet<string> = new Set(["start", "start-step", "finish"]);
/** Of calls that may turn out to start a subagent: a harness may announce calls without end, and report on none. */
const MAX_INPUTS = 256;

export class FrameFilter {
  /** What the harness said of the end, while an answer of ours is still to go before it. */
  finish: Chunk | undefined;
  readonly #subagents = new Map<string, OpenSubagent>();
  readonly #inputs = new Map<string, OpenSubagent>();
  #opening: readonly Chunk[];
  /** It went on after it was parked: nothing of that reaches the reader. */
  #overran = false;
  /** The frame ends the message: what is closed in it is closed because the turn ends. */
  #isLast = false;

  constructor(private readonly parts: FilterParts) {
    this.#opening = parts.opening;
  }

  /** What no message of the harness has begun with: it is shown all the same. */
  takeOpening(): readonly Chunk[] {
    const opening = this.#opening;
    this.#opening = [];
    return opening;
  }

  get openSubagents(): OpenSubagent[] {
    return [...this.#subagents.values()];
  }

  /** Which chunks `take` has to see: a frame without any of them goes to the reader as it is. */
  get interest(): Interest | undefined {
    if (!this.#looks && !this.#overran) return undefined;
    const { specs, calls } = this.parts;
    return {
      everything: this.#overran,
      types: TAKEN,
      tools: new Set(specs.keys()),
      calls: new Set(calls.ids),
      subagents: new Set(this.#subagents.keys()),
    };
  }

  /** A frame of the harness, as it goes to the reader. Undefined: nothing of it does. */
  take(frame: HarnessFrame): HarnessFrame | undefined {
    if (!this.#looks) return frame;
    this.#isLast = frame.chunks.some((chunk) => chunk?.type === "finish");
    const chunks = frame.chunks.flatMap((chunk) => this.#takeChunk(chunk));
    if (chunks.length === frame.chunks.length && chunks.every((chunk, index) => chunk === frame.chunks[index])) {
      return frame;
    }
    const saysMore = frame.outcome !== undefined || frame.sessionId !== undefined;
    if (chunks.length === 0 && frame.chunks.length > 0 && !saysMore) return undefined;
    return { ...frame, chunks, body: JSON.stringify({ chunks }).slice(1), verbatim: false };
  }

  /** Frames of a run that can ask nothing, and has no answers to begin with, are nobody's business. */
  get #looks(): boolean {
    return this.parts.specs.size > 0 || this.parts.mayAsk || this.#opening.length > 0;
  }

  #takeChunk(chunk: Chunk): readonly Chunk[] {
    if (this.#overran) return [];
    if (typeof chunk !== "object" || chunk === null) return [chunk];
    switch (chunk.type) {
      case "start":
        return [chunk, ...this.takeOpening()];
      case "start-step":
        if (this.parts.parksItself || !this.parts.isParked()) return [chunk];
        this.#overran = true;
        this.parts.onOverrun();
        return [];
      case "finish":
        if (!this.parts.isParked()) return [chunk];
        this.finish = chunk;
        return [];
      case "tool-input-available":
        this.#announce(chunk);
        return [chunk];
      case "tool-output-available":
      case "tool-output-error":
      case "tool-output-denied":
        return this.#report(chunk);
      default:
        return [chunk];
    }
  }

  #announce(chunk: Chunk): void {
    const { specs, calls } = this.parts;
    const { toolCallId, toolName, input, providerExecuted } = chunk;
    if (typeof toolCallId !== "string" || typeof toolName !== "string") return;
    const spec = providerExecuted === true ? undefined : specs.get(toolName);
    if (!spec) {
      this.#inputs.set(toolCallId, { toolCallId, toolName, input });
      const [oldest] = this.#inputs.keys();
      if (this.#inputs.size > MAX_INPUTS && oldest !== undefined) this.#inputs.delete(oldest);
      return;
    }
    const parent = parentOf(chunk);
    calls.announce({ toolCallId, spec, input, ...(parent === undefined ? {} : { parentToolCallId: parent }) });
    // Not before this frame has gone to the reader.
    queueMicrotask(() => calls.matchEarly());
  }

  /** What the harness says of a call's output. */
  #report(chunk: Chunk): readonly Chunk[] {
    const id = String(chunk.toolCallId);
    const call = this.parts.calls.get(id);
    if (!call) {
      const known = this.#inputs.get(id);
      if (known && chunk.preliminary === true) this.#subagents.set(id, known);
      else if (!this.#isLast) {
        this.#subagents.delete(id);
        this.#inputs.delete(id);
      }
      return [chunk];
    }
    // What became of it is said already, or is for a person to say.
    if (call.state === "answered" || call.state === "parked" || chunk.preliminary === true) return [];
    this.parts.onGivenUp(call);
    if (chunk.type !== "tool-output-available") return [chunk];
    const errorText = "the call was not carried out: its output came from elsewhere";
    return [{ type: "tool-output-error", toolCallId: id, errorText, dynamic: true }];
  }
}

function parentOf(chunk: Chunk): string | undefined {
  const { dispatchd } = (chunk.providerMetadata ?? {}) as { dispatchd?: { parentToolCallId?: unknown } };
  const parent = dispatchd?.parentToolCallId;
  return typeof parent === "string" ? parent : undefined;
}
