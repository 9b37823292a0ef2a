/**
 * Claude Code's own questions, put to a person who is not there: asked → deferred, and the turn ends → answered in a later
 * run, in which Claude Code makes the same call again before anything else.
 *
 * - A new question is deferred by a hook. One of a message: a second one, or one from inside a subagent, is refused.
 * - An answer is given only where tool and input are the ones that the person saw. A plan is a file, which the agent can
 *   change, and which Claude Code reads again for the call: with another text than the one agreed to the call gets no
 *   answer at all, and waits until the turn is ended.
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

type Input = Record<string, unknown>;
type Reply =
  | { readonly type: "allow"; readonly input: Input }
  | { readonly type: "deny"; readonly text: string }
  /** No answered call. */
  | { readonly type: "none" };

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

  const replyTo = async (name: string, input: Input, toolCallId: string): Promise<Reply> => {
    await released;
    const answer = byCall.get(toolCallId);
    if (!answer) return { type: "none" };
    if (answer.toolName !== canonicalToolName(name) || !isSameQuestion(answer.toolName, input, answer.input)) {
      const what = name === "ExitPlanMode" ? "the plan" : "the question";
      fail(new TurnFailure("stale", `${what} is not the one that the person saw (call ${toolCallId})`));
      return NEVER;
    }
    if (answer.status === "cancelled" || answer.isError) return { type: "deny", text: answer.text };
    return { type: "allow", input: answeredInput(answer, input) };
  };

  const beforeUse = async (name: string, input: Input, toolCallId: string, mode?: string): Promise<HookJSONOutput> => {
    const reply = await replyTo(name, input, toolCallId);
    if (reply.type === "none") {
      deferred ??= toolCallId;
      return deferred === toolCallId ? decided("defer") : refused(ONE_AT_A_TIME);
    }
    if (reply.type === "deny" && mode === "dontAsk") return refused(reply.text);
    // The callback says a refusal in better words. It is asked for every plan.
    if (reply.type === "deny" || name === "ExitPlanMode") return {};
    return decided("allow", { updatedInput: reply.input });
  };

  return {
    hook: {
      matcher: OWN_QUESTIONS.join("|"),
      hooks: [
        async (asked): Promise<HookJSONOutput> => {
          if (asked.hook_event_name !== "PreToolUse" || !isOwnQuestion(asked.tool_name)) return {};
          if (asked.agent_id !== undefined) return refused(IN_SUBAGENT);
          return beforeUse(asked.tool_name, asked.tool_input as Input, asked.tool_use_id, asked.permission_mode);
        },
      ],
    },
    canUseTool: async (name, input, { toolUseID }): Promise<PermissionResult> => {
      if (!isOwnQuestion(name)) {
        // Claude Code leaves plan mode for one in which it asks for each call: agreeing to the plan was the permission.
        return planAgreed ? { behavior: "allow", updatedInput: input } : { behavior: "deny", message: NOBODY };
      }
      const reply = await replyTo(name, input, toolUseID);
      if (reply.type !== "allow") return { behavior: "deny", message: reply.type === "deny" ? reply.text : NOBODY };
      if (name === "ExitPlanMode") planAgreed = true;
      return { behavior: "allow", updatedInput: reply.input };
    },
  };
}

/** For a call that must get no further: whoever waits for it is ended. */
const NEVER = new Promise<never>(() => undefined);

function refused(permissionDecisionReason: string): HookJSONOutput {
  return decided("deny", { permissionDecisionReason });
}

function decided(permissionDecision: "allow" | "deny" | "defer", more: object = {}): HookJSONOutput {
  return { hookSpecificOutput: { hookEventName: "PreToolUse", permissionDecision, ...more } };
}
