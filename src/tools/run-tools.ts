/**
 * The tools of one attempt: believes calls, carries them out, asks for those that only a person can answer, and says how
 * a turn that asked has ended.
 *
 * A call goes announced → working → answered, or → parked, or → held → answered | parked; withdrawn when nobody waits for
 * it any more. Every change is one step of the event loop, so an answer at the very moment of the limit is either the
 * answer or too late, never both. Order, for a reader: the call, then what becomes of it, always written here. What the
 * harness reports of these calls is dropped.
 */
import { sameJson } from "../canonical-json.ts";
import type { Clock } from "../clock/port.ts";
import type { Chunk, Outcome } from "../frames/frame.ts";
import type { HarnessFrame } from "../frames/harness-line.ts";
import type { HarnessInterrupt } from "../harness/port.ts";
import type { Log } from "../log/port.ts";
import type { Metrics } from "../metrics/port.ts";
import { reportText } from "../pause-text.ts";
import { isApproved } from "../suspension/approval.ts";
import { AnnouncedCalls, type Call } from "./announced-calls.ts";
import { answerText } from "./answer-text.ts";
import type { Disposition } from "./dispositions.ts";
import type { AnswerEntry, CallbackResult, Interrupt, JsonSchema, Relay, RelayAnswer, ToolSpec } from "./port.ts";
import { findTooMuch, MAX_OPEN_QUESTIONS, ownQuestionOf, type Question, questionOf, whyNotShown } from "./questions.ts";
import { answerChunk, approvalChunks, approvalResponse, outputChunk } from "./tool-chunks.ts";

/** What a harness needs to end a turn whose held calls were parked from outside. */
const PARKED_END_MS = 5000;

export interface Issued {
  readonly interrupts: readonly Interrupt[];
  readonly suspension: string;
}

export interface RunToolsParts {
  readonly specs: readonly ToolSpec[];
  readonly disposition: Disposition;
  readonly holdMs: number;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  /** Signs the questions as they are now. A text says why they cannot be asked. */
  readonly issue: (questions: readonly Question[], subagents: readonly OpenSubagent[]) => Promise<Issued | string>;
  readonly callBack: (call: Call, signal: AbortSignal) => Promise<CallbackResult>;
  /** What is wrong with a value; undefined when nothing is. */
  readonly check: (schema: JsonSchema, value: unknown) => Promise<string | undefined>;
  /** Of the harness's own questions. */
  readonly responseSchemaOf: (toolName: string, input: unknown) => JsonSchema | null;
  /** Writes a frame of the daemon's own. */
  readonly emit: (chunks: readonly Chunk[], waiting?: Waiting) => void;
  /** A question has its answer, and is not to be answered once more. */
  readonly answered: (interruptId: string) => void;
  /** Gives the outcome, if there is none yet. */
  readonly conclude: (outcome: Outcome) => void;
  /** The run's tools cannot go on: the pod's disk fails, or the daemon. */
  readonly fail: (error: unknown) => void;
}

export interface Waiting {
  readonly interrupts: readonly Interrupt[];
  /** Absent: nothing of it could be resumed elsewhere. */
  readonly suspension?: string;
  /** ISO 8601. Until then the run waits. */
  readonly until: string;
}

/** A call whose subagent works on in the background. */
export interface OpenSubagent {
  readonly toolCallId: string;
  readonly toolName: string;
  readonly input: unknown;
}

export type AnswerResult =
  | { readonly type: "accepted"; readonly count: number }
  | { readonly type: "stale"; readonly interruptId: string; readonly reason: string; readonly dead: boolean }
  | { readonly type: "invalid"; readonly path: string; readonly message: string };

/** Chunks of which more than the outline is looked at, or that may be left out. */
const TAKEN: ReadonlySet<unknown> = new Set(["start", "start-step", "finish"]);

interface Held {
  readonly question: Question;
  readonly call: Call;
}

