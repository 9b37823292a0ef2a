/**
 * Claude Code's own questions, put to a person who is not there: a hook defers the call, and the turn ends. One question of
 * a message: a second one, or one from inside a subagent, is refused.
 *
 * Their answers are put into the transcript like all others, but for one: a plan that is agreed to. Claude Code makes that
 * call again when the session is resumed, before anything else, and leaves plan mode by it. A plan is a file, which the
 * agent can change, and which is read again for the call: with another text than the one agreed to the call gets no answer
 * at all, and waits until the turn is ended.
 */
import type {
  CanUseTool,
  HookCallbackMatcher,
  HookJSONOutput,
  PermissionResult,
} from "@anthropic-ai/claude-agent-sdk/core";
import { CanonicalJsonError, canonicalJson } from "../../canonical-json.ts";
import type { TurnAnswer } from "../port.ts";
import { isSamePlan } from "./own-questions.ts";
import { isOwnQuestion, OWN_QUESTIONS } from "./tool-names.ts";
import { TurnFailure } from "./turn-failure.ts";

const IN_SUBAGENT =
  "The person cannot be asked from inside a subagent. End here, and report to your caller what has to be asked.";
const ONE_AT_A_TIME =
  "One question at a time can be put to the person, and another one is on its way. Wait for its answer, then ask again.";
const NOBODY = "Nobody is there to permit this call. Do without it, or ask the person for what you need.";

/** What a person is to read, of all that a turn asks together. */
const MAX_QUESTION_BYTES = 64 << 10;

type Input = Record<string, unknown>;

export interface QuestionCallbacks {
  readonly hook: HookCallbackMatcher;
  readonly canUseTool: CanUseTool;
}

/**
 * `agreed`: the call of the plan that was agreed to. `released`: it gets no answer before, so that a start that is not good
 * enough leaves no trace. `fail` is told that the plan is another one.
 */
export function questionCallbacks(
  agreed: TurnAnswer | undefined,
  released: Promise<unknown>,
  fail: (reason: TurnFailure) => void,
): QuestionCallbacks {
  let deferred: string | undefined;
  let planAgreed = false;

  /** The call may come before Claude Code knows of the hook: so both ask here. */
  const isAgreed = async (name: string, input: Input, toolCallId: string): Promise<boolean> => {
    if (name !== "ExitPlanMode" || toolCallId !== agreed?.toolCallId) return false;
    await released;
    if (isSamePlan(input, agreed.input)) return true;
    fail(new TurnFailure("stale", `the plan is not the one that the person saw (call ${toolCallId})`));
    return NEVER;
  };

  return {
    hook: {
      matcher: OWN_QUESTIONS.join("|"),
      hooks: [
        async (asked): Promise<HookJSONOutput> => {
          if (asked.hook_event_name !== "PreToolUse" || !isOwnQuestion(asked.tool_name)) return {};
          if (asked.agent_id !== undefined) return refused(IN_SUBAGENT);
          // The callback is asked about it next.
          if (await isAgreed(asked.tool_name, asked.tool_input as Input, asked.tool_use_id)) return {};
          const reason = whyNotAsked(asked.tool_input);
          if (reason !== undefined) return refused(`The person could not be asked: the question ${reason}.`);
          deferred ??= asked.tool_use_id;
          return deferred === asked.tool_use_id ? decided("defer") : refused(ONE_AT_A_TIME);
        },
      ],
    },
    canUseTool: async (name, input, { toolUseID }): Promise<PermissionResult> => {
      if (await isAgreed(name, input, toolUseID)) planAgreed = true;
      // Claude Code leaves plan mode for one in which it asks for each call: agreeing to the plan was the permission.
      else if (!planAgreed || isOwnQuestion(name)) return { behavior: "deny", message: NOBODY };
      return { behavior: "allow", updatedInput: input };
    },
  };
}

/** A turn that ends with what cannot be signed has failed, and the agent would not know why. */
function whyNotAsked(input: unknown): string | undefined {
  try {
    canonicalJson(input, MAX_QUESTION_BYTES);
    return undefined;
  } catch (error) {
    if (error instanceof CanonicalJsonError) return error.message;
    throw error;
  }
}

/** For a call that must get no further: whoever waits for it is ended. */
const NEVER = new Promise<never>(() => undefined);

function refused(permissionDecisionReason: string): HookJSONOutput {
  return decided("deny", { permissionDecisionReason });
}

function decided(permissionDecision: "deny" | "defer", more: object = {}): HookJSONOutput {
  return { hookSpecificOutput: { hookEventName: "PreToolUse", permissionDecision, ...more } };
}
