/** Calls of tools and their results, as chunks. */
import type { SDKUserMessage } from "@anthropic-ai/claude-agent-sdk/core";
import type { Chunk } from "../../frames/frame.ts";
import { canonicalToolName, isShimTool } from "./tool-names.ts";
import { toolErrorText, toolOutput } from "./tool-output.ts";
import { isRecord, record } from "./turn-request.ts";

export interface ToolResult {
  readonly tool_use_id: string;
  readonly content?: unknown;
  readonly is_error?: boolean;
}

export interface CallOrigin {
  readonly providerExecuted?: true;
  readonly dynamic: true;
}

/** The run's own tools are not executed by the provider: somebody else gives their output. */
export function originOf(name: string): CallOrigin {
  return { ...(isShimTool(name) ? {} : { providerExecuted: true }), dynamic: true };
}

export interface DescribedCall extends CallOrigin {
  readonly toolCallId: string;
  readonly toolName: string;
}

export function describeCall(toolCallId: string, name: string): DescribedCall {
  return { toolCallId, toolName: canonicalToolName(name), ...originOf(name) };
}

export function resultsIn(message: SDKUserMessage): ToolResult[] {
  const { content } = message.message;
  return Array.isArray(content) ? content.flatMap((block) => (block.type === "tool_result" ? [block] : [])) : [];
}

/** `name`: of the tool whose result it is. */
export function resultChunk(name: string, result: ToolResult, message: SDKUserMessage): Chunk {
  const call = { toolCallId: result.tool_use_id, ...originOf(name) };
  if (wasDenied(message, call.toolCallId)) return { type: "tool-output-denied", toolCallId: call.toolCallId };
  if (result.is_error) return { type: "tool-output-error", ...call, errorText: toolErrorText(result.content) };
  return { type: "tool-output-available", ...call, output: toolOutput(result.content) };
}

/** True when the call did not run because it was not permitted. */
function wasDenied(message: SDKUserMessage, toolCallId: string): boolean {
  const { tool_result_meta: meta } = message as { tool_result_meta?: unknown };
  if (!Array.isArray(meta)) return false;
  return meta.some(
    (entry) => isRecord(entry) && entry.id === toolCallId && record(entry.permission_decision).decision === "reject",
  );
}
