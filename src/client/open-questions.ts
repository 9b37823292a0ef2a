/**
 * What a run asks right now. Each `waiting` frame replaces the one before it; a question also ends with its answer,
 * which the output of its call shows, whoever gave it; and the outcome has the last word.
 */
import type { RunResult } from "./result.ts";
import type { Frame, Interrupt, Waiting } from "./wire.ts";

const OUTPUTS: ReadonlySet<string> = new Set(["tool-output-available", "tool-output-error", "tool-output-denied"]);

export class OpenQuestions {
  #waiting: Waiting | undefined;
  #interrupts: readonly Interrupt[] = [];
  /** Taken by the daemon: a frame that was on its way may still list them. */
  readonly #answered = new Set<string>();

  get interrupts(): readonly Interrupt[] {
    return this.#interrupts;
  }

  /** While the run lives and asks something. */
  get waiting(): Waiting | undefined {
    return this.#waiting && this.#interrupts.length > 0
      ? { ...this.#waiting, interrupts: this.#interrupts }
      : undefined;
  }

  note(frame: Frame): void {
    for (const { type, toolCallId, preliminary } of this.#interrupts.length > 0 ? frame.chunks : []) {
      if (!OUTPUTS.has(type) || preliminary === true) continue;
      this.#interrupts = this.#interrupts.filter((interrupt) => interrupt.toolCallId !== toolCallId);
    }
    const { waiting } = frame;
    if (!waiting) return;
    this.#waiting = waiting;
    this.#interrupts = waiting.interrupts.filter(({ id }) => !this.#answered.has(id));
  }

  /** The daemon has taken answers to these. */
  close(ids: readonly string[]): void {
    for (const id of ids) this.#answered.add(id);
    this.#interrupts = this.#interrupts.filter(({ id }) => !this.#answered.has(id));
  }

  /** The run is over, or will not be read any further. */
  end(result: RunResult): void {
    if (result.type === "detached") return;
    this.#waiting = undefined;
    this.#interrupts = result.type === "interrupt" ? result.interrupts : [];
  }
}
