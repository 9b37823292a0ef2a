/**
 * What of a message is open, so that the end of a run can close it whatever ended it. Follows the grammar that
 * `readUIMessageStream` of the AI SDK accepts: deltas and ends need their start, an output needs its call.
 *
 * A harness that breaks the grammar is passed on as it is; the state then is the best guess.
 */
import type { Chunk } from "./frame.ts";

/** Of a kind. A harness that opens more of them, and closes none, would fill the memory: the rest is not closed. */
const MAX_OPEN = 10_000;
/** Nobody names a part by a longer one. */
const MAX_ID_CHARS = 4096;

/** What is open, as it can be sent to another thread. */
export interface OpenState {
  readonly started: boolean;
  readonly messageId: unknown;
  readonly closed: boolean;
  readonly inStep: boolean;
  readonly step: number;
  readonly texts: ReadonlySet<string>;
  readonly reasonings: ReadonlySet<string>;
  readonly tools: ReadonlyMap<string, number>;
}

export class OpenParts {
  #started = false;
  #messageId: unknown;
  #closed = false;
  #inStep = false;
  readonly #texts = new Set<string>();
  readonly #reasonings = new Set<string>();
  /** Calls without a final output, and the number of the step that each was announced in. */
  readonly #tools = new Map<string, number>();
  #step = 0;

  constructor(state?: OpenState) {
    if (state) this.noteChange(NOTHING_OPEN, state);
  }

  /** A copy. */
  get state(): OpenState {
    return {
      started: this.#started,
      messageId: this.#messageId,
      closed: this.#closed,
      inStep: this.#inStep,
      step: this.#step,
      texts: new Set(this.#texts),
      reasonings: new Set(this.#reasonings),
      tools: new Map(this.#tools),
    };
  }

  /**
   * Takes over what another thread made of `before`, the state that it was sent. What was closed here in the meantime
   * stays closed.
   */
  noteChange(before: OpenState, after: OpenState): void {
    this.#started = after.started;
    this.#messageId = after.messageId;
    this.#closed = after.closed;
    this.#inStep = after.inStep;
    this.#step = after.step;
    for (const id of before.texts) if (!after.texts.has(id)) this.#texts.delete(id);
    for (const id of before.reasonings) if (!after.reasonings.has(id)) this.#reasonings.delete(id);
    for (const call of before.tools.keys()) if (!after.tools.has(call)) this.#tools.delete(call);
    for (const id of after.texts) if (!before.texts.has(id)) this.#texts.add(id);
    for (const id of after.reasonings) if (!before.reasonings.has(id)) this.#reasonings.add(id);
    for (const [call, step] of after.tools) if (before.tools.get(call) !== step) this.#tools.set(call, step);
  }

  /** True between `start` and `finish` or `abort`: the message still wants an end. */
  get open(): boolean {
    return this.#started && !this.#closed;
  }

  /** Ids of the calls without a final output. */
  get openCalls(): Iterable<string> {
    return this.#tools.keys();
  }

  note(chunk: Chunk): void {
    if (typeof chunk !== "object" || chunk === null) return;
    const id = chunk.id as string;
    const call = chunk.toolCallId as string;
    switch (chunk.type) {
      case "text-delta":
      case "reasoning-delta":
      case "tool-input-delta":
        return;
      case "start":
        this.#started = true;
        this.#closed = false;
        // Another message: a reader forgets what was open in the one before.
        if (chunk.messageId !== undefined && chunk.messageId !== this.#messageId) this.#forget();
        this.#messageId = chunk.messageId ?? this.#messageId;
        return;
      case "start-step":
        this.#inStep = true;
        this.#step++;
        return;
      case "finish-step":
        this.#inStep = false;
        return;
      case "reset-step":
        this.#texts.clear();
        this.#reasonings.clear();
        for (const [open, step] of this.#tools) if (step === this.#step) this.#tools.delete(open);
        return;
      case "text-start":
        if (mayOpen(this.#texts, id)) this.#texts.add(id);
        return;
      case "text-end":
        this.#texts.delete(id);
        return;
      case "reasoning-start":
        if (mayOpen(this.#reasonings, id)) this.#reasonings.add(id);
        return;
      case "reasoning-end":
        this.#reasonings.delete(id);
        return;
      case "tool-input-start":
      case "tool-input-available":
        if (!this.#tools.has(call) && mayOpen(this.#tools, call)) this.#tools.set(call, this.#step);
        return;
      case "tool-output-available":
        if (chunk.preliminary !== true) this.#tools.delete(call);
        return;
      case "tool-input-error":
      case "tool-output-error":
      case "tool-output-denied":
        this.#tools.delete(call);
        return;
      case "finish":
      case "abort":
        this.#closed = true;
        return;
    }
  }

  #forget(): void {
    this.#texts.clear();
    this.#reasonings.clear();
    this.#tools.clear();
    this.#inStep = false;
  }

  /**
   * The chunks that end what is open, parked calls excepted, and the step. The caller adds what ends the message.
   * Empty when the message never began or has ended.
   */
  close(toolError: string, parked: ReadonlySet<string> = new Set()): Chunk[] {
    if (!this.open) return [];
    const chunks: Chunk[] = [];
    for (const id of this.#texts) chunks.push({ type: "text-end", id });
    for (const id of this.#reasonings) chunks.push({ type: "reasoning-end", id });
    for (const toolCallId of this.#tools.keys()) {
      if (parked.has(toolCallId)) continue;
      chunks.push({ type: "tool-output-error", toolCallId, errorText: toolError, dynamic: true });
    }
    if (this.#inStep) chunks.push({ type: "finish-step" });
    return chunks;
  }
}

const NOTHING_OPEN: OpenState = {
  ...{ started: false, messageId: undefined, closed: false, inStep: false, step: 0 },
  ...{ texts: new Set<string>(), reasonings: new Set<string>(), tools: new Map<string, number>() },
};

function mayOpen(open: { readonly size: number }, id: string): boolean {
  return open.size < MAX_OPEN && !(typeof id === "string" && id.length > MAX_ID_CHARS);
}
