/**
 * What of a message is open, so that the end of a run can close it whatever ended it. Follows the grammar that
 * `readUIMessageStream` of the AI SDK accepts: deltas and ends need their start, an output needs its call.
 *
 * A harness that breaks the grammar is passed on as it is; the state then is the best guess.
 */
import type { Chunk } from "./frame.ts";

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
        this.#texts.add(id);
        return;
      case "text-end":
        this.#texts.delete(id);
        return;
      case "reasoning-start":
        this.#reasonings.add(id);
        return;
      case "reasoning-end":
        this.#reasonings.delete(id);
        return;
      case "tool-input-start":
      case "tool-input-available":
        if (!this.#tools.has(call)) this.#tools.set(call, this.#step);
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

const NOTED =
  /^(start|start-step|finish-step|reset-step|finish|abort|(text|reasoning)-(start|end)|tool-(?!input-delta).*)$/;

/**
 * As much of `chunks` as `OpenParts.note` looks at, and whoever looks for calls of the run's tools: what a worker sends
 * across instead of megabytes, or of a million small chunks.
 */
export function outlinesOf(chunks: readonly Chunk[]): Chunk[] {
  return chunks.flatMap((chunk) => {
    if (typeof chunk !== "object" || chunk === null || !NOTED.test(chunk.type)) return [];
    const { type, id, toolCallId, toolName, preliminary, messageId } = chunk;
    return [{ type, id, toolCallId, toolName, preliminary, messageId }];
  });
}
