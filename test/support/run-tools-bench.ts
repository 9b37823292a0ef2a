/**
 * The tools of one attempt between a harness that a test plays, a relay that keeps what it is told, and a reader. Time
 * stands still until the test moves it.
 */
import type { Chunk, Outcome } from "../../src/frames/frame.ts";
import { parseHarnessLine } from "../../src/frames/harness-line.ts";
import { OpenParts } from "../../src/frames/open-parts.ts";
import { readLargeLine } from "../../src/frames/read-large-line.ts";
import type { Metrics } from "../../src/metrics/port.ts";
import type { Call } from "../../src/tools/announced-calls.ts";
import type { OpenSubagent } from "../../src/tools/filter-frames.ts";
import { compileSchema } from "../../src/tools/json-schema.ts";
import type { Issued, Waiting } from "../../src/tools/open-questions.ts";
import type { AnswerEntry, CallbackResult, Interrupt, RelayAnswer, ToolSpec } from "../../src/tools/port.ts";
import type { Question } from "../../src/tools/questions.ts";
import { RunTools, type RunToolsParts } from "../../src/tools/run-tools.ts";
import { ManualClock, settle } from "./manual-clock.ts";
import { recordingLog } from "./silent.ts";

export const HOLD_MS = 10_000;

export function tool(name: string, over: Partial<ToolSpec> = {}): ToolSpec {
  const common = { description: "", inputSchema: {}, permission: "allow", readOnly: true, timeoutMs: 1000 } as const;
  return { name, kind: "callback", ...common, ...over };
}

export const SPECS: readonly ToolSpec[] = [
  tool("look_up", { inputSchema: { type: "object", properties: { key: { type: "string" } } } }),
  tool("pick", { kind: "client", responseSchema: { type: "object", required: ["picked"] } }),
  tool("connect", { kind: "client", render: { as: "button" } }),
  tool("erase", { permission: "ask" }),
  tool("forbidden", { permission: "deny" }),
];

export const START = [{ type: "start", messageId: "m" }, { type: "start-step" }] as const;
export const STEP_ENDS = { type: "finish-step" } as const;
export const FINISH = { type: "finish", finishReason: "stop", messageMetadata: { usage: 3 } } as const;

export interface Carried {
  readonly call: Call;
  readonly signal: AbortSignal;
  readonly resolve: (result: CallbackResult) => void;
}

type Opening = ConstructorParameters<typeof RunTools>[1];

export class RunToolsBench {
  readonly clock = new ManualClock();
  readonly log = recordingLog();
  readonly counted: string[] = [];
  /** All that the reader got, in order. */
  readonly read: Chunk[] = [];
  readonly waiting: Waiting[] = [];
  /** How many chunks the reader had before each of them. */
  readonly waitingAt: number[] = [];
  readonly outcomes: Outcome[] = [];
  readonly failures: unknown[] = [];
  /** What the shim was told, by the request's name. */
  readonly answered: [string, RelayAnswer][] = [];
  readonly carried: Carried[] = [];
  readonly issued: { readonly questions: readonly Question[]; readonly subagents: readonly OpenSubagent[] }[] = [];
  /** What is asked is signed when this resolves; a text refuses it. */
  signing: () => Promise<string | undefined> = async () => undefined;
  readonly tools: RunTools;
  readonly #parts = new OpenParts();

  constructor(over: Partial<RunToolsParts> = {}, opening: Opening = { chunks: [], answered: [] }) {
    this.tools = new RunTools(
      {
        specs: SPECS,
        disposition: "acknowledge",
        holdMs: HOLD_MS,
        clock: this.clock,
        log: this.log,
        metrics: this.#metrics(),
        issue: (questions, subagents) => this.#issue(questions, subagents),
        callBack: (call, signal) => new Promise((resolve) => this.carried.push({ call, signal, resolve })),
        check: async (schema, value) => compileSchema(schema).check(value),
        mayAsk: false,
        responseSchemaOf: (toolName) => (toolName === "ask" ? { type: "string" } : null),
        emit: (chunks, waiting) => {
          if (waiting) {
            this.waiting.push(waiting);
            this.waitingAt.push(this.read.length);
          }
          this.#show(chunks);
        },
        answered: () => {},
        conclude: (outcome) => void this.outcomes.push(outcome),
        fail: (error) => void this.failures.push(error),
        ...over,
      },
      opening,
    );
    this.tools.connect({
      directory: "/relay",
      publicKey: "key",
      answer: async (name, answer) => void this.answered.push([name, answer]),
      stop: async () => {},
    });
  }

