/** What a reader sees of a turn: the real Claude Code, a scripted model, and `readUIMessageStream` as the judge. */
import { expect, test } from "bun:test";
import type { Chunk } from "../../src/frames/frame.ts";
import { type FinishedTurn, HarnessBench } from "../support/claude-code-harness/run-turn.ts";
import { calls, says, thinks } from "../support/scripted-model/index.ts";

const ofType = (chunks: readonly Chunk[], type: string): Chunk[] => chunks.filter((chunk) => chunk.type === type);

/** Nothing may be open when a step ends, except for calls whose output is preliminary. */
function expectClosedSteps(chunks: readonly Chunk[]): void {
  const open = new Set<unknown>();
  for (const chunk of chunks) {
    if (chunk.type === "text-start" || chunk.type === "reasoning-start") open.add(chunk.id);
    if (chunk.type === "text-end" || chunk.type === "reasoning-end") open.delete(chunk.id);
    if (chunk.type === "tool-input-start") open.add(chunk.toolCallId);
    if (chunk.type.startsWith("tool-output-")) open.delete(chunk.toolCallId);
    if (chunk.type === "finish-step" || chunk.type === "finish") expect([...open]).toEqual([]);
  }
}

test("text and reasoning are streamed by token and not repeated", async () => {
  await using bench = await HarnessBench.open();
  bench.model.push(thinks("First I think about it.", "Then I say something that takes several deltas."));
  const turn = await bench.run();
  expect(turn.outcome).toEqual({ type: "finished", usage: expect.objectContaining({ inputTokens: 12, turns: 1 }) });
  expect(turn.exitCode).toBe(0);
  expect(turn.texts).toEqual(["Then I say something that takes several deltas."]);
  expect(turn.message?.parts.filter((part) => part.type === "reasoning").map((part) => part.text)).toEqual([
    "First I think about it.",
  ]);
  expect(ofType(turn.chunks, "text-delta").length).toBeGreaterThan(3);
  expect(ofType(turn.chunks, "reasoning-delta").length).toBeGreaterThan(2);
  expect(turn.chunks[0]).toEqual({ type: "start", messageId: "run-1:1" });
  expect(turn.chunks.at(-1)).toMatchObject({ type: "finish", finishReason: "stop" });
  expect(turn.sessionId).toMatch(/^[0-9a-f-]{36}$/);
  expectClosedSteps(turn.chunks);
});

test("calls, parallel ones too, end with their outputs before the next step", async () => {
  await using bench = await HarnessBench.open();
  await Bun.write(`${bench.repo}/note.txt`, "remember");
  bench.model.push(
    calls(["Bash", { command: "echo one" }, "call-1"], ["Read", { file_path: `${bench.repo}/note.txt` }, "call-2"]),
    calls(["Read", { file_path: "/not/there" }, "call-3"], ["Nothing", {}, "call-4"]),
    says("Done."),
  );
  const turn = await bench.run();
  expect(turn.outcome?.type).toBe("finished");
  expectClosedSteps(turn.chunks);
  expect(ofType(turn.chunks, "start-step")).toHaveLength(3);
  expect(ofType(turn.chunks, "finish-step")).toHaveLength(3);
  const tools = (turn.message?.parts ?? []).filter((part) => part.type === "dynamic-tool");
  expect(tools.map((part) => [part.toolName, part.state])).toEqual([
    ["bash", "output-available"],
    ["read", "output-available"],
    ["read", "output-error"],
    ["Nothing", "output-error"],
  ]);
  expect(tools[0]).toMatchObject({ input: { command: "echo one" }, output: "one", providerExecuted: true });
  expect(tools[1]?.output).toContain("remember");
  expect(tools[2]?.errorText).toContain("does not exist");
  expect(tools[3]?.errorText).toBe("Error: No such tool available: Nothing");
});

/** Lets the connection break when the harness has shown the last of what came over it. */
async function cutWhenShown(
  bench: HarnessBench,
  cut: () => void,
  isLast: (chunk: Chunk) => boolean,
): Promise<FinishedTurn> {
  const running = bench.start();
  await running.seen(({ chunks }) => (chunks ?? []).some(isLast));
  cut();
  return running.finished;
}

test("a stream that is cut is closed and begun anew as another step", async () => {
  await using bench = await HarnessBench.open();
  const shown = Promise.withResolvers<void>();
  bench.model.push(
    { ...says("This answer is cut in the middle."), cutAfterDeltas: 2, cutWhen: shown.promise },
    says("The whole answer."),
  );
  const turn = await cutWhenShown(bench, shown.resolve, ({ delta }) => String(delta).endsWith("is c"));
  expect(turn.outcome?.type).toBe("finished");
  expect(turn.texts).toEqual(["This answer is c", "The whole answer."]);
  expect(ofType(turn.chunks, "start-step")).toHaveLength(2);
  expectClosedSteps(turn.chunks);
});

