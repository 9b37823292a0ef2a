/**
 * Claude Code's own questions, put to a person who is not there: asked → deferred, and the turn ends → answered in a later
 * run, in which Claude Code makes the same call again before anything else.
 *
 * - A new question is deferred by a hook. One of a message: a second one, or one from inside a subagent, is refused.
 * - An answer is given only where tool and input are the ones that the person saw. A plan is a file, which the agent can
 *   change: Claude Code reads it again for the call, and another text than the one agreed to ends the turn as stale.
 * - Hook and permission callback both know the answers: the call may come before Claude Code knows of the hook, and in a
 *   read-only turn the callback is not asked.
 */
import type {
  CanUseTool,
  HookCallbackMatcher,
  HookJSONOutput,
  PermissionResult,
} from "@anthropic-ai/claude-agent-sdk/core";
import type { TurnAnswer } from "../port.ts";
import { answeredInput, isSameQuestion } from "./own-questions.ts";
import { canonicalToolName, isOwnQuestion, OWN_QUESTIONS } from "./tool-names.ts";
import { TurnFailure } from "./turn-failure.ts";

const IN_SUBAGENT =
  "The person cannot be asked from inside a subagent. End here, and report to your caller what has to be asked.";
const ONE_AT_A_TIME =
  "One question at a time can be put to the person, and another one is on its way. Wait for its answer, then ask again.";
const NOBODY = "Nobody is there to permit this call. Do without it, or ask the person for what you need.";

type Reply =
  | { readonly type: "allow"; readonly input: Record<string, unknown> }
  | { readonly type: "deny"; readonly text: string };

export interface QuestionCallbacks {
  readonly hook: HookCallbackMatcher;
  readonly canUseTool: CanUseTool;
}

/**
 * `released`: nothing is answered before, so that a start that is not good enough leaves no trace. `fail` is told that a
 * call is not the one that was answered.
 */
export function questionCallbacks(
  answers: readonly TurnAnswer[],
  released: Promise<unknown>,
  fail: (reason: TurnFailure) => void,
): QuestionCallbacks {
  const byCall = new Map(answers.map((answer) => [answer.toolCallId, answer]));
  let deferred: string | undefined;
  let planAgreed = false;

  const replyTo = (name: string, input: Record<string, unknown>, toolCallId: string): Reply | undefined => {
    const answer = byCall.get(toolCallId);
    if (!answer) return undefined;
    if (answer.toolName !== canonicalToolName(name) || !isSameQuestion(answer.toolName, input, answer.input)) {
      const what =
        name === "ExitPlanMode" ? "the plan is not the one that the person saw" : "the question is another one";
      fail(new TurnFailure("stale", `${what} (call ${toolCallId})`));
      return { type: "deny", text: "This call is not the one that was answered." };
    }
    if (answer.status === "cancelled" || answer.isError) return { type: "deny", text: answer.text };
    return { type: "allow", input: answeredInput(answer, input) };
  };

  return {
    hook: {
      matcher: OWN_QUESTIONS.join("|"),
      hooks: [
        async (asked): Promise<HookJSONOutput> => {
          if (asked.hook_event_name !== "PreToolUse" || !isOwnQuestion(asked.tool_name)) return {};
          if (asked.agent_id !== undefined) return decided("deny", { permissionDecisionReason: IN_SUBAGENT });
          await released;
          const reply = replyTo(asked.tool_name, asked.tool_input as Record<string, unknown>, asked.tool_use_id);
          if (reply?.type === "allow" && asked.tool_name === "AskUserQuestion") {
            return decided("allow", { updatedInput: reply.input });
          }
          // The callback says so in better words, if it is asked.
          if (reply)
            return reply.type === "deny" && asked.permission_mode === "dontAsk"
              ? decided("deny", { permissionDecisionReason: reply.text })
              : {};
          if (deferred !== undefined && deferred !== asked.tool_use_id)
            return decided("deny", { permissionDecisionReason: ONE_AT_A_TIME });
          deferred = asked.tool_use_id;
          return decided("defer", {});
        },
      ],
    },
    canUseTool: async (name, input, { toolUseID }): Promise<PermissionResult> => {
      await released;
      const reply = isOwnQuestion(name) ? replyTo(name, input, toolUseID) : undefined;
      if (reply?.type === "deny") return { behavior: "deny", message: reply.text };
      // Claude Code leaves plan mode for one that asks for permission: agreeing to the plan was it.
      if (reply && name === "ExitPlanMode") planAgreed = true;
      if (reply) return { behavior: "allow", updatedInput: reply.input };
      return planAgreed && !isOwnQuestion(name)
        ? { behavior: "allow", updatedInput: input }
        : { behavior: "deny", message: NOBODY };
    },
  };
}

function decided(permissionDecision: "allow" | "deny" | "defer", more: object): HookJSONOutput {
  return { hookSpecificOutput: { hookEventName: "PreToolUse", permissionDecision, ...more } };
}