  static hold(over: Partial<RunToolsParts> = {}): RunToolsBench {
    return new RunToolsBench({ disposition: "hold", ...over });
  }

  /** A frame of the harness, as the forwarder hands it on. */
  async print(...chunks: readonly object[]): Promise<void> {
    const frame = parseHarnessLine(JSON.stringify({ chunks }));
    if (!frame) throw new Error("no frame");
    const taken = this.tools.take(frame);
    if (taken) this.#show(JSON.parse(`{${taken.body}`).chunks);
    await settle();
  }

  announce(toolCallId: string, toolName: string, input: unknown = {}, more: object = {}): Promise<void> {
    return this.print({ type: "tool-input-available", toolCallId, toolName, input, dynamic: true, ...more });
  }

  /** A request as the relay found it. Its name is the call's id, if nothing else is said. */
  async request(toolCallId: string, toolName: string, args: unknown = {}, name = toolCallId): Promise<void> {
    this.tools.relayEvents.onRequest({ name, toolCallId, toolName, args });
    await settle();
  }

  /** Announced, and asked for. */
  async call(toolCallId: string, toolName: string, input: unknown = {}): Promise<void> {
    await this.announce(toolCallId, toolName, input);
    await this.request(toolCallId, toolName, input);
  }

  /** As `call`, by a subagent that the call `agent` has started. */
  async subagentCall(toolCallId: string, toolName: string, input: unknown = {}): Promise<void> {
    const providerMetadata = { dispatchd: { parentToolCallId: "agent" } };
    await this.announce(toolCallId, toolName, input, { providerMetadata });
    await this.request(toolCallId, toolName, input);
  }

  async withdraw(name: string): Promise<void> {
    this.tools.relayEvents.onWithdrawn(name);
    await settle();
  }

  /** The callback of the call replies. */
  async reply(toolCallId: string, text: string, isError = false): Promise<void> {
    this.carried.find(({ call }) => call.toolCallId === toolCallId)?.resolve({ text, isError });
    await settle();
  }

  /** The id of the newest question about the call. */
  idOf(toolCallId: string): string {
    const questions = this.issued.flatMap((each) => each.questions);
    return questions.findLast((question) => question.toolCallId === toolCallId)?.id ?? "none";
  }

  entry(toolCallId: string, payload: unknown, status: AnswerEntry["status"] = "resolved"): AnswerEntry {
    return { interruptId: this.idOf(toolCallId), status, payload };
  }

  /** Everything of the call that the reader got, and nothing of what announced it. */
  outputsOf(toolCallId: string): Chunk[] {
    return this.read.filter((chunk) => chunk.toolCallId === toolCallId && chunk.type !== "tool-input-available");
  }

  toldOf(name: string): RelayAnswer[] {
    return this.answered.flatMap(([to, answer]) => (to === name ? [answer] : []));
  }

  /** Calls that each `waiting` frame asks about. */
  get asked(): string[][] {
    return this.waiting.map(({ interrupts }) => interrupts.map(({ toolCallId }) => toolCallId));
  }

  /** True when a large line with this chunk is one that the tools have to see. */
  concern(chunk: Chunk): boolean {
    const line = Buffer.from(JSON.stringify({ chunks: [chunk] }));
    const frame = readLargeLine(line, { open: this.#parts.state, interest: this.tools.interest });
    return frame?.concerned === true;
  }

  get openCalls(): string[] {
    return [...this.#parts.openCalls];
  }

  #show(chunks: readonly Chunk[]): void {
    for (const chunk of chunks) this.#parts.note(chunk);
    this.read.push(...chunks);
  }

  async #issue(questions: readonly Question[], subagents: readonly OpenSubagent[]): Promise<Issued | string> {
    this.issued.push({ questions, subagents });
    const number = this.issued.length;
    const refused = await this.signing();
    if (refused !== undefined) return refused;
    const interrupts = questions.map(
      ({ id, reason, toolCallId, toolName, input }): Interrupt => ({
        ...{ id, reason, toolCallId, expiresAt: new Date(0).toISOString() },
        metadata: { toolName, input },
      }),
    );
    return { interrupts, suspension: questions.every(({ inSubagent }) => inSubagent) ? "" : `suspension ${number}` };
  }

  #metrics(): Metrics {
    const count = (what: string): void => void this.counted.push(what);
    return new Proxy({} as Metrics, { get: (_, name) => (name === "toolCall" ? count : () => {}) });
  }
}
