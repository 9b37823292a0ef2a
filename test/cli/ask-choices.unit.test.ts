/** What is made of a chosen option is what the agent's question takes: the two are written far from each other. */
import { expect, test } from "bun:test";
import { askChoices, choicesOf } from "../../src/cli/ask-choices.ts";
import type { Interrupt } from "../../src/client/index.ts";
import { responseSchemaOf } from "../../src/harness/claude-code/own-questions.ts";
import { compileSchema } from "../../src/tools/json-schema.ts";

const options = [{ label: "Red, or so", description: "warm" }, { label: "Blue" }];
const input = {
  questions: [
    { question: "Colour?", header: "c", options, multiSelect: false },
    { question: "Colours?", header: "c", options, multiSelect: true },
  ],
};
const interrupt: Interrupt = {
  id: "a",
  reason: "input_required",
  toolCallId: "call-a",
  expiresAt: "2026-01-03T03:04:05.000Z",
  metadata: { toolName: "ask_user_question", input },
};

test.each([
  [["1", "2"], { "Colour?": "Red, or so", "Colours?": ["Blue"] }],
  [["2", "1,2"], { "Colour?": "Blue", "Colours?": ["Red, or so", "Blue"] }],
  [["green", "all of them"], { "Colour?": "green", "Colours?": "all of them" }],
  [["3", "1,3"], { "Colour?": "3", "Colours?": "1,3" }],
])("%p", async (lines, answers) => {
  const typed = [...lines];
  const choices = choicesOf(input) ?? [];
  const answer = await askChoices(
    interrupt,
    choices,
    async () => typed.shift() ?? "",
    async () => {},
    80,
  );
  expect(answer).toEqual({ interruptId: "a", status: "resolved", payload: { answers } });
  const schema = responseSchemaOf("ask_user_question", input);
  if (!schema) throw new Error("the question has no schema");
  expect(compileSchema(schema).check(answer.payload)).toBeUndefined();
});

test.each([
  [undefined],
  [{}],
  [{ questions: [] }],
  [{ questions: [{ question: "?" }] }],
  [{ questions: [{ options }] }],
])("%p is no question with options", (other) => {
  expect(choicesOf(other)).toBeUndefined();
});
