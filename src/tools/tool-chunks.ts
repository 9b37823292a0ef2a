/** What a reader is told of the run's tools: chunks that the daemon writes, and nobody else. */
import type { Chunk } from "../frames/frame.ts";
import { isApproved } from "../suspension/approval.ts";
import type { AnswerEntry, CallbackResult } from "./port.ts";
import type { Question } from "./questions.ts";

export function outputChunk(toolCallId: string, { text, isError }: CallbackResult): Chunk {
  return isError
    ? { type: "tool-output-error", toolCallId, errorText: text, dynamic: true }
    : { type: "tool-output-available", toolCallId, output: text, dynamic: true };
}

/** The output of a call that a person answered: what they gave, as they gave it. */
export function answerChunk(asked: Pick<Question, "toolCallId" | "reason">, entry: AnswerEntry): Chunk {
  const { toolCallId, reason } = asked;
  if (reason === "tool_call") return { type: "tool-output-denied", toolCallId };
  const output = entry.status === "resolved" ? (entry.payload ?? null) : { cancelled: true };
  return { type: "tool-output-available", toolCallId, output, dynamic: true };
}

/** For readers of the AI SDK: an approval is asked for by a chunk, and answered with what came with it. */
export function approvalChunks(questions: readonly Question[], suspension: string): Chunk[] {
  return questions
    .filter(({ reason }) => reason === "tool_call")
    .map(({ id, toolCallId, inSubagent }) => {
      // What a subagent asks is in no suspension.
      const signature = suspension === "" || inSubagent ? {} : { signature: suspension };
      return { type: "tool-approval-request", approvalId: id, toolCallId, ...signature };
    });
}

export function approvalResponse(asked: Pick<Question, "id" | "reason">, entry: AnswerEntry): Chunk[] {
  if (asked.reason !== "tool_call") return [];
  const { reason } = (entry.payload ?? {}) as { reason?: unknown };
  return [
    {
      type: "tool-approval-response",
      approvalId: asked.id,
      approved: isApproved(entry),
      ...(typeof reason === "string" ? { reason } : {}),
    },
  ];
}