export class RunTools {
  readonly #calls: AnnouncedCalls;
  readonly #specs: ReadonlyMap<string, ToolSpec>;
  readonly #held = new Map<string, Held>();
  readonly #parked: Question[] = [];
  /** Of this turn, by the question's id, for an answer that is sent twice. */
  readonly #answers = new Map<string, AnswerEntry>();
  readonly #callbacks = new Map<string, AbortController>();
  readonly #subagents = new Map<string, OpenSubagent>();
  readonly #inputs = new Map<string, OpenSubagent>();
  /** Questions are put one after the other: each is signed together with those before it. */
  #asking: Promise<void> = Promise.resolve();
  #relay: Relay | undefined;
  #until = 0;
  #stopHold: (() => void) | undefined;
  #stopEnd: (() => void) | undefined;
  /** From the limit on every call of the turn is parked. */
  #decayed = false;
  #saysAgain = false;
  /** A question was closed of which no output tells, or not yet: that none is open has to be said too. */
  #owesNone = false;
  #concluding: Promise<void> | undefined;
  #ended = false;
  /** It went on after it was parked: nothing of that reaches the reader. */
  #overran = false;
  /** What the harness said of the end, while an answer of ours is still to go before it. */
  #finish: Chunk | undefined;
  /** Put behind the message's `start`: the results of an earlier run's calls. */
  #opening: readonly Chunk[];

