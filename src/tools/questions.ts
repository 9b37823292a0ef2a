/** The open questions of a turn: what a person is asked, and its limits. */
import { CanonicalJsonError, canonicalJson } from "../canonical-json.ts";
import type { HarnessInterrupt, InterruptReason } from "../harness/port.ts";
import { randomHex } from "../random-hex.ts";
import { MAX_INPUTS_BYTES, MAX_PAYLOADS_BYTES } from "../suspension/port.ts";
import type { AnswerEntry, JsonSchema, ToolSpec } from "./port.ts";

/** Whoever asks more at once asks nobody. */
export const MAX_OPEN_QUESTIONS = 32;
/** An approval says yes, or no and why. */
export const APPROVAL_SCHEMA: JsonSchema = {
  type: "object",
  properties: { approved: { type: "boolean" }, reason: { type: "string" } },
  required: ["approved"],
  // Whoever approves with changes approves something else, and is to be told so.
  additionalProperties: false,
};

export interface Question {
  readonly id: string;
  readonly reason: InterruptReason;
  readonly message?: string;
  readonly toolCallId: string;
  readonly toolName: string;
  readonly input: unknown;
  /** Null: any answer will do. */
  readonly responseSchema: JsonSchema | null;
  readonly render?: unknown;
  /** The run's tool that it is about. Absent: the harness's own question. */
  readonly tool?: ToolSpec;
  /** From inside a subagent: it can be answered while the run lives, and no longer. */
  readonly inSubagent?: true;
}

export function questionOf(
  tool: ToolSpec,
  call: { readonly toolCallId: string; readonly input: unknown },
  inSubagent: boolean,
): Question {
  const reason = reasonOf(tool);
  return {
    id: randomHex(16),
    reason,
    ...(reason === "tool_call" ? { message: `${tool.name} runs only if you approve it.` } : {}),
    toolCallId: call.toolCallId,
    toolName: tool.name,
    input: call.input,
    responseSchema: responseSchemaOfTool(tool),
    ...(tool.render === undefined ? {} : { render: tool.render }),
    tool,
    ...(inSubagent ? { inSubagent: true } : {}),
  };
}

export function reasonOf(tool: ToolSpec): InterruptReason {
  return tool.kind === "client" ? "dispatchd:client_tool" : "tool_call";
}

/** A function of the tool alone, so that it can be compared on another pod. */
export function responseSchemaOfTool(tool: ToolSpec): JsonSchema | null {
  return tool.kind === "client" ? (tool.responseSchema ?? null) : APPROVAL_SCHEMA;
}

/** A question of the harness's own: no tool of the run. */
export function ownQuestionOf(
  { toolCallId, toolName, input, message }: HarnessInterrupt,
  reason: InterruptReason,
  responseSchema: JsonSchema | null,
): Question {
  return { id: randomHex(16), reason, ...(message ? { message } : {}), toolCallId, toolName, input, responseSchema };
}

/** Of all that is asked together the signer says it too; what a subagent asks is not signed. */
export function whyNotShown(input: unknown): string | undefined {
  const size = measure(input, MAX_INPUTS_BYTES);
  return typeof size === "number" ? undefined : `what is to be asked ${size}`;
}

/** The first answer that no later dispatch could bring either. */
export function findTooMuch(entries: readonly AnswerEntry[]): { index: number; message: string } | undefined {
  let left = MAX_PAYLOADS_BYTES;
  for (const [index, { payload }] of entries.entries()) {
    const size = measure(payload ?? null, left);
    if (typeof size === "string") return { index, message: size };
    left -= size;
  }
  return undefined;
}

/** In bytes; a text says what is wrong. */
function measure(value: unknown, maxBytes: number): number | string {
  try {
    return Buffer.byteLength(canonicalJson(value, maxBytes));
  } catch (error) {
    if (error instanceof CanonicalJsonError) return error.message;
    throw error;
  }
}
