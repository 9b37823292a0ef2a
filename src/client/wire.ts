/** Shapes of the daemon's requests and answers, as a caller writes and reads them. */
import type { Frame as AnyFrame, Outcome as AnyOutcome, RunError, Usage } from "../frames/frame.ts";
import type { RunSummary as AnyRunSummary } from "../frames/run-summary.ts";

export type { GoneReason, Preparation, RunError, Settled, Usage } from "../frames/frame.ts";
export type { RunState } from "../frames/run-summary.ts";

/** How a run ended. Final: whoever has read it knows that the turn is not to be run again. */
export type Outcome =
  | Exclude<AnyOutcome, { readonly type: "interrupt" }>
  | {
      readonly type: "interrupt";
      readonly interrupts: readonly Interrupt[];
      readonly suspension?: string;
      readonly usage?: Usage;
    };

/** One line of a run's output. */
export interface Frame extends Omit<AnyFrame, "waiting" | "outcome"> {
  /** The run asks, and waits. Each such frame replaces the one before it: it lists all that is open. */
  readonly waiting?: Waiting;
  readonly outcome?: Outcome;
}

/** What the daemon tells of a run. Times are ISO 8601. */
export interface RunSummary extends Omit<AnyRunSummary, "outcome"> {
  readonly outcome?: Outcome;
  readonly error?: RunError;
}

export interface Waiting {
  readonly interrupts: readonly Interrupt[];
  /** Absent: nothing of it could be resumed elsewhere. */
  readonly suspension?: string;
  /** ISO 8601. After that the run ends, and its outcome asks what is still open. */
  readonly until: string;
}

export type JsonSchema = Readonly<Record<string, unknown>>;

/** A tool is to be approved; the agent has a question; its plan is to be agreed to; a client tool is to be fulfilled. */
export type InterruptReason = "tool_call" | "input_required" | "confirmation" | "dispatchd:client_tool";

/** One question to a person. */
export interface Interrupt {
  readonly id: string;
  readonly reason: InterruptReason;
  /** The question in words. */
  readonly message?: string;
  /** The model's own call that asks. */
  readonly toolCallId: string;
  /** What the payload of an answer has to look like. Absent: anything. */
  readonly responseSchema?: JsonSchema;
  /** ISO 8601. */
  readonly expiresAt: string;
  /** `input` comes from the model: not to be believed, nor shown unescaped. */
  readonly metadata: {
    readonly toolName: string;
    readonly input: unknown;
    readonly render?: unknown;
    /** Asked from inside a subagent: answered while the run waits, or not at all. */
    readonly inSubagent?: true;
  };
}

/** One answer. */
export interface Answer {
  readonly interruptId: string;
  readonly status: "resolved" | "cancelled";
  readonly payload?: unknown;
  readonly metadata?: unknown;
}

/** Why answers do not count. */
export interface Staleness {
  /** The question that it is about, where it is about one. */
  readonly interruptId?: string;
  readonly reason: string;
  /** True: nothing that could be sent makes this suspension good; the only way out is to ask again. */
  readonly dead: boolean;
}

/** A tool of the run: carried out by a POST to the run's callback, or by a person. */
export interface Tool {
  readonly name: string;
  readonly description: string;
  readonly inputSchema: JsonSchema;
  readonly kind: "callback" | "client";
  /** Of a callback. */
  readonly timeoutMs?: number;
  /** `ask`: a person has to approve each call before it runs. */
  readonly permission?: "allow" | "ask" | "deny";
  readonly readOnly?: boolean;
  /** Of a client tool: what an answer has to look like. */
  readonly responseSchema?: JsonSchema;
  /** For whoever shows the question. */
  readonly render?: unknown;
}

/** What a person said: text, or parts of which at least one has text. */
export type UserMessage =
  | string
  | { readonly content: string; readonly [key: string]: unknown }
  | { readonly parts: readonly UserMessagePart[]; readonly [key: string]: unknown };

export type UserMessagePart =
  | { readonly type: "text"; readonly text: string }
  /** `url` is a data: URL of an image, a PDF or a text. */
  | { readonly type: "file"; readonly mediaType: string; readonly url: string; readonly filename?: string }
  | { readonly type: string; readonly [key: string]: unknown };

/** What a turn works on. Unknown keys reach the harness as they are. */
export interface DispatchInput {
  /** The conversation, any text up to 1,024 characters. One thread has one writer: a new run takes over. */
  readonly threadId: string;
  /** Only a dispatch with `answers` may leave it out. */
  readonly userMessage?: UserMessage;
  /** `cwd: null` is an empty directory of the thread. */
  readonly workspace?: { readonly cwd?: "/repo" | null; readonly repo?: unknown; readonly branch?: unknown };
  readonly mcp?: {
    readonly url: string;
    readonly headers?: Readonly<Record<string, string>>;
    readonly expiresAt?: unknown;
  };
  readonly models?: unknown;
  readonly mode?: string;
  readonly toolApprovalLevel?: string;
  readonly agent?: {
    readonly id?: string;
    readonly instructions?: string;
    readonly disallowedTools?: readonly string[];
  };
  readonly harness?: { readonly id?: string; readonly sessionId?: string };
  readonly user?: unknown;
  readonly organizationId?: string;
  /** This turn continues one that infrastructure cut short. */
  readonly resume?: { readonly reason?: string };
  /** Variables of the harness's process, for this run alone. */
  readonly env?: Readonly<Record<string, string>>;
  readonly tools?: readonly Tool[];
  /** Where callback tools are carried out. The agent does not see it. */
  readonly callback?: { readonly url: string; readonly headers?: Readonly<Record<string, string>> };
  /** How long a turn waits for a person before it ends as suspended. 0 or absent: it ends at once. */
  readonly clientTools?: { readonly holdSeconds?: number };
  /** Ed25519, base64url of 32 bytes: whoever holds the other half answers all calls in the pod's stead. */
  readonly relay?: { readonly publicKey: string };
  /** The newest save of the thread that the caller knows of: `settled.generation`. */
  readonly sessionGeneration?: string;
  /** Grows with each of the thread's runs. */
  readonly fence?: number;
  /** To the questions of a suspended run, all of them; `resume` puts them here. */
  readonly answers?: readonly Answer[];
  readonly suspension?: string;
  readonly [key: string]: unknown;
}

export interface Health {
  readonly bootId: string;
  readonly version: string;
  readonly draining: boolean;
  readonly isolation: "user" | "none";
  readonly runs: number;
  /** Hex HMAC-SHA256 under the token, when a nonce was sent. */
  readonly proof?: string;
  readonly [key: string]: unknown;
}

export interface Idle {
  /** ISO 8601: the last frame, keepalive or dispatch. */
  readonly idleSince: string;
  readonly idleMs: number;
}

/** For later runs. A restart of the daemon returns to its configured values; a new boot id tells of it. */
export interface ConfigUpdate {
  readonly token?: string;
  readonly env?: Readonly<Record<string, string>>;
  /** As SUSPENSION_KEYS. They take the place of all that there were: one that is not listed again is retired. */
  readonly suspensionKeys?: string;
}
