/**
 * A suspension is the state of a run that ended with open questions. The daemon keeps nothing that it can rely on
 * until they are answered (the pod may be another one), so the state travels with the client, signed and not secret:
 *
 *     issue: what was asked → token        the caller shows the questions, keeps the token
 *     verify: token and answers → what was asked, word for word, or `stale`
 *
 * - With a key every token is a compact JWS (HS256, a type of its own); without one it has a form of its own that only
 *   a daemon without a key reads. Neither daemon reads the other's.
 * - One token has many spellings that verify. Whoever uses it once goes by `id`, never by the text.
 * - Nothing here reads a clock, a file or the environment. Times are milliseconds since the epoch.
 */
import type { NamedKey } from "../key-list.ts";

/** The first signs, all verify. None: suspensions are unsigned. */
export type SuspensionKeys = readonly NamedKey[];

/** Bytes of the canonical JSON of all inputs of a suspension together. */
export const MAX_INPUTS_BYTES = 64 * 1024;
export const MAX_TOKEN_BYTES = 256 * 1024;
/** Bytes of the canonical JSON of all payloads of a resume together. */
export const MAX_PAYLOADS_BYTES = 256 * 1024;
/** How far the clocks of two pods may be apart. */
export const CLOCK_SKEW_MS = 60_000;

/** One question to a person. */
export interface SignedInterrupt {
  readonly id: string;
  readonly reason: string;
  readonly toolCallId: string;
  readonly toolName: string;
  readonly input: unknown;
  /** Of the run's tool, by `toolHashOf`. Absent: a question of the harness's own, no tool of the run. */
  readonly toolHash?: string;
  /** Of what a payload has to look like, by `schemaHashOf`; of null when anything will do. */
  readonly responseSchemaHash: string;
}

/** A subagent that the turn has started, and what for. */
export interface PlannedSubagent {
  readonly toolCallId: string;
  readonly toolName: string;
  readonly input: unknown;
}

export interface SuspensionState {
  /** Of all that one turn hands out, so that one of them is used. Absent: a new one. */
  readonly id?: string;
  readonly audience: string;
  readonly organizationId?: string;
  readonly threadId: string;
  readonly runId: string;
  readonly mode?: string;
  readonly interrupts: readonly SignedInterrupt[];
  readonly subagents?: readonly PlannedSubagent[];
}

export interface Suspension extends SuspensionState {
  /** 32 hex digits, random. It may be logged; the token may not. */
  readonly id: string;
  readonly issuedAt: number;
  readonly expiresAt: number;
}

export type IssueResult =
  /** Times are in whole seconds: `expiresAt` may be up to a second later than asked for. */
  | { readonly type: "issued"; readonly token: string; readonly id: string; readonly expiresAt: number }
  | {
      readonly type: "refused";
      readonly code: "inputs_too_large" | "token_too_large" | "not_json";
      /** For the model and for people: no part of an input. */
      readonly reason: string;
    };

export type IssueSuspension = (
  state: SuspensionState,
  keys: SuspensionKeys,
  now: number,
  ttlMs: number,
) => Promise<IssueResult>;

/** What of a tool is signed: a person is asked about this tool and no other of its name. */
export interface ToolFacts {
  readonly name: string;
  readonly kind: string;
  readonly inputSchema: unknown;
  /** Absent means "allow". */
  readonly permission?: string | undefined;
}

/** AG-UI's resume entry. */
export interface Answer {
  readonly interruptId: string;
  readonly status: "resolved" | "cancelled";
  readonly payload?: unknown;
  /** May repeat the suspension, and `toolCallId`, `toolName`, `input` of the interrupt. */
  readonly metadata?: unknown;
  /** The suspension, from a client of the AI SDK. */
  readonly signature?: unknown;
}

/** What a client sends back of what it was shown. None of it is used; all of it has to equal what was signed. */
export interface ClearText {
  /** AG-UI's interrupts, as the outcome had them. */
  readonly interrupts?: readonly unknown[];
  /** The AI SDK's `tool-approval-request`, or tool parts with an `approval`. */
  readonly approvals?: readonly unknown[];
  readonly mode?: string | undefined;
}

export interface ResumeRequest {
  /** `input.suspension` as it came. A client may have it in its answers only. */
  readonly token: unknown;
  readonly audience: string;
  readonly organizationId: string | undefined;
  readonly threadId: string;
  readonly answers: readonly Answer[];
  /** The run's tools as they are now. */
  readonly tools: readonly ToolFacts[];
  /** What an answer has to look like, as it is now. Null: anything will do. */
  readonly responseSchemaOf: (interrupt: SignedInterrupt) => unknown;
  /** What is wrong with a payload; undefined when nothing is. Not called for a schema of null. */
  readonly validate: (schema: unknown, payload: unknown) => string | undefined;
  readonly clear: ClearText;
}

export type VerifyResult =
  | { readonly type: "valid"; readonly suspension: Suspension; readonly signedBy: string | null }
  | {
      readonly type: "stale";
      /** The one that it is about; of what concerns the whole suspension, the first that was answered. */
      readonly interruptId?: string;
      /** For logs. Not believed: nothing says that the token is ours. */
      readonly suspensionId?: string;
      readonly reason: string;
      /** True: nothing that the caller could send makes this suspension good; the only way out is to ask again. */
      readonly dead: boolean;
    };

/** The checks on a request alone, before anything is started. That it is used once is for whoever keeps the ids. */
export type VerifySuspension = (request: ResumeRequest, keys: SuspensionKeys, now: number) => Promise<VerifyResult>;
