/**
 * What a turn asks a person: each question is put, and held until it is answered or the limit comes, or parked for a
 * later run.
 *
 * Every change is one step of the event loop, so an answer at the very moment of the limit is either the answer or too
 * late, never both. Signing takes longer: what came meanwhile is looked at after it. When what is open has changed, the
 * frame before counts no more, and the reader is told again.
 */
import { sameJson } from "../canonical-json.ts";
import type { Clock } from "../clock/port.ts";
import type { Chunk } from "../frames/frame.ts";
import type { Log } from "../log/port.ts";
import { reportText } from "../pause-text.ts";
import { isApproved } from "../suspension/approval.ts";
import type { Call } from "./announced-calls.ts";
import { answerText } from "./answer-text.ts";
import type { CallResults, ResultParts } from "./call-results.ts";
import type { Disposition } from "./dispositions.ts";
import type { OpenSubagent } from "./filter-frames.ts";
import type { AnswerEntry, Interrupt, JsonSchema } from "./port.ts";
import { findTooMuch, MAX_OPEN_QUESTIONS, type Question, questionOf, whyNotShown } from "./questions.ts";
import { answerChunk, approvalChunks, approvalResponse } from "./tool-chunks.ts";

export interface Issued {
  readonly interrupts: readonly Interrupt[];
  readonly suspension: string;
}

export interface Waiting {
  readonly interrupts: readonly Interrupt[];
  /** Absent: nothing of it could be resumed elsewhere. */
  readonly suspension?: string;
  /** ISO 8601. Until then the run waits. */
  readonly until: string;
}

export interface QuestionParts extends ResultParts {
  readonly disposition: Disposition;
  readonly holdMs: number;
  readonly clock: Clock;
  readonly log: Log;
  /** Signs the questions as they are now. A text says why they cannot be asked. */
  readonly issue: (questions: readonly Question[], subagents: readonly OpenSubagent[]) => Promise<Issued | string>;
  /** What is wrong with a value; undefined when nothing is. */
  readonly check: (schema: JsonSchema, value: unknown) => Promise<string | undefined>;
  readonly emit: (chunks: readonly Chunk[], waiting?: Waiting) => void;
  /** A question has its answer, and is not to be answered once more. */
  readonly answered: (interruptId: string) => void;
}

/**
 * Whether a turn waits for a person and for nothing else. `turn`: parked, it ends. `subagent`: only subagents ask, whose
 * callers can go on without the answer, and no later run could.
 */
export type WaitsOnly = "turn" | "subagent" | "no";

export type AnswerResult =
  | { readonly type: "accepted"; readonly count: number }
  | { readonly type: "stale"; readonly interruptId: string; readonly reason: string; readonly dead: boolean }
  | { readonly type: "invalid"; readonly path: string; readonly message: string };

interface Held {
  readonly question: Question;
  readonly call: Call;
}

export class OpenQuestions {
  readonly #held = new Map<string, Held>();
  readonly #parked: Question[] = [];
  /** Of this turn, by the question's id, for an answer that is sent twice. */
  readonly #answers = new Map<string, AnswerEntry>();
  #asking: Promise<void> = Promise.resolve();
  #until = 0;
  #stopHold: (() => void) | undefined;
  /** From the limit on every call of the turn is parked. */
  #decayed = false;
  #saysAgain = false;
  /** A question was closed of which no output tells, or not yet: that none is open has to be said too. */
  #owesNone = false;
  #ended = false;

  constructor(
    private readonly parts: QuestionParts,
    private readonly results: CallResults,
    private readonly subagents: () => readonly OpenSubagent[],
  ) {}

  get parked(): readonly Question[] {
    return this.#parked;
  }

  /** Resolves when what is to be asked so far has been signed. */
  get asked(): Promise<void> {
    return this.#asking;
  }

  /** Puts the question, or parks the call, or says why neither can be done. */
  ask(call: Call): void {
    this.#inTurn(() => this.#ask(call));
  }

