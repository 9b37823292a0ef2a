/**
 * The tools of one attempt: believes calls, decides what becomes of each, and says how a turn that asked has ended.
 *
 * A call goes announced → working → answered, or → parked, or → held → answered | parked; withdrawn when nobody waits for
 * it any more.
 */
import { sameJson } from "../canonical-json.ts";
import type { Chunk, Outcome } from "../frames/frame.ts";
import type { HarnessFrame } from "../frames/harness-line.ts";
import type { Interest } from "../frames/interest.ts";
import type { HarnessInterrupt } from "../harness/port.ts";
import { AnnouncedCalls, type Call } from "./announced-calls.ts";
import { CallResults } from "./call-results.ts";
import { FewNamed } from "./few-named.ts";
import { FrameFilter } from "./filter-frames.ts";
import { type AnswerResult, type Issued, OpenQuestions, type QuestionParts, type WaitsOnly } from "./open-questions.ts";
import type { AnswerEntry, JsonSchema, Relay, ToolSpec } from "./port.ts";
import { MAX_OPEN_QUESTIONS, ownQuestionOf, type Question, questionOf } from "./questions.ts";
import { approvalChunks, outputChunk } from "./tool-chunks.ts";

/** What a harness needs to end a turn whose held calls were parked from outside. */
const PARKED_END_MS = 5000;

export interface RunToolsParts extends QuestionParts {
  readonly specs: readonly ToolSpec[];
  /** The harness has questions of its own, beside the run's tools. */
  readonly mayAsk: boolean;
  /** Of the harness's own questions. */
  readonly responseSchemaOf: (toolName: string, input: unknown) => JsonSchema | null;
  /** Gives the outcome, if there is none yet. */
  readonly conclude: (outcome: Outcome) => void;
}

export class RunTools {
  readonly #specs: ReadonlyMap<string, ToolSpec>;
  readonly #calls: AnnouncedCalls;
  readonly #results: CallResults;
  readonly #questions: OpenQuestions;
  readonly #frames: FrameFilter;
  #stopEnd: (() => void) | undefined;
  #concluding: Promise<void> | undefined;
  #ended = false;
  readonly #madeUp = new FewNamed();

