/**
 * What the scripted model answers to one request. A turn is plain data, so that a test reads like the conversation
 * that it wants:
 *
 *     model.push(calls(["Bash", { command: "ls" }]), says("Two files."))
 */

export type ScriptedBlock =
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "thinking"; readonly thinking: string; readonly signature?: string }
  | { readonly type: "tool_use"; readonly name: string; readonly input: unknown; readonly id?: string };

export interface ScriptedUsage {
  readonly inputTokens?: number;
  readonly outputTokens?: number;
  readonly cacheReadTokens?: number;
  readonly cacheWriteTokens?: number;
}

export interface ScriptedError {
  /** 429, 500, 529, 401, … */
  readonly status: number;
  readonly message?: string;
  /** Sent as `retry-after`. Without it a client chooses its own pause. */
  readonly retryAfterSeconds?: number;
}

export interface ScriptedTurn {
  readonly blocks?: readonly ScriptedBlock[];
  /** Answers with this instead of a stream. */
  readonly error?: ScriptedError;
  /** Without it: `tool_use` when a tool is called, else `end_turn`. */
  readonly stopReason?: "end_turn" | "tool_use" | "max_tokens" | "refusal";
  readonly usage?: ScriptedUsage;
  /** Pause before the first byte of the answer, headers included. */
  readonly delayMs?: number;
  /** Pause before each delta. */
  readonly betweenDeltasMs?: number;
  /** Characters of one delta; 8 without it. */
  readonly deltaChars?: number;
  /** Closes the connection after this many deltas, without the end of the message. */
  readonly cutAfterDeltas?: number;
  /** Closed only then: a client that has not shown what it read when the connection breaks may never show it. */
  readonly cutWhen?: Promise<unknown>;
  /** Sends an `error` event (`overloaded_error`) after this many deltas, and ends the stream. */
  readonly errorAfterDeltas?: number;
  /** Stops sending after this many deltas and keeps the connection open until the client gives up. */
  readonly hangAfterDeltas?: number;
  /** The turn answers a request of this kind only; `main` without it. */
  readonly to?: "main" | "subagent";
}

type Timing = Omit<ScriptedTurn, "blocks" | "error">;

export function says(text: string, more: Timing = {}): ScriptedTurn {
  return { blocks: [{ type: "text", text }], ...more };
}

export function thinks(thinking: string, text: string, more: Timing = {}): ScriptedTurn {
  return {
    blocks: [
      { type: "thinking", thinking },
      { type: "text", text },
    ],
    ...more,
  };
}

/** One assistant message that calls tools, all of them in parallel. */
export function calls(...tools: readonly (readonly [name: string, input: unknown, id?: string])[]): ScriptedTurn {
  return {
    blocks: tools.map(([name, input, id]) => ({ type: "tool_use", name, input, ...(id === undefined ? {} : { id }) })),
  };
}

export function fails(status: number, more: Omit<ScriptedError, "status"> = {}): ScriptedTurn {
  return { error: { status, ...more } };
}
