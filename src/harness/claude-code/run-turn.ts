/**
 * Reads a started turn to its end. It ends with the result of its own prompt: a resumed session may first give one for
 * what an earlier turn left in the background. When subagents work on in the background, Claude Code wakes the model
 * with what they report, and the turn ends when the session is idle, or when a call waits for a person.
 */
import type { SDKMessage, SDKResultMessage, SDKResultSuccess } from "@anthropic-ai/claude-agent-sdk/core";
import { messageOf } from "../../errors.ts";
import type { Chunk, Usage } from "../../frames/frame.ts";
import type { StartedTurn } from "./start-turn.ts";
import type { MessageTranslator } from "./translate-message.ts";
import { TurnFailure } from "./turn-failure.ts";
import { addUsage, credentialFailure, failureOf, finishReason, isParked } from "./turn-result.ts";

/** Tasks whose end the model is told of, and that end by themselves. A shell may be a server that never does. */
const AWAITED_TASKS: ReadonlySet<string> = new Set(["local_agent", "local_workflow", "mcp_task"]);

export type WriteChunks = (chunks: readonly Chunk[]) => Promise<void>;

export interface EndedTurn {
  readonly usage: Usage;
  /** The call of Claude Code's own that it left for later. */
  readonly deferred?: NonNullable<SDKResultSuccess["deferred_tool_use"]>;
}

/** Throws TurnFailure when the turn did not end well. */
export async function runTurn(
  started: StartedTurn,
  translator: MessageTranslator,
  write: WriteChunks,
): Promise<EndedTurn> {
  const { session } = started;
  let usage: Usage = {};
  let answered: SDKResultMessage | undefined;
  let awaited = false;
  for (;;) {
    const message = await next(started, usage);
    await write(translator.translate(message));
    if (message.type === "system") {
      if (message.subtype === "task_started" && isAwaited(message)) awaited = true;
      if (message.subtype === "api_retry") {
        const failure = credentialFailure(message);
        if (failure) throw failure;
      }
      const idle = message.subtype === "session_state_changed" && message.state === "idle";
      if (idle && answered) break;
    }
    if (message.type !== "result") continue;
    usage = addUsage(usage, message);
    if (!answered && !isParked(message) && !answers(message, session.promptId)) continue;
    answered = message;
    if (!awaited || message.is_error || isParked(message)) break;
  }
  const failure = failureOf(answered, usage);
  if (failure) throw failure;
  const finish = { type: "finish", finishReason: finishReason(answered), messageMetadata: { usage } };
  const deferred = answered.subtype === "success" ? answered.deferred_tool_use : undefined;
  await write([...translator.end(deferred?.id), finish]);
  return { usage, ...(deferred ? { deferred } : {}) };
}

async function next(started: StartedTurn, usage: Usage): Promise<SDKMessage> {
  let message: SDKMessage | undefined;
  try {
    message = await started.session.next();
  } catch (error) {
    throw new TurnFailure("turn_failed", `Claude Code ended before the turn did: ${messageOf(error)}`, usage);
  }
  if (message) return message;
  throw new TurnFailure("turn_failed", "Claude Code ended before the turn did", usage);
}

function answers(result: SDKResultMessage, promptId: string | undefined): boolean {
  if (promptId === undefined || result.user_message_uuid === undefined)
    return result.origin?.kind !== "task-notification";
  return result.user_message_uuid === promptId || (result.user_message_uuids ?? []).includes(promptId);
}

function isAwaited(task: { task_type?: string; is_backgrounded?: boolean; ambient?: boolean }): boolean {
  return task.ambient !== true && task.task_type !== undefined && AWAITED_TASKS.has(task.task_type);
}
