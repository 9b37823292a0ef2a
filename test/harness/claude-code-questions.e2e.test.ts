/** Claude Code's own questions: they end the turn, and the same call is answered when the session is resumed. */
import { expect, setDefaultTimeout, test } from "bun:test";
import { cpSync, existsSync, globSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import type { Outcome } from "../../src/frames/frame.ts";
import { findParked } from "../../src/harness/claude-code/find-parked.ts";
import type { HarnessInterrupt, TurnAnswer } from "../../src/harness/port.ts";
import { unansweredText } from "../../src/pause-text.ts";
import { startMcpEndpoint } from "../support/claude-code-harness/mcp-endpoint.ts";
import { type FinishedTurn, HarnessBench, type TurnChoices } from "../support/claude-code-harness/run-turn.ts";
import { calls, type ReceivedRequest, type ScriptedTurn, says, textOf } from "../support/scripted-model/index.ts";

/** A turn takes a second, and several on a busy machine. */
setDefaultTimeout(60_000);

const options = [
  { label: "red", description: "warm" },
  { label: "blue", description: "cold" },
];
const asks = (question: string): object => ({ questions: [{ question, header: "Colour", options }] });

function askedIn(turn: FinishedTurn): HarnessInterrupt {
  const [asked, ...more] = (turn.outcome as Outcome & { interrupts?: HarnessInterrupt[] }).interrupts ?? [];
  if (!asked || more.length > 0) throw new Error(`not one question: ${JSON.stringify(turn.outcome)} ${turn.stderr}`);
  return asked;
}

function answerTo(asked: HarnessInterrupt, payload: unknown, more: Partial<TurnAnswer> = {}): TurnAnswer {
  const { toolCallId, toolName, input, reason = "input_required" } = asked;
  const given = { status: "resolved", payload, text: JSON.stringify(payload), isError: false } as const;
  return { interruptId: "i", reason, toolCallId, toolName, input, ...given, ...more };
}

const cancelled = { status: "cancelled", text: '{"cancelled":true}' } as const;

/** The result of a call as the model got it; it is an error if the call was one. */
function resultOf(request: ReceivedRequest | undefined, toolCallId: string): string[] {
  return (request?.messages ?? []).flatMap(({ content }) =>
    (Array.isArray(content) ? content : [])
      .filter((block) => block.type === "tool_result" && block.tool_use_id === toolCallId)
      .map((block) => `${block.is_error ? "error: " : ""}${textOf(block.content)}`),
  );
}

async function resume(bench: HarnessBench, first: FinishedTurn, choices: TurnChoices): Promise<FinishedTurn> {
  return bench.run({
    shim: bench.shim({ connect: { type: "pause" } }),
    session: { id: first.sessionId ?? "", state: "local" },
    ...choices,
    input: { userMessage: undefined, ...choices.input },
  });
}

test("a question ends the turn, and its answer is the result of the same call", async () => {
  await using bench = await HarnessBench.open();
  bench.model.push(calls(["AskUserQuestion", asks("Which colour?"), "ask-1"]));
  const first = await bench.run();
  const asked = askedIn(first);
  expect(asked).toMatchObject({ toolCallId: "ask-1", toolName: "ask_user_question", reason: "input_required" });
  expect(asked.message).toBe("Which colour?");
  expect(first.chunks.filter((chunk) => chunk.type.startsWith("tool-output"))).toEqual([]);
  expect(first.chunks.at(-1)).toMatchObject({ type: "finish", finishReason: "tool-calls" });
  const session = { configDir: bench.configDir, id: first.sessionId ?? "" };
  expect([...(await findParked(session, [asked])).values()]).toEqual(["open"]);

  bench.model.push(says("Blue it is."));
  const answers = [answerTo(asked, { answers: { "Which colour?": `/compact ${"x".repeat(200 << 10)}` } })];
  const second = await resume(bench, first, { answers });
  expect(second.outcome?.type).toBe("finished");
  expect(second.texts).toEqual(["Blue it is."]);
  expect(resultOf(bench.mainRequests().at(-1), "ask-1")).toEqual([answers[0]?.text ?? ""]);
  expect(bench.mainRequests()).toHaveLength(2);
  expect([...(await findParked(session, [asked])).values()]).toEqual(["answered"]);

  // Another attempt finds the answer in place.
  bench.model.push(says("I said so."));
  await resume(bench, first, { answers, attempt: 2 });
  expect(resultOf(bench.mainRequests().at(-1), "ask-1")).toEqual([answers[0]?.text ?? ""]);
});

test("a question that is more than a person can be asked is refused, and the turn goes on", async () => {
  await using bench = await HarnessBench.open();
  bench.model.push(
    calls(["AskUserQuestion", asks("W".repeat(65 << 10)), "ask-1"]),
    calls(["AskUserQuestion", asks("Which colour?"), "ask-2"]),
  );
  expect(askedIn(await bench.run()).toolCallId).toBe("ask-2");
  expect(resultOf(bench.mainRequests().at(-1), "ask-1").join()).toContain(
    "could not be asked: the question is too large",
  );
});

test("one question of a message is asked, beside a client tool; a second one is told to wait", async () => {
  await using bench = await HarnessBench.open();
  bench.model.push(
    calls(
      ["AskUserQuestion", asks("Which colour?"), "ask-1"],
      ["mcp__tools__connect", {}, "connect-1"],
      ["AskUserQuestion", asks("Which size?"), "ask-2"],
    ),
  );
  const first = await bench.run({ shim: bench.shim({ connect: { type: "pause" } }) });
  const asked = askedIn(first);
  expect(asked.toolCallId).toBe("ask-1");
  bench.model.push(says("I see."));
  const connect = { toolCallId: "connect-1", toolName: "connect", input: {}, reason: "dispatchd:client_tool" } as const;
  const answers = [answerTo(asked, { answers: { "Which colour?": "red" } }), answerTo(connect, { done: true })];
  await resume(bench, first, { answers });
  const request = bench.mainRequests().at(-1);
  expect(resultOf(request, "ask-1")).toEqual(['{"answers":{"Which colour?":"red"}}']);
  expect(resultOf(request, "connect-1")).toEqual(['{"done":true}']);
  expect(resultOf(request, "ask-2").join()).toContain("One question at a time");
  expect(JSON.stringify(request?.messages)).not.toContain("No response requested.");
});

test.each(["default", "readonly"])("a question that is cancelled is told so, level %s", async (toolApprovalLevel) => {
  await using bench = await HarnessBench.open();
  const input = { toolApprovalLevel };
  bench.model.push(calls(["AskUserQuestion", asks("Which colour?"), "ask-1"]));
  const first = await bench.run({ input });
  bench.model.push(says("I see."));
  await resume(bench, first, { input, answers: [answerTo(askedIn(first), undefined, cancelled)] });
  const [result] = resultOf(bench.mainRequests().at(-1), "ask-1");
  expect(result).toBe('{"cancelled":true}');
});

test("a message instead of an answer closes the question", async () => {
  await using bench = await HarnessBench.open();
  bench.model.push(calls(["AskUserQuestion", asks("Which colour?"), "ask-1"]));
  const first = await bench.run();
  bench.model.push(says("I see."));
  const turn = await resume(bench, first, { input: { userMessage: "Never mind." } });
  expect(turn.texts).toEqual(["I see."]);
  expect(resultOf(bench.mainRequests().at(-1), "ask-1")).toEqual([unansweredText("ask_user_question")]);
  const stale = await resume(bench, first, { answers: [answerTo(askedIn(first), { answers: {} })] });
  expect(stale.outcome).toMatchObject({ type: "failed", error: { code: "stale" } });
});

/** Writes a plan, asks whether it may go ahead, then does something and ends. */
function planner(bench: HarnessBench): void {
  bench.model.setHandler((request): ScriptedTurn | undefined => {
    if (request.kind !== "main") return undefined;
    const said = JSON.stringify(request.messages);
    const [path = ""] = said.match(/\/[^"\s\\]*\/plans\/[a-z0-9-]+\.md/) ?? [];
    if (!said.includes('"write-1"')) return calls(["Write", { file_path: path, content: "# Plan" }, "write-1"]);
    if (!said.includes('"exit-1"')) return calls(["ExitPlanMode", {}, "exit-1"]);
    if (!said.includes('"bash-1"')) return calls(["Bash", { command: "touch made" }, "bash-1"]);
    return says("Done.");
  });
}

const plan = { mode: "plan" };

test("a plan that is agreed to is carried out, on another pod that has the session's files alone", async () => {
  await using bench = await HarnessBench.open();
  planner(bench);
  const first = await bench.run({ input: plan });
  const asked = askedIn(first);
  expect(asked).toMatchObject({ toolName: "exit_plan_mode", reason: "confirmation", input: { plan: "# Plan" } });
  expect(asked.message).toContain("plan");

  await using other = await HarnessBench.open();
  planner(other);
  const from = bench.transcript();
  const folder = join(other.configDir, "projects", basename(dirname(from)));
  mkdirSync(folder, { recursive: true });
  cpSync(from, join(folder, basename(from)));
  const answers = [answerTo(asked, { approved: true })];
  const second = await resume(other, first, { input: plan, answers });
  expect(second.texts).toEqual(["Done."]);
  expect(existsSync(join(other.repo, "made"))).toBe(true);
  expect(resultOf(other.mainRequests().at(-1), "exit-1").join()).toContain("## Approved Plan:\n# Plan");
  expect(globSync(join(other.configDir, "plans/*.md")).map((path) => readFileSync(path, "utf8"))).toEqual(["# Plan"]);

  // Another attempt is not back in plan mode.
  other.model.setHandler((request) =>
    JSON.stringify(request.messages).includes('"bash-2"')
      ? says("Done again.")
      : calls(["Bash", { command: "touch made-again" }, "bash-2"]),
  );
  await resume(other, first, { input: plan, answers, attempt: 2 });
  expect(existsSync(join(other.repo, "made-again"))).toBe(true);
});

test("a plan that is refused keeps the turn in plan mode, and a plan that changed is stale", async () => {
  await using bench = await HarnessBench.open();
  planner(bench);
  const first = await bench.run({ input: plan });
  const asked = askedIn(first);
  const [path = ""] = globSync(join(bench.configDir, "plans/*.md"));
  const requests = bench.model.requests.length;
  writeFileSync(path, "# Another plan");
  const stale = await resume(bench, first, { input: plan, answers: [answerTo(asked, { approved: true })] });
  expect(stale.outcome).toMatchObject({ type: "failed", error: { code: "stale" } });
  expect(bench.model.requests).toHaveLength(requests);
  const session = { configDir: bench.configDir, id: first.sessionId ?? "" };
  expect([...(await findParked(session, [asked])).values()]).toEqual(["open"]);

  writeFileSync(path, "# Plan");
  const no = { denied: true, reason: "too short" };
  const second = await resume(bench, first, { input: plan, answers: [answerTo(asked, no, { isError: true })] });
  expect(second.texts).toEqual(["Done."]);
  expect(resultOf(bench.mainRequests().at(-1), "exit-1")).toEqual([`error: ${JSON.stringify(no)}`]);
  expect(existsSync(join(bench.repo, "made"))).toBe(false);
});

test("a plan stays open while a start is not good enough, and a text beside it is the next prompt", async () => {
  await using bench = await HarnessBench.open();
  await using endpoint = startMcpEndpoint({ failures: 2 });
  planner(bench);
  const first = await bench.run({ input: plan });
  const second = await resume(bench, first, {
    input: { ...plan, userMessage: "Hurry.", mcp: { url: endpoint.url, headers: {} } },
    settings: { mcpPreflightBaseMs: 10 },
    answers: [answerTo(askedIn(first), { approved: true })],
  });
  expect(second.texts.at(-1)).toBe("Done.");
  expect(second.stderr).toContain("MCP servers are not available");
  const request = bench.mainRequests().at(-1);
  expect(resultOf(request, "exit-1").join()).toContain("## Approved Plan:\n# Plan");
  expect(JSON.stringify(request?.messages)).toContain("Hurry.");
  expect(existsSync(join(bench.repo, "made"))).toBe(true);
});

test("a subagent asks its caller", async () => {
  await using bench = await HarnessBench.open();
  const task = { description: "look", prompt: "Look.", subagent_type: "general-purpose", run_in_background: false };
  bench.model.push(
    calls(["Agent", task, "agent-1"]),
    { ...calls(["AskUserQuestion", asks("Which colour?"), "ask-1"]), to: "subagent" },
    { ...says("Ask which colour."), to: "subagent" },
    says("I will ask."),
  );
  const turn = await bench.run();
  expect(turn.outcome?.type).toBe("finished");
  expect(turn.texts).toEqual(["I will ask."]);
});
