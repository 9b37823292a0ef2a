/** What the `result` messages of Claude Code say of a turn: how it ended, and what it used. */
import type { SDKAPIRetryMessage, SDKResultMessage } from "@anthropic-ai/claude-agent-sdk/core";
import type { Usage } from "../../frames/frame.ts";
import { TurnFailure } from "./turn-failure.ts";
import { isRecord, record } from "./turn-request.ts";

/** Claude Code tries a refused credential ten times, over minutes: it may be renewed meanwhile. Ours is not. */
const CREDENTIAL_ATTEMPTS = 2;

const FINISH_REASONS: Readonly<Record<string, string>> = {
  end_turn: "stop",
  stop_sequence: "stop",
  tool_use: "tool-calls",
  tool_deferred: "tool-calls",
  max_tokens: "length",
  refusal: "content-filter",
};

export function finishReason(result: SDKResultMessage): string {
  return result.stop_reason === null ? "stop" : (FINISH_REASONS[result.stop_reason] ?? "other");
}

/** True when a call waits for somebody: nothing may follow, whatever goes on in the background. */
export function isParked(result: SDKResultMessage): boolean {
  return result.subtype === "success" && ["tool_use", "tool_deferred"].includes(result.stop_reason ?? "");
}

/** Undefined when the turn ended well. */
export function failureOf(result: SDKResultMessage, usage: Usage): TurnFailure | undefined {
  switch (result.subtype) {
    case "success": {
      if (!result.is_error) return undefined;
      const status = typeof result.api_error_status === "number" ? ` (status ${result.api_error_status})` : "";
      return new TurnFailure("turn_failed", `the model could not be used${status}: ${result.result}`, usage);
    }
    case "error_max_turns":
      return new TurnFailure("turn_failed", `the turn reached its limit of ${result.num_turns} model calls`, usage);
    case "error_max_budget_usd":
      return new TurnFailure("turn_failed", "the turn reached its limit of cost", usage);
    case "error_max_structured_output_retries":
    case "error_during_execution": {
      const errors = result.errors.filter((error) => error.trim() !== "");
      return new TurnFailure("turn_failed", errors.join("; ") || "Claude Code ended the turn with an error", usage);
    }
  }
}

/** A failure that no retry of Claude Code's will mend: the credential is refused, again. */
export function credentialFailure(retry: SDKAPIRetryMessage): TurnFailure | undefined {
  if (retry.error_status !== 401 && retry.error_status !== 403) return undefined;
  if (retry.attempt < CREDENTIAL_ATTEMPTS) return undefined;
  return new TurnFailure("turn_failed", `the model's endpoint refused the credential (status ${retry.error_status})`);
}

/** Adds up the results of one turn. A resumed session's totals begin with its earlier turns, so those are not taken. */
export function addUsage(sum: Usage, result: SDKResultMessage): Usage {
  const since = (result as { model_usage_since_last_result?: unknown }).model_usage_since_last_result;
  const models = isRecord(since) ? Object.values(since).map(record) : [mainLoopUsage(result)];
  const add = (before: number | undefined, name: string): number =>
    models.reduce((total, model) => total + count(model[name]), before ?? 0);
  const cost = add(sum.costUsd, "costUSD");
  return {
    inputTokens: add(sum.inputTokens, "inputTokens"),
    outputTokens: add(sum.outputTokens, "outputTokens"),
    cacheReadTokens: add(sum.cacheReadTokens, "cacheReadInputTokens"),
    cacheWriteTokens: add(sum.cacheWriteTokens, "cacheCreationInputTokens"),
    costUsd: Math.round(cost * 1e9) / 1e9,
    turns: (sum.turns ?? 0) + result.num_turns,
  };
}

/** The same names from the part of a result that older versions have: without subagents, without cost. */
function mainLoopUsage(result: SDKResultMessage): Record<string, unknown> {
  return {
    inputTokens: result.usage.input_tokens,
    outputTokens: result.usage.output_tokens,
    cacheReadInputTokens: result.usage.cache_read_input_tokens,
    cacheCreationInputTokens: result.usage.cache_creation_input_tokens,
  };
}

function count(value: unknown): number {
  return typeof value === "number" && Number.isFinite(value) ? value : 0;
}
