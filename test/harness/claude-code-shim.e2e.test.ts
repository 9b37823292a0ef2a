/** The run's own tools, as Claude Code calls them: what is announced to a reader, and when the turn ends. */
import { expect, setDefaultTimeout, test } from "bun:test";
import { longText } from "../support/claude-code-harness/long-text.ts";
import { toolResultTexts } from "../support/claude-code-harness/mcp-endpoint.ts";
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

/** How long after the last parked call of the turn its outcome came. */
function msToOutcome(bench: HarnessBench, running: RunningTurn): number {
  const at = running.arrivals[running.lines.findIndex((line) => line.outcome)] ?? Number.POSITIVE_INFINITY;
  return at - Math.max(...bench.shimCalls().flatMap((call) => (call.tool === "ask" ? [call.atMs] : [])));
}

const TOOLS = {
  ask: { type: "pause" },
  lookup: { type: "text", text: "found" },
  broken: { type: "failure", text: "no" },
} as const;
const look = { description: "look", prompt: "Look.", subagent_type: "Explore", run_in_background: true };

test.each([
  ["two at once", calls(["mcp__tools__ask", {}, "call-1"], ["mcp__tools__ask", {}, "call-2"])],
  ["ten at once", calls(...Array.from({ length: 10 }, (_, n) => ["mcp__tools__ask", { n }, `call-${n}`] as const))],
  ["beside a faster call", calls(["Bash", { command: "true" }, "other"], ["mcp__tools__ask", {}, "call-1"])],
  ["beside a slower call", calls(["mcp__tools__ask", {}, "call-1"], ["Bash", { command: "sleep 0.3" }, "other"])],
  ["beside a call that fails", calls(["mcp__tools__ask", {}, "call-1"], ["mcp__tools__broken", {}, "other"])],
  ["beside a subagent in the background", calls(["Agent", look, "other"], ["mcp__tools__ask", {}, "call-1"])],
])("a parked call ends the turn, %s", async (_case, turn) => {
  await using bench = await HarnessBench.open();
  bench.model.push(turn, { ...says("Never heard.", { delayMs: 20_000 }), to: "subagent" });
  const running = bench.start({ shim: bench.shim(TOOLS) });
  const ended = await running.finished;
  expect(ended.outcome?.type).toBe("finished");
  expect(ended.chunks.at(-1)).toMatchObject({ type: "finish", finishReason: "tool-calls" });
  expect(ended.chunks.filter((chunk) => chunk.type === "error" || chunk.type === "abort")).toEqual([]);
  // One answer of the model, and nothing is asked of it after that.
  expect(bench.mainRequests()).toHaveLength(1);
  expect(ended.message?.parts.filter((part) => part.type === "step-start")).toHaveLength(1);
  expect(msToOutcome(bench, running)).toBeLessThan(1000);
});

test("in a read-only turn and in plan mode a call is permitted that changes nothing, and no other", async () => {
  for (const input of [{ mode: "plan" }, { toolApprovalLevel: "readonly" }]) {
    await using bench = await HarnessBench.open();
    bench.model.push(calls(["mcp__tools__change", {}, "call-1"], ["mcp__tools__ask", {}, "call-2"]));
    const change = { type: "text", text: "changed", notReadOnly: true } as const;
    const turn = await bench.run({ input, shim: bench.shim({ ...TOOLS, change }) });
    expect(turn.chunks.at(-1)).toMatchObject({ type: "finish", finishReason: "tool-calls" });
    expect(bench.shimCalls().map(({ meta }) => meta["claudecode/toolUseId"])).toEqual(["call-2"]);
    expect(turn.chunks).toContainEqual({ type: "tool-output-denied", toolCallId: "call-1" });
  }
});

test("an answer of 256 Ki characters reaches the model whole, and a call has the time that the shim may take", async () => {
  await using bench = await HarnessBench.open();
  const chars = 256 << 10;
  bench.model.push(calls(["mcp__tools__long", {}, "call-1"], ["mcp__tools__slow", {}, "call-2"]), says("Done."));
  const tools = { long: { type: "long", chars }, slow: { type: "text", text: "late", delayMs: 1500 } } as const;
  // Claude Code ignores limits below a second; ours is counted on top of what the shim may take.
  await bench.run({ shim: bench.shim(tools, 1), env: { MCP_TOOL_TIMEOUT: "1000" } });
  const results = toolResultTexts(bench.mainRequests().at(-1)?.messages ?? []);
  expect(results.map((text) => text.length)).toEqual([chars, 4]);
  expect(results).toEqual([longText(chars), "late"]);
});