test("an answer that arrives whole, after its stream failed, is shown once", async () => {
  await using bench = await HarnessBench.open();
  bench.model.push({ ...says("This one fails on the way."), errorAfterDeltas: 2 }, says("Answered without a stream."));
  const turn = await bench.run();
  expect(turn.outcome?.type).toBe("finished");
  expect(turn.texts.at(-1)).toBe("Answered without a stream.");
  expect(turn.texts.join("").split("Answered without").length).toBe(2);
  expectClosedSteps(turn.chunks);
});

test("a call whose input was cut ends as an error, and the turn goes on", async () => {
  await using bench = await HarnessBench.open();
  const command = `echo ${"x".repeat(200)}`;
  const shown = Promise.withResolvers<void>();
  bench.model.push(
    {
      blocks: [
        { type: "text", text: "Look:" },
        { type: "tool_use", name: "Bash", input: { command }, id: "cut-call" },
      ],
      cutAfterDeltas: 3,
      cutWhen: shown.promise,
    },
    says("I go on."),
  );
  // The first piece of the input has the command's beginning in it, the second nothing but this.
  const isLast = ({ inputTextDelta }: Chunk): boolean => /^x+$/.test(String(inputTextDelta));
  const turn = await cutWhenShown(bench, shown.resolve, isLast);
  expect(turn.outcome?.type).toBe("finished");
  expect(turn.texts).toEqual(["Look:", "I go on."]);
  expect(ofType(turn.chunks, "tool-output-error")).toMatchObject([{ toolCallId: "cut-call" }]);
  expectClosedSteps(turn.chunks);
});

test("an answer at the limit of tokens goes on in another step", async () => {
  await using bench = await HarnessBench.open();
  bench.model.push({ ...says("Half of "), stopReason: "max_tokens" }, says("the answer."));
  const turn = await bench.run();
  expect(turn.texts).toEqual(["Half of ", "the answer."]);
  expectClosedSteps(turn.chunks);
});

test("a subagent's words are preliminary output of the call that started it", async () => {
  await using bench = await HarnessBench.open();
  const task = { description: "look", prompt: "Look around.", subagent_type: "Explore", run_in_background: false };
  bench.model.push(
    calls(["Agent", task, "agent-call"]),
    { ...calls(["Bash", { command: "echo inside" }, "inner-call"]), to: "subagent" },
    { ...says("I found two files."), to: "subagent" },
    says("The subagent found two files."),
  );
  const turn = await bench.run();
  expect(turn.outcome?.type).toBe("finished");
  const outputs = ofType(turn.chunks, "tool-output-available").filter((chunk) => chunk.toolCallId === "agent-call");
  expect(outputs.map((chunk) => [chunk.preliminary ?? false, chunk.output])).toEqual([
    [true, "I found two files."],
    [false, "I found two files."],
  ]);
  expect(turn.chunks.filter((chunk) => chunk.toolCallId === "inner-call")).toEqual([]);
  expect(turn.texts).toEqual(["The subagent found two files."]);
  expectClosedSteps(turn.chunks);
});

test("a turn waits for its subagents in the background, and not for its shells", async () => {
  await using bench = await HarnessBench.open();
  const task = { description: "look", prompt: "Look around.", subagent_type: "Explore", run_in_background: true };
  bench.model.push(
    calls(["Agent", task, "agent-call"], ["Bash", { command: "sleep 60321", run_in_background: true }, "shell-call"]),
    says("It works in the background."),
    { ...says("Late report.", { delayMs: 1200 }), to: "subagent" },
    says("It reported."),
  );
  const turn = await bench.run();
  expect(turn.outcome?.type).toBe("finished");
  expect(turn.texts).toEqual(["It works in the background.", "It reported."]);
  const outputs = ofType(turn.chunks, "tool-output-available").filter((chunk) => chunk.toolCallId === "agent-call");
  expect(outputs.at(-1)).toMatchObject({ output: "Late report." });
  expect(outputs.at(-1)?.preliminary).toBeUndefined();
  expect(outputs.slice(0, -1).every((chunk) => chunk.preliminary === true)).toBe(true);
  expect(JSON.stringify(outputs)).not.toContain("internal metadata");
}, 20_000);
