/**
 * The run's tools: what a dispatch lists in `input.tools`, and how a call travels from the shim to whoever answers it.
 *
 * The shim publishes a request as a file in the run's relay directory and waits for an answer beside it. One reader per
 * run answers: this daemon, or a runner outside the pod with a key of its own. The directory is the agent's too, so
 * nothing in it is believed for being there: docs/relay.md has the rules.
 */
import type { InterruptReason } from "../harness/port.ts";

export type JsonSchema = Readonly<Record<string, unknown>>;

/** Callback tools are carried out by a POST to the run's callback, client tools by a person. */
export type ToolKind = "callback" | "client";
/** `ask`: parks before it runs, until a person approves. */
export type ToolPermission = "allow" | "ask" | "deny";

export interface ToolSpec {
  readonly name: string;
  readonly description: string;
  readonly inputSchema: JsonSchema;
  readonly kind: ToolKind;
  readonly permission: ToolPermission;
  readonly readOnly: boolean;
  /** Of a callback. */
  readonly timeoutMs: number;
  /** What an answer has to look like. */
  readonly responseSchema?: JsonSchema;
  /** For whoever shows the question. */
  readonly render?: unknown;
}

/** Where callback tools are carried out. Secret as a whole: it stays in the daemon's memory. */
export interface Callback {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** What the shim is told of a tool: all that the model may know. */
export interface AdvertisedTool {
  readonly name: string;
  readonly description: string;
  readonly inputSchema: JsonSchema;
  readonly readOnly: boolean;
}

/** Told apart by `type` before anything else is read. */
export type RelayAnswer =
  | { readonly type: "success"; readonly text: string }
  | { readonly type: "failure"; readonly error: string }
  /** The call is parked: its result ends the turn. */
  | { readonly type: "pause" };

/** A request as it was found: whatever a process of the agent's user may have written, in the right shape. */
export interface RelayRequest {
  /** The random part of its file's name. */
  readonly name: string;
  readonly toolName: string;
  readonly toolCallId: string;
  readonly args: unknown;
}

/** The daemon's side of one run's relay directory. */
export interface Relay {
  readonly directory: string;
  /** Verifies answers: the public half of the run's own pair, base64url of 32 bytes. */
  readonly publicKey: string;
  /**
   * Publishes the answer of a request. Once each: a second one, or one for a request that is gone, does nothing.
   * Resolves when the answer can be read; rejects only when the pod's disk fails.
   */
  answer(name: string, answer: RelayAnswer): Promise<void>;
  /** Ends the watching. What is in the directory is removed with the run's folder. */
  stop(): Promise<void>;
}

export interface RelayEvents {
  /** A request that can be read. Each name once. */
  readonly onRequest: (request: RelayRequest) => void;
  /** The request's file vanished, or its shim died, before it was answered. */
  readonly onWithdrawn: (name: string) => void;
}

/** How a call of a callback tool ended. Failures are text for the model, which can act on them. */
export interface CallbackResult {
  readonly text: string;
  readonly isError: boolean;
}

/** A question to a person, as it goes to the client: AG-UI's fields. */
export interface Interrupt {
  readonly id: string;
  readonly reason: InterruptReason;
  readonly message?: string;
  readonly toolCallId: string;
  readonly responseSchema?: JsonSchema;
  /** ISO 8601. */
  readonly expiresAt: string;
  readonly metadata: {
    readonly toolName: string;
    readonly input: unknown;
    readonly render?: unknown;
    /** The suspension, for clients that echo only what AG-UI knows. */
    readonly suspension?: string;
    /** From inside a subagent: only a run that waits can be answered, and it is in no suspension. */
    readonly inSubagent?: true;
  };
}

/** An answer as a client gives it: AG-UI's resume entry. */
export interface AnswerEntry {
  readonly interruptId: string;
  readonly status: "resolved" | "cancelled";
  readonly payload?: unknown;
  readonly metadata?: unknown;
}