  constructor(
    private readonly parts: RunToolsParts,
    opening: { readonly chunks: readonly Chunk[]; readonly answered: readonly Omit<Call, "state" | "requests">[] },
  ) {
    this.#specs = new Map(parts.specs.map((spec) => [spec.name, spec]));
    this.#calls = new AnnouncedCalls(parts.clock, {
      onCalled: (call) => this.#called(call),
      onMadeUp: (request, reason) => {
        const { log, metrics } = parts;
        metrics.toolCall("made_up");
        if (this.#madeUp.next()) {
          log.warn("tool request not believed", { tool: request.toolName, call: request.toolCallId, reason });
        }
        this.#results.answer([request.name], { type: "failure", error: `this call was not carried out: ${reason}` });
      },
    });
    for (const call of opening.answered) this.#calls.addAnswered(call);
    this.#results = new CallResults(parts);
    this.#questions = new OpenQuestions(parts, this.#results, () => this.#frames.openSubagents);
    this.#frames = new FrameFilter({
      specs: this.#specs,
      calls: this.#calls,
      opening: opening.chunks,
      parksItself: parts.disposition === "native",
      mayAsk: parts.mayAsk,
      isParked: () => this.#questions.parked.length > 0,
      onOverrun: () => this.#concludeParked(),
      onGivenUp: (call) => {
        this.#withdraw(call);
        this.#results.giveUp(call);
      },
    });
  }

  /** From here on requests come. */
  connect(relay: Relay): void {
    this.#results.connect(relay);
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

  /** Which chunks `take` has to see. Undefined: none. */
  get interest(): Interest | undefined {
    return this.#frames.interest;
  }

  /** A frame of the harness, as it goes to the reader. Undefined: nothing of it does. */
  take(frame: HarnessFrame): HarnessFrame | undefined {
    return this.#frames.take(frame);
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
    await this.#questions.asked;
    if (this.#ended) return;
    const questions = [...this.#questions.parked];
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
    const { asked, issued, leftOut } = await this.#issueWhatFits(questions);
    if (typeof issued === "string") {
      const error = { code: "turn_failed", message: `the turn could not be parked: ${issued}` } as const;
      return this.#conclude({ type: "failed", error }, []);
    }
    const usage = said.usage ? { usage: said.usage } : {};
    this.#conclude({ type: "interrupt", ...issued, ...usage }, [
      ...leftOut,
      ...approvalChunks(asked, issued.suspension),
    ]);
  }

  /** What was parked was told that an answer comes. What the agent itself asks beside that is left out where it must be. */
  async #issueWhatFits(
    questions: readonly Question[],
  ): Promise<{ asked: readonly Question[]; issued: Issued | string; leftOut: readonly Chunk[] }> {
    const issued = await this.#issue(questions);
    const parked = questions.filter(({ tool }) => tool);
    if (typeof issued !== "string" || parked.length === 0 || parked.length === questions.length) {
      return { asked: questions, issued, leftOut: [] };
    }
    this.parts.log.warn("interrupt of the harness left out", { reason: issued });
    const output = { text: `the person could not be asked: ${issued}`, isError: true };
    const leftOut = questions.flatMap(({ toolCallId, tool }) => (tool ? [] : [outputChunk(toolCallId, output)]));
    return { asked: parked, issued: await this.#issue(parked), leftOut };
  }

  async #issue(questions: readonly Question[]): Promise<Issued | string> {
    if (questions.length > MAX_OPEN_QUESTIONS) return `more than ${MAX_OPEN_QUESTIONS} questions are open`;
    return this.parts.issue(questions, this.#frames.openSubagents);
  }

  /** `openCalls`: what the reader was shown and has no output. */
  waitsOnly(openCalls: Iterable<string>): WaitsOnly {
    return this.#questions.waitsOnly(openCalls);
  }

  /** Parks what is held. If the turn is to end by that, the harness ends it; one that does not in time is ended. */
  park(why: string): void {
    this.#questions.park(why);
    if (this.#questions.parked.length === 0) return;
    this.#stopEnd ??= this.parts.clock.after(PARKED_END_MS, () => this.#concludeParked());
  }

  /** Answers to questions of this turn, from `POST /runs/:id/answers`: all of them or none. */
  answer(entries: readonly AnswerEntry[]): Promise<AnswerResult> {
    return this.#questions.answer(entries);
  }

  /** Nothing is carried out or asked any more. */
  stop(): void {
    const requests = this.#madeUp.takeRest();
    if (requests > 0) this.parts.log.warn("tool requests not believed", { requests });
    this.#ended = true;
    this.#stopEnd?.();
    this.#calls.stop();
    this.#questions.stop();
    this.#results.stop();
  }

  #called(call: Call): void {
    const { spec } = call;
    if (spec.permission === "deny") {
      this.parts.metrics.toolCall("denied");
      const error = `${spec.name} is not permitted in this run`;
      const denied = { type: "tool-output-denied", toolCallId: call.toolCallId };
      this.#results.finish(call, { text: error, isError: true }, [denied]);
      return;
    }
    void this.#decide(call).catch((error: unknown) => this.parts.fail(error));
  }

  async #decide(call: Call): Promise<void> {
    const { spec } = call;
    const wrong = await this.parts.check(spec.inputSchema, call.input);
    if (call.state !== "working" || this.#ended) return;
    if (wrong !== undefined) return this.#results.refuse(call, `the arguments do not fit ${spec.name}: ${wrong}`);
    if (spec.kind === "callback" && spec.permission === "allow") return this.#results.carryOut(call);
    this.#questions.ask(call);
  }

  #withdraw(call: Call): void {
    const wasHeld = call.state === "held";
    if (!wasHeld && call.state !== "working") return;
    call.state = "withdrawn";
    this.#results.abandon(call);
    if (wasHeld) this.#questions.withdraw(call);
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

  /** Whatever the harness does. */
  #concludeParked(): void {
    void this.conclude({ type: "finished" }).catch((error: unknown) => this.parts.fail(error));
  }

  #conclude(outcome: Outcome, chunks: readonly Chunk[]): void {
    if (this.#ended) return;
    // What was approved is done, also when the harness ends before it says a word.
    const opening = this.#frames.takeOpening();
    if (opening.length > 0) this.parts.emit([{ type: "start" }, ...opening]);
    const { finish } = this.#frames;
    const end = finish ? [{ ...finish, finishReason: "tool-calls" }] : [];
    if (outcome.type === "interrupt" && chunks.length + end.length > 0) this.parts.emit([...chunks, ...end]);
    this.parts.conclude(outcome);
    this.stop();
  }
}