  /** Parks what is held, and all that is asked from here on. */
  park(why: string): void {
    this.#decayed = true;
    this.#endHold();
    const held = [...this.#held.values()];
    this.#held.clear();
    if (held.length === 0) return;
    this.parts.log.info("dispatch stops waiting", { questions: held.length, why });
    for (const { question, call } of held) this.#parkCall(call, question);
  }

  /** All of them or none. */
  async answer(entries: readonly AnswerEntry[]): Promise<AnswerResult> {
    // Looked at twice, the last time in one step with what follows: the limit may have come meanwhile.
    const wrong = this.#findStale(entries) ?? (await this.#findInvalid(entries)) ?? this.#findStale(entries);
    if (wrong) return wrong;
    for (const entry of entries) this.#resolve(entry);
    await this.#asking;
    return { type: "accepted", count: entries.length };
  }

  /** Nobody waits for the answer any more. */
  withdraw(call: Call): void {
    for (const [id, held] of this.#held) if (held.call === call) this.#held.delete(id);
    if (this.#held.size === 0) this.#endHold();
    this.parts.log.info("dispatch question withdrawn", { call: call.toolCallId });
    this.#owesNone = true;
    this.#sayAgain();
  }

  /** `openCalls`: what the reader was shown and has no output. */
  waitsOnly(openCalls: Iterable<string>): WaitsOnly {
    const held = [...this.#held.values()];
    const waits = new Set(this.#parked.map(({ toolCallId }) => toolCallId));
    for (const { call } of held) if (call.parentToolCallId === undefined) waits.add(call.toolCallId);
    const isOfTurn = waits.size > 0;
    for (const { call } of held) waits.add(call.toolCallId).add(call.parentToolCallId ?? call.toolCallId);
    if (waits.size === 0 || ![...openCalls].every((id) => waits.has(id))) return "no";
    return isOfTurn ? "turn" : "subagent";
  }

  stop(): void {
    this.#ended = true;
    this.#stopHold?.();
    this.#held.clear();
  }

  /** One after the other: each question is signed together with those before it. */
  #inTurn(step: () => Promise<void>): void {
    this.#asking = this.#asking.then(step).catch((error: unknown) => this.parts.fail(error));
  }

  async #ask(call: Call): Promise<void> {
    const { parts } = this;
    if (call.state !== "working" || this.#ended) return;
    const inSubagent = call.parentToolCallId !== undefined;
    const disposition = this.#decayed && parts.disposition === "hold" ? "acknowledge" : parts.disposition;
    if (inSubagent && disposition !== "hold") return this.#reportUp(call);
    if (this.#held.size + this.#parked.length >= MAX_OPEN_QUESTIONS) {
      return this.results.refuse(call, `${MAX_OPEN_QUESTIONS} questions are open already: wait for their answers`);
    }
    const question = questionOf(call.spec, call, inSubagent);
    const issued = whyNotShown(call.input) ?? (await parts.issue([...this.#open(), question], this.subagents()));
    if (call.state !== "working" || this.#ended) return;
    if (typeof issued === "string") return this.results.refuse(call, `the person could not be asked: ${issued}`);
    parts.metrics.toolCall(disposition === "hold" ? "held" : "parked");
    switch (disposition) {
      case "native":
        call.state = "parked";
        this.#parked.push(question);
        return;
      case "acknowledge":
        return this.#parkCall(call, question);
      case "hold":
        // The limit may have come while it was signed.
        if (this.#decayed) return this.#parkCall(call, question);
        call.state = "held";
        this.#held.set(question.id, { question, call });
        this.#startHold();
        this.#say(issued);
    }
  }

  #parkCall(call: Call, question: Question): void {
    if (question.inSubagent) {
      this.#reportUp(call);
      return;
    }
    call.state = "parked";
    this.#parked.push(question);
    this.results.answer(call.requests, { type: "pause" });
  }

  /** A subagent cannot wait: its caller has to ask. */
  #reportUp(call: Call): void {
    this.results.finish(call, { text: reportText(call.spec.name), isError: false });
  }

  #open(): Question[] {
    return [...this.#parked, ...[...this.#held.values()].map(({ question }) => question)];
  }

  #startHold(): void {
    if (this.#stopHold) return;
    const { clock, holdMs } = this.parts;
    this.#until = clock.now() + holdMs;
    this.#stopHold = clock.after(holdMs, () => this.park("the limit was reached"));
  }

  #endHold(): void {
    this.#stopHold?.();
    this.#stopHold = undefined;
  }

  #say(issued: Issued): void {
    const { log, emit } = this.parts;
    const { interrupts, suspension } = issued;
    // Answered while it was signed: whose output has gone out is not asked for after it.
    const open = new Set(this.#open().map(({ id }) => id));
    if (open.size !== interrupts.length || !interrupts.every(({ id }) => open.has(id))) {
      this.#sayAgain();
      return;
    }
    this.#owesNone = false;
    const until = new Date(this.#until).toISOString();
    log.info("dispatch waiting", { interrupts: interrupts.map(({ id }) => id), until });
    const waiting = { interrupts, ...(suspension === "" ? {} : { suspension }), until };
    emit(approvalChunks(this.#open(), suspension), waiting);
  }

  /** After a change in what is open, or several. */
  #sayAgain(): void {
    if (this.#saysAgain) return;
    this.#saysAgain = true;
    this.#inTurn(async () => {
      this.#saysAgain = false;
      const open = this.#open();
      if (this.#ended || this.#decayed || (open.length === 0 && !this.#owesNone)) return;
      const none = { interrupts: [], suspension: "" };
      const issued = open.length === 0 ? none : await this.parts.issue(open, this.subagents());
      if (this.#ended || this.#decayed || typeof issued === "string") return;
      this.#say(issued);
    });
  }

  async #findInvalid(entries: readonly AnswerEntry[]): Promise<AnswerResult | undefined> {
    const tooMuch = findTooMuch(entries);
    if (tooMuch) return { type: "invalid", path: `answers.${tooMuch.index}.payload`, message: tooMuch.message };
    for (const [index, { interruptId, status, payload }] of entries.entries()) {
      const schema = this.#held.get(interruptId)?.question.responseSchema;
      if (!schema || status !== "resolved") continue;
      const message = await this.parts.check(schema, payload ?? null);
      if (message !== undefined) return { type: "invalid", path: `answers.${index}.payload`, message };
    }
    return undefined;
  }

  #findStale(entries: readonly AnswerEntry[]): AnswerResult | undefined {
    const seen = new Set<string>();
    for (const entry of entries) {
      const { interruptId } = entry;
      const stale = (reason: string, dead: boolean): AnswerResult => ({ type: "stale", interruptId, reason, dead });
      if (seen.has(interruptId)) return stale("it is answered twice", false);
      seen.add(interruptId);
      if (this.#held.has(interruptId)) continue;
      const before = this.#answers.get(interruptId);
      if (before && sameAnswer(before, entry)) continue;
      if (before) return stale("it was answered otherwise", true);
      if (this.#parked.some(({ id }) => id === interruptId)) {
        return stale("the run does not wait any more: it is answered by a new dispatch", false);
      }
      return stale("the run asks no such question", true);
    }
    return undefined;
  }

  #resolve(entry: AnswerEntry): void {
    const held = this.#held.get(entry.interruptId);
    if (!held) return; // The same answer, once more.
    const { question, call } = held;
    this.#held.delete(question.id);
    this.#answers.set(question.id, entry);
    this.parts.answered(question.id);
    if (this.#held.size === 0) this.#endHold();
    this.parts.log.info("dispatch answered", { interrupt: question.id, status: entry.status });
    const approvals = approvalResponse(question, entry);
    call.state = "working";
    if (question.reason === "tool_call" && isApproved(entry)) {
      // It may take a while, in which nobody is to be asked for it.
      this.#owesNone = true;
      this.parts.emit(approvals);
      void this.results.carryOut(call).catch((error: unknown) => this.parts.fail(error));
    } else {
      this.results.finish(call, answerText(entry, question.reason), [...approvals, answerChunk(question, entry)]);
    }
    this.#sayAgain();
  }
}

function sameAnswer(one: AnswerEntry, other: AnswerEntry): boolean {
  return one.status === other.status && sameJson(one.payload ?? null, other.payload ?? null);
}
