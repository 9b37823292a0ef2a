/** The run's own tools, as Claude Code calls them: what is announced to a reader, and when the turn ends. */
import { expect, setDefaultTimeout, test } from "bun:test";
import { HarnessBench, type RunningTurn } from "../support/claude-code-harness/run-turn.ts";
import { calls, says } from "../support/scripted-model/index.ts";

/** A turn takes a second, and several on a busy machine. */
setDefaultTimeout(30_000);

/** When the line that announces a call with its input arrived. */
function announcedAt(running: RunningTurn, toolCallId: string): number {
  const at = running.lines.findIndex((line) =>
    line.chunks?.some((chunk) => chunk.type === "tool-input-available" && chunk.toolCallId === toolCallId),
  );
  return running.arrivals[at] ?? Number.POSITIVE_INFINITY;
}

/** What a busy machine may take between a pipe's writer and its reader; whoever answers waits for two seconds. */
const SLACK_MS = 250;

test.each([
  ["foreground", "streamed"],
  ["background", "whole"],
])("calls of a subagent in the %s are announced, %s", async (place, delivery) => {
  await using bench = await HarnessBench.open();
  const task = { description: "look", prompt: "Look.", subagent_type: "general-purpose" };
  const inner = {
    ...calls(["mcp__tools__lookup", { key: "a" }, "inner-1"], ["mcp__tools__lookup", { key: "b" }, "inner-2"]),
    to: "subagent" as const,
  };
  bench.model.push(
    calls(["Agent", { ...task, run_in_background: place === "background" }, "agent-call"]),
    // A stream that fails is asked for again as a whole answer.
    ...(delivery === "streamed" ? [] : [{ ...inner, errorAfterDeltas: 0 }]),
    inner,
    { ...says("It is so."), to: "subagent" },
    says("Done."),
    says("Reported."),
  );
  const running = bench.start({ shim: bench.shim({ lookup: { type: "text", text: "found", delayMs: 100 } }) });
  const turn = await running.finished;
  expect(turn.outcome?.type).toBe("finished");
  const made = bench.shimCalls();
  expect(made.map((call) => [call.meta["claudecode/toolUseId"], call.args])).toEqual([
    ["inner-1", { key: "a" }],
    ["inner-2", { key: "b" }],
  ]);
  for (const call of made) {
    const id = String(call.meta["claudecode/toolUseId"]);
    expect(announcedAt(running, id)).toBeLessThan(call.atMs + SLACK_MS);
    const about = turn.chunks.filter((chunk) => chunk.toolCallId === id);
    expect(about).toEqual([
      {
        ...{ type: "tool-input-available", toolCallId: id, toolName: "lookup", dynamic: true, input: call.args },
        providerMetadata: { dispatchd: { parentToolCallId: "agent-call" } },
      },
      { type: "tool-output-available", toolCallId: id, dynamic: true, output: "found" },
    ]);
  }
});

test("calls of the conversation itself are announced before they are made", async () => {
  await using bench = await HarnessBench.open();
  bench.model.push(
    calls(["mcp__tools__lookup", { key: "a" }, "call-1"], ["mcp__tools__lookup", { key: "b" }, "call-2"]),
    says("Done."),
  );
  const running = bench.start({ shim: bench.shim({ lookup: { type: "text", text: "found" } }) });
  await running.finished;
  const made = bench.shimCalls();
  expect(made).toHaveLength(2);
  for (const call of made) {
    expect(announcedAt(running, String(call.meta["claudecode/toolUseId"]))).toBeLessThan(call.atMs + SLACK_MS);
  }
});
