/**
 * The questions of a run that waits, one after the other: each is put to whoever sits there, or answered from what is
 * known already, and the run goes on as soon as the daemon has the answer. An answer that comes too late for the run is
 * kept, for the one that follows. A question that somebody else has answered meanwhile is withdrawn.
 */
import { type Answer, EndedError, type Interrupt, RefusedError, type Run, StaleError } from "../client/index.ts";
import { ask } from "./ask.ts";
import type { CliIo } from "./io.ts";
import type { Printer } from "./run-printer.ts";
import { safeLine } from "./safe-text.ts";

/** By the question's id. */
export type Answers = Map<string, Answer>;

export interface LiveQuestionsParts {
  readonly run: Run;
  readonly io: CliIo;
  readonly printer: Printer;
  readonly answers: Answers;
  readonly asks: boolean;
  /** Called when whoever is asked goes away. */
  readonly onLeft: () => void;
}

export class LiveQuestions {
  #loop: Promise<void> | undefined;
  #running = false;
  #prompt: { readonly id: string; readonly controller: AbortController } | undefined;
  /** Sent, or of no use any more. */
  readonly #done = new Set<string>();
  #left = false;

  constructor(private readonly parts: LiveQuestionsParts) {}

  /** A question has the terminal. */
  get asking(): boolean {
    return this.#prompt !== undefined;
  }

  /** Whoever was asked has gone away. */
  get left(): boolean {
    return this.#left;
  }

  /** To be called after each frame: what is open may have changed. */
  look(): void {
    const { run } = this.parts;
    const prompt = this.#prompt;
    if (prompt && !run.interrupts.some(({ id }) => id === prompt.id)) prompt.controller.abort();
    if (!this.#running) this.#loop = this.#answerAll();
  }

  /** Resolves when nothing is asked or sent. */
  async idle(): Promise<void> {
    await this.#loop;
  }

  leave(): void {
    if (this.#left) return;
    this.#left = true;
    this.#prompt?.controller.abort();
    this.parts.onLeft();
  }

  async #answerAll(): Promise<void> {
    const { answers } = this.parts;
    this.#running = true;
    // Found missing and given up in one step: what opens after it starts this anew.
    for (let next = this.#next(); next; next = this.#next()) {
      const answer = answers.get(next.id) ?? (await this.#ask(next));
      if (answer) await this.#send(next, answer);
    }
    this.#running = false;
  }

  #next(): Interrupt | undefined {
    const { run, answers, asks } = this.parts;
    if (this.#left || !run.waiting) return undefined;
    const open = run.interrupts.filter(({ id }) => !this.#done.has(id));
    return open.find(({ id }) => answers.has(id)) ?? (asks ? open[0] : undefined);
  }

  async #ask(interrupt: Interrupt): Promise<Answer | undefined> {
    const { io, printer } = this.parts;
    const controller = new AbortController();
    this.#prompt = { id: interrupt.id, controller };
    await printer.hold();
    const asked = await ask(interrupt, io, controller.signal);
    this.#prompt = undefined;
    printer.release();
    switch (asked.type) {
      case "answered":
        return asked.answer;
      case "withdrawn":
        this.#done.add(interrupt.id);
        if (!this.#left) void printer.note("the question is answered elsewhere, or is not asked any more");
        return undefined;
      case "left":
        this.leave();
        return undefined;
    }
  }

  async #send({ id }: Interrupt, answer: Answer): Promise<void> {
    const { run, printer, answers } = this.parts;
    this.#done.add(id);
    answers.set(id, answer);
    // Suspended while it was typed.
    if (!run.waiting) return void printer.note(TOO_LATE);
    try {
      await run.answer([answer]);
      answers.delete(id);
    } catch (thrown) {
      if (thrown instanceof EndedError) return void printer.note(TOO_LATE);
      const why = safeLine(thrown instanceof Error ? thrown.message : String(thrown), 1000);
      if (thrown instanceof StaleError) {
        if (!thrown.stale.dead) return void printer.note(TOO_LATE);
        answers.delete(id);
      } else if (thrown instanceof RefusedError && thrown.code === "bad_input") {
        answers.delete(id);
        // It is asked again, where somebody can say it better.
        if (this.parts.asks) this.#done.delete(id);
      }
      void printer.note(`not taken: ${why}`);
    }
  }
}

const TOO_LATE = "the turn does not wait any longer: the answer goes into the next one";