  constructor(
    private readonly parts: RunToolsParts,
    opening: { readonly chunks: readonly Chunk[]; readonly answered: readonly Omit<Call, "state" | "requests">[] },
  ) {
    this.#specs = new Map(parts.specs.map((spec) => [spec.name, spec]));
    this.#opening = opening.chunks;
    this.#calls = new AnnouncedCalls(parts.clock, {
      onCalled: (call) => this.#called(call),
      onMadeUp: (request, reason) => {
        const { log, metrics } = parts;
        metrics.toolCall("made_up");
        log.warn("tool request not believed", { tool: request.toolName, call: request.toolCallId, reason });
        this.#answer([request.name], { type: "failure", error: `this call was not carried out: ${reason}` });
      },
    });
    for (const call of opening.answered) this.#calls.addAnswered(call);
  }

  /** From here on requests come. */
  connect(relay: Relay): void {
    this.#relay = relay;
  }

  readonly relayEvents = {
    onRequest: (request: Parameters<AnnouncedCalls["request"]>[0]): void => {
      if (!this.#ended) this.#calls.request(request);
    },
    onWithdrawn: (name: string): void => {
      const call = this.#calls.withdraw(name);
      if (call) this.#withdraw(call);
    },
  };

  /** True when `take` has to see the frame of these chunks; `outlines` are as much of them as there is. */
  concern(outlines: readonly Chunk[]): boolean {
    if (!this.#looks) return false;
    return outlines.some(
      ({ type, toolCallId, toolName, preliminary }) =>
        TAKEN.has(type) ||
        this.#calls.has(toolCallId) ||
        (type === "tool-input-available" && this.#hasTool(toolName)) ||
        // A subagent's last word, which takes it out of the plan.
        (preliminary !== true && this.#subagents.has(String(toolCallId))),
    );
  }

  /** A frame of the harness, as it goes to the reader. Undefined: nothing of it does. */
  take(frame: HarnessFrame): HarnessFrame | undefined {
    if (!this.#looks) return frame;
    const chunks = frame.chunks.flatMap((chunk) => this.#takeChunk(chunk));
    if (chunks.length === frame.chunks.length && chunks.every((chunk, index) => chunk === frame.chunks[index])) {
      return frame;
    }
    const saysMore = frame.outcome !== undefined || frame.sessionId !== undefined;
    if (chunks.length === 0 && frame.chunks.length > 0 && !saysMore) return undefined;
    return { ...frame, chunks, body: JSON.stringify({ chunks }).slice(1), verbatim: false };
  }

  /**
   * The outcome of a turn that the harness ended, or that ended by the harness's exit. The first word counts: a harness
   * that has named its questions exits while they are signed.
   */
  conclude(said: Outcome, own: readonly HarnessInterrupt[] = []): Promise<void> {
    this.#concluding ??= this.#concludeWith(said, own);
    return this.#concluding;
  }

  async #concludeWith(said: Outcome, own: readonly HarnessInterrupt[]): Promise<void> {
    // A question whose signature is under way belongs to this turn.
    await this.#asking;
    if (this.#ended) return;
    const questions = [...this.#parked];
    for (const interrupt of own) {
      const question = await this.#ownQuestion(interrupt);
      if (question && !questions.some(({ toolCallId }) => toolCallId === question.toolCallId)) questions.push(question);
    }
    const failed = said.type === "failed" ? said.error.code : undefined;
    // A turn that fails after it was parked is parked all the same: the session has the call.
    const mayInterrupt = failed === undefined || failed === "turn_failed" || failed === "harness_crashed";
    if (questions.length === 0 && own.length > 0) {
      const error = { code: "turn_failed", message: "the harness parked calls that it cannot park" } as const;
      return this.#conclude({ type: "failed", error, ...(said.usage ? { usage: said.usage } : {}) }, []);
    }
    if (questions.length === 0 || !mayInterrupt) return this.#conclude(said, []);
    const isTooMuch = questions.length > MAX_OPEN_QUESTIONS;
    const issued = isTooMuch ? `more than ${MAX_OPEN_QUESTIONS} questions are open` : await this.#issue(questions);
    if (typeof issued === "string") {
      const error = { code: "turn_failed", message: `the turn could not be parked: ${issued}` } as const;
      return this.#conclude({ type: "failed", error }, []);
    }
    const usage = said.usage ? { usage: said.usage } : {};
    this.#conclude({ type: "interrupt", ...issued, ...usage }, approvalChunks(questions, issued.suspension));
  }

  /**
   * True when it waits for a person and for nothing else, so that it can be parked instead of being stopped.
   * `openCalls`: what the reader was shown and has no output.
   */
  onlyHolds(openCalls: Iterable<string>): boolean {
    const held = [...this.#held.values()];
    const waits = new Set(this.#parked.map(({ toolCallId }) => toolCallId));
    for (const { call } of held) if (call.parentToolCallId === undefined) waits.add(call.toolCallId);
    // What only a subagent asks cannot outlive the run.
    if (waits.size === 0) return false;
    for (const { call } of held) waits.add(call.toolCallId).add(call.parentToolCallId ?? call.toolCallId);
    return [...openCalls].every((id) => waits.has(id));
  }

  /** Parks what is held. The harness ends the turn then; one that does not in time is ended. */
  park(why: string): void {
    this.#decay(why);
    this.#stopEnd ??= this.parts.clock.after(PARKED_END_MS, () => this.#concludeParked());
  }

  /** Answers to questions of this turn, from `POST /runs/:id/answers`: all of them or none. */
  async answer(entries: readonly AnswerEntry[]): Promise<AnswerResult> {
    const wrong = await this.#findWrong(entries);
    // Checked again, in one step with what follows: the limit may have come meanwhile.
    const stale = wrong ?? this.#findStale(entries);
    if (stale) return stale;
    for (const entry of entries) this.#resolve(entry);
    await this.#asking;
    return { type: "accepted", count: entries.length };
  }

  /** Nothing is carried out or asked any more. */
  stop(): void {
    this.#ended = true;
    this.#stopHold?.();
    this.#stopEnd?.();
    this.#calls.stop();
    for (const controller of this.#callbacks.values()) controller.abort();
    this.#callbacks.clear();
    this.#held.clear();
  }

  /** Frames of a run without tools, and without answers to begin with, are nobody's business. */
  get #looks(): boolean {
    return this.#specs.size > 0 || this.#opening.length > 0;
  }

  #hasTool(toolName: unknown): boolean {
    return typeof toolName === "string" && this.#specs.has(toolName);
  }

  #takeChunk(chunk: Chunk): readonly Chunk[] {
    if (this.#overran) return [];
    if (typeof chunk !== "object" || chunk === null) return [chunk];
    switch (chunk.type) {
      case "start": {
        const opening = this.#opening;
        this.#opening = [];
        return [chunk, ...opening];
      }
      case "start-step":
        // The turn goes on although it is parked: what it does now nobody asked for.
        if (this.#parked.length > 0 && this.parts.disposition !== "native") {
          this.#overran = true;
          this.#concludeParked();
          return [];
        }
        return [chunk];
      case "finish":
        if (this.#parked.length === 0) return [chunk];
        this.#finish = chunk;
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
    const { toolCallId, toolName, input, providerExecuted } = chunk;
    if (typeof toolCallId !== "string" || typeof toolName !== "string") return;
    const spec = providerExecuted === true ? undefined : this.#specs.get(toolName);
    if (!spec) {
      this.#inputs.set(toolCallId, { toolCallId, toolName, input });
      return;
    }
    const parent = parentOf(chunk);
    this.#calls.announce({ toolCallId, spec, input, ...(parent === undefined ? {} : { parentToolCallId: parent }) });
    // Not before this frame has gone to the reader.
    queueMicrotask(() => this.#calls.matchEarly());
  }

  /** What the harness says of a call's output. */
  #report(chunk: Chunk): readonly Chunk[] {
    const id = String(chunk.toolCallId);
    const call = this.#calls.get(id);
    if (!call) {
      const known = this.#inputs.get(id);
      if (known && chunk.preliminary === true) this.#subagents.set(id, known);
      else {
        this.#subagents.delete(id);
        this.#inputs.delete(id);
      }
      return [chunk];
    }
    // What became of it is said already, or is for a person to say.
    if (call.state === "answered" || call.state === "parked" || chunk.preliminary === true) return [];
    // The harness refused it, or gave it up: nobody waits any more.
    this.#withdraw(call);
    this.#calls.close(call);
    this.#answer(call.requests, { type: "failure", error: "the call was given up" });
    if (chunk.type !== "tool-output-available") return [chunk];
    const errorText = "the call was not carried out: its output came from elsewhere";
    return [{ type: "tool-output-error", toolCallId: id, errorText, dynamic: true }];
  }

  #called(call: Call): void {
    const { spec } = call;
    if (spec.permission === "deny") {
      this.parts.metrics.toolCall("denied");
      const denied = { type: "tool-output-denied", toolCallId: call.toolCallId };
      this.#finishCall(call, { type: "failure", error: `${spec.name} is not permitted in this run` }, [denied]);
      return;
    }
    void this.#decide(call).catch((error: unknown) => this.parts.fail(error));
  }

  async #decide(call: Call): Promise<void> {
    const { spec } = call;
    const wrong = await this.parts.check(spec.inputSchema, call.input);
    if (call.state !== "working" || this.#ended) return;
    if (wrong !== undefined) return this.#failCall(call, `the arguments do not fit ${spec.name}: ${wrong}`);
    if (spec.kind === "callback" && spec.permission === "allow") return this.#carryOut(call);
    this.#asking = this.#asking.then(() => this.#ask(call)).catch((error: unknown) => this.parts.fail(error));
    await this.#asking;
  }

  async #carryOut(call: Call): Promise<void> {
    const { parts } = this;
    // Withdrawn and made again within a moment, it is decided on twice.
    if (this.#callbacks.has(call.toolCallId)) return;
    const controller = new AbortController();
    this.#callbacks.set(call.toolCallId, controller);
    const result = await parts.callBack(call, controller.signal);
    if (this.#callbacks.get(call.toolCallId) !== controller) return;
    this.#callbacks.delete(call.toolCallId);
    if (call.state !== "working" || this.#ended) return;
    parts.metrics.toolCall(result.isError ? "failed" : "answered");
    this.#finishCall(call, answerOf(result), [outputChunk(call.toolCallId, result)]);
  }

  /** Puts the question, or parks the call, or says why neither can be done. */
  async #ask(call: Call): Promise<void> {
    const { parts } = this;
    if (call.state !== "working" || this.#ended) return;
    const inSubagent = call.parentToolCallId !== undefined;
    const disposition = this.#decayed && parts.disposition === "hold" ? "acknowledge" : parts.disposition;
    if (inSubagent && disposition !== "hold") return this.#reportUp(call);
    if (this.#held.size + this.#parked.length >= MAX_OPEN_QUESTIONS) {
      return this.#failCall(call, `${MAX_OPEN_QUESTIONS} questions are open already: wait for their answers`);
    }
    const question = questionOf(call.spec, call, inSubagent);
    const issued = whyNotShown(call.input) ?? (await this.#issue([...this.#open(), question]));
    if (call.state !== "working" || this.#ended) return;
    if (typeof issued === "string") return this.#failCall(call, `the person could not be asked: ${issued}`);
    parts.metrics.toolCall(disposition === "hold" ? "held" : "parked");
    switch (disposition) {
      case "native":
        call.state = "parked";
        this.#parked.push(question);
        return;
      case "acknowledge":
        this.#parkCall(call, question);
        return;
      case "hold":
        // The limit may have come while it was signed.
        if (this.#decayed) return inSubagent ? this.#reportUp(call) : this.#parkCall(call, question);
        call.state = "held";
        this.#held.set(question.id, { question, call });
        this.#startHold();
        this.#say(issued);
    }
  }

  #parkCall(call: Call, question: Question): void {
    call.state = "parked";
    this.#parked.push(question);
    this.#answer(call.requests, { type: "pause" });
  }

  /** A subagent cannot wait: its caller has to ask. */
  #reportUp(call: Call): void {
    const text = reportText(call.spec.name);
    this.#finishCall(call, { type: "success", text }, [outputChunk(call.toolCallId, { text, isError: false })]);
  }

  #open(): Question[] {
    return [...this.#parked, ...[...this.#held.values()].map(({ question }) => question)];
  }

  async #issue(questions: readonly Question[]): Promise<Issued | string> {
    return this.parts.issue(questions, this.#openSubagents());
  }

  #startHold(): void {
    if (this.#stopHold) return;
    const { clock, holdMs } = this.parts;
    this.#until = clock.now() + holdMs;
    this.#stopHold = clock.after(holdMs, () => this.#decay("the limit was reached"));
  }

  #decay(why: string): void {
    this.#decayed = true;
    this.#endHold();
    const held = [...this.#held.values()];
    this.#held.clear();
    if (held.length === 0) return;
    this.parts.log.info("dispatch stops waiting", { questions: held.length, why });
    for (const { question, call } of held) {
      if (question.inSubagent) this.#reportUp(call);
      else this.#parkCall(call, question);
    }
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

  /** After a change in what is open, or several: the frame before counts no more. */
  #sayAgain(): void {
    if (this.#saysAgain) return;
    this.#saysAgain = true;
    this.#asking = this.#asking
      .then(async () => {
        this.#saysAgain = false;
        const open = this.#open();
        if (this.#ended || this.#decayed || (open.length === 0 && !this.#owesNone)) return;
        const issued = open.length === 0 ? { interrupts: [], suspension: "" } : await this.#issue(open);
        if (this.#ended || this.#decayed || typeof issued === "string") return;
        this.#say(issued);
      })
      .catch((error: unknown) => this.parts.fail(error));
  }

  async #findWrong(entries: readonly AnswerEntry[]): Promise<AnswerResult | undefined> {
    const stale = this.#findStale(entries);
    if (stale) return stale;
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
      void this.#carryOut(call).catch((error: unknown) => this.parts.fail(error));
    } else {
      const result = answerText(entry, question.reason);
      this.#finishCall(call, answerOf(result), [...approvals, answerChunk(question, entry)]);
    }
    this.#sayAgain();
  }

  #withdraw(call: Call): void {
    if (call.state !== "held" && call.state !== "working") return;
    const wasHeld = call.state === "held";
    call.state = "withdrawn";
    this.#callbacks.get(call.toolCallId)?.abort();
    this.#callbacks.delete(call.toolCallId);
    for (const [id, held] of this.#held) if (held.call === call) this.#held.delete(id);
    if (!wasHeld) return;
    if (this.#held.size === 0) this.#endHold();
    this.parts.log.info("dispatch question withdrawn", { call: call.toolCallId });
    this.#owesNone = true;
    this.#sayAgain();
  }

  #failCall(call: Call, error: string): void {
    this.parts.metrics.toolCall("failed");
    this.#finishCall(call, { type: "failure", error }, [outputChunk(call.toolCallId, { text: error, isError: true })]);
  }

  #finishCall(call: Call, answer: RelayAnswer, chunks: readonly Chunk[]): void {
    this.#calls.close(call);
    // The reader first: what the model does next may follow within a millisecond.
    this.parts.emit(chunks);
    this.#answer(call.requests, answer);
  }

  #answer(names: Iterable<string>, answer: RelayAnswer): void {
    for (const name of names) {
      this.#relay?.answer(name, answer).catch((error: unknown) => this.parts.fail(error));
    }
  }

  async #ownQuestion(interrupt: HarnessInterrupt): Promise<Question | undefined> {
    const { toolCallId, toolName, input, reason, message } = interrupt;
    const spec = this.#specs.get(toolName);
    if (spec && (await this.#isToBeAsked(spec, interrupt))) {
      return { ...questionOf(spec, { toolCallId, input }, false), ...(message ? { message } : {}) };
    }
    if (!spec && (reason === "input_required" || reason === "confirmation")) {
      return ownQuestionOf(interrupt, reason, this.parts.responseSchemaOf(toolName, input));
    }
    this.parts.log.warn("interrupt of the harness not believed", { tool: toolName, call: toolCallId });
    return undefined;
  }

  /** What the reader was shown, and what a request would be believed for. */
  async #isToBeAsked(spec: ToolSpec, { toolCallId, input }: HarnessInterrupt): Promise<boolean> {
    const call = this.#calls.get(toolCallId);
    if (call?.spec !== spec || call.state === "answered" || spec.permission === "deny") return false;
    return sameJson(call.input, input) && (await this.parts.check(spec.inputSchema, input)) === undefined;
  }

  #openSubagents(): OpenSubagent[] {
    return [...this.#subagents.values()];
  }

  /** Whatever the harness does. */
  #concludeParked(): void {
    void this.conclude({ type: "finished" }).catch((error: unknown) => this.parts.fail(error));
  }

  #conclude(outcome: Outcome, chunks: readonly Chunk[]): void {
    if (this.#ended) return;
    const finish = this.#finish ? [{ ...this.#finish, finishReason: "tool-calls" }] : [];
    if (outcome.type === "interrupt" && chunks.length + finish.length > 0) this.parts.emit([...chunks, ...finish]);
    this.parts.conclude(outcome);
    this.stop();
  }
}

function parentOf(chunk: Chunk): string | undefined {
  const { dispatchd } = (chunk.providerMetadata ?? {}) as { dispatchd?: { parentToolCallId?: unknown } };
  const parent = dispatchd?.parentToolCallId;
  return typeof parent === "string" ? parent : undefined;
}

function answerOf({ text, isError }: CallbackResult): RelayAnswer {
  return isError ? { type: "failure", error: text } : { type: "success", text };
}

function sameAnswer(one: AnswerEntry, other: AnswerEntry): boolean {
  return one.status === other.status && sameJson(one.payload ?? null, other.payload ?? null);
}
