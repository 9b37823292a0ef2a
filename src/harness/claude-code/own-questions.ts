/**
 * What Claude Code itself asks a person: questions with options (`AskUserQuestion`), and whether its plan is agreed to
 * (`ExitPlanMode`). Pure: a schema is the same on every pod.
 */
import { sameJson } from "../../canonical-json.ts";
import type { HarnessInterrupt, TurnAnswer } from "../port.ts";
import { canonicalToolName } from "./tool-names.ts";
import { isRecord, record } from "./turn-request.ts";

type JsonSchema = Readonly<Record<string, unknown>>;

/** A plan is agreed to, or not and why. */
const PLAN_SCHEMA: JsonSchema = {
  type: "object",
  properties: { approved: { type: "boolean" }, reason: { type: "string" } },
  required: ["approved"],
};

/** `toolName`: as readers know it. Null: no question of Claude Code's, or none that can be understood. */
export function responseSchemaOf(toolName: string, input: unknown): JsonSchema | null {
  if (toolName === "exit_plan_mode") return PLAN_SCHEMA;
  if (toolName !== "ask_user_question") return null;
  const asked = questionsIn(input);
  if (asked.length === 0) return null;
  return {
    type: "object",
    properties: {
      answers: {
        type: "object",
        description: "An answer to each question, by its text",
        properties: Object.fromEntries(asked.map((question) => [question.question, answerSchema(question)])),
        required: [...new Set(asked.map(({ question }) => question))],
        additionalProperties: false,
      },
    },
    required: ["answers"],
  };
}

/** What a person is asked by a call that Claude Code left for later. */
export function interruptOf(call: {
  readonly id: string;
  readonly name: string;
  readonly input: unknown;
}): HarnessInterrupt {
  const asked = { toolCallId: call.id, toolName: canonicalToolName(call.name), input: call.input };
  if (asked.toolName === "exit_plan_mode") {
    return { ...asked, reason: "confirmation", message: "The agent has made a plan and asks whether to carry it out." };
  }
  const message = questionsIn(call.input)
    .map(({ question }) => question)
    .join("\n");
  return { ...asked, reason: "input_required", ...(message ? { message } : {}) };
}

/** A tool of the run may have the name of Claude Code's own, but it does not ask for agreement. */
export function agreesToPlan({ reason, toolName, status, isError }: TurnAnswer): boolean {
  return reason === "confirmation" && toolName === "exit_plan_mode" && status === "resolved" && !isError;
}

/** Where a plan is kept differs from pod to pod; the text is what was agreed to. */
export function isSamePlan(one: unknown, other: unknown): boolean {
  const { planFilePath: _one, ...plan } = record(one);
  const { planFilePath: _other, ...agreed } = record(other);
  return sameJson(plan, agreed);
}

interface AskedQuestion extends Readonly<Record<string, unknown>> {
  readonly question: string;
}

function questionsIn(input: unknown): AskedQuestion[] {
  const { questions } = record(input);
  return (Array.isArray(questions) ? questions : []).filter(isQuestion);
}

function isQuestion(value: unknown): value is AskedQuestion {
  return isRecord(value) && typeof value.question === "string";
}

/** One of the options, several where that is allowed, or words of one's own. */
function answerSchema({ options, multiSelect }: AskedQuestion): JsonSchema {
  const labels = (Array.isArray(options) ? options : []).flatMap((option) => {
    const { label } = record(option);
    return typeof label === "string" ? [label] : [];
  });
  const text = { type: "string", minLength: 1 };
  const option = labels.length > 0 ? { enum: [...new Set(labels)] } : text;
  if (multiSelect === true) return { anyOf: [{ type: "array", items: { anyOf: [option, text] }, minItems: 1 }, text] };
  return labels.length > 0 ? { anyOf: [option, text] } : text;
}
