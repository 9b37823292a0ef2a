/**
 * How calls of the run's tools end: carried out by the daemon, answered by a person, or refused. The reader is shown the
 * output before the shim has it: what the model does next may follow within a millisecond.
 */
import type { Chunk } from "../frames/frame.ts";
import type { Metrics } from "../metrics/port.ts";
import type { Call } from "./announced-calls.ts";
import type { CallbackResult, Relay, RelayAnswer } from "./port.ts";
import { outputChunk } from "./tool-chunks.ts";

export interface ResultParts {
  readonly metrics: Metrics;
  readonly callBack: (call: Call, signal: AbortSignal) => Promise<CallbackResult>;
  /** Writes a frame of the daemon's own. */
  readonly emit: (chunks: readonly Chunk[]) => void;
  /** The run's tools cannot go on: the pod's disk fails, or the daemon. */
  readonly fail: (error: unknown) => void;
}

export class CallResults {
  readonly #callbacks = new Map<string, AbortController>();
  #relay: Relay | undefined;

  constructor(private readonly parts: ResultParts) {}

  connect(relay: Relay): void {
    this.#relay = relay;
  }

  async carryOut(call: Call): Promise<void> {
    const { metrics, callBack } = this.parts;
    // Withdrawn and made again within a moment, it is decided on twice.
    if (this.#callbacks.has(call.toolCallId)) return;
    const controller = new AbortController();
    call.begun = true;
    this.#callbacks.set(call.toolCallId, controller);
    const result = await callBack(call, controller.signal);
    // Abandoned meanwhile.
    if (!this.#callbacks.has(call.toolCallId)) return;
    this.#callbacks.delete(call.toolCallId);
    metrics.toolCall(result.isError ? "failed" : "answered");
    this.finish(call, result);
  }

  /** Nobody waits for what is being carried out. */
  abandon(call: Call): void {
    this.#callbacks.get(call.toolCallId)?.abort();
    this.#callbacks.delete(call.toolCallId);
  }

  /** `error` is for the model, which can act on it. */
  refuse(call: Call, error: string): void {
    this.parts.metrics.toolCall("failed");
    this.finish(call, { text: error, isError: true });
  }

  /** `chunks`: what the reader is shown, if it is not what the model reads. */
  finish(call: Call, result: CallbackResult, chunks: readonly Chunk[] = [outputChunk(call.toolCallId, result)]): void {
    const { text, isError } = result;
    close(call);
    this.parts.emit(chunks);
    this.answer(call.requests, isError ? { type: "failure", error: text } : { type: "success", text });
  }

  /** The reader has its output from elsewhere. */
  giveUp(call: Call): void {
    close(call);
    this.answer(call.requests, { type: "failure", error: "the call was given up" });
  }

  /** Tells those who wait, by the names of their requests. */
  answer(names: Iterable<string>, answer: RelayAnswer): void {
    for (const name of names) {
      this.#relay?.answer(name, answer).catch((error: unknown) => this.parts.fail(error));
    }
  }

  stop(): void {
    for (const controller of this.#callbacks.values()) controller.abort();
    this.#callbacks.clear();
  }
}

/** It has its result, whoever gave it. */
function close(call: Call): void {
  call.state = "answered";
  call.input = undefined;
}
