/** Shapes of the daemon's requests and answers, as a caller writes and reads them. */
export type { Frame, GoneReason, Outcome, Preparation, RunError, Settled, Usage } from "../frames/frame.ts";
export type { RunState, RunSummary } from "../frames/run-summary.ts";

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
  readonly answers?: readonly unknown[];
  readonly suspension?: unknown;
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
}
