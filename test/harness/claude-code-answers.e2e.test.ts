/**
 * Answers to parked calls: the real Claude Code parks, the answers come with the next turn, and what the model is then
 * asked is looked at. An answer is the result of the call that asked, once, and nothing else.
 */
import { expect, setDefaultTimeout, test } from "bun:test";
import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { findParked } from "../../src/harness/claude-code/find-parked.ts";
import type { TurnAnswer } from "../../src/harness/port.ts";
import { cutOffText, pauseText, unansweredText } from "../../src/pause-text.ts";
import { type FinishedTurn, HarnessBench, type TurnChoices } from "../support/claude-code-harness/run-turn.ts";
import { calls, type ReceivedRequest, says, textOf } from "../support/scripted-model/index.ts";

/** A turn takes a second, and several on a busy machine. */
setDefaultTimeout(60_000);

const INPUT = { account: "a" };
const TOOL = "mcp__tools__connect";
const GO_ON = "Continue from where you left off.";

function answerOf(toolCallId: string, payload: unknown, more: Partial<TurnAnswer> = {}): TurnAnswer {
  const given = { status: "resolved", payload, text: JSON.stringify(payload), isError: false } as const;
  const asked = { interruptId: `i-${toolCallId}`, reason: "dispatchd:client_tool", toolCallId } as const;
  return { ...asked, toolName: "connect", input: INPUT, ...given, ...more };
}

/** Everything of a request that is neither a reminder of Claude Code's nor the system prompt, one line a block. */
function conversation(request: ReceivedRequest | undefined): string[] {
  return (request?.messages ?? []).flatMap(({ role, content }) => {
    if (role === "system") return [];
    const blocks = Array.isArray(content) ? content : [{ type: "text", text: content }];
    return blocks.flatMap((block) => {
      if (block.type === "tool_use") return [`call ${block.id}`];
      if (block.type === "tool_result") {
        return [`${block.is_error ? "error" : "result"} ${block.tool_use_id} ${textOf(block.content)}`];
      }
      return String(block.text).startsWith("<system-reminder>") ? [] : [`${role} ${block.text}`];
    });
  });
}

class Parked implements AsyncDisposable {
  private constructor(
    readonly bench: HarnessBench,
    readonly first: FinishedTurn,
  ) {}

  static async open(...ids: readonly string[]): Promise<Parked> {
    const bench = await HarnessBench.open();
    bench.model.push(calls(...ids.map((id) => [TOOL, INPUT, id] as const)));
    const first = await bench.run({
      input: { userMessage: "Connect it." },
      shim: bench.shim({ connect: { type: "pause" } }),
    });
    expect(first.outcome?.type).toBe("finished");
    return new Parked(bench, first);
  }

  get session(): { configDir: string; id: string } {
    return { configDir: this.bench.configDir, id: this.first.sessionId ?? "" };
  }

  /** The turn after, without a message unless there is one. */
  async resume(choices: TurnChoices): Promise<FinishedTurn> {
    if (this.bench.model.pending() === 0) this.bench.model.push(says("I see."));
    return this.bench.run({
      shim: this.bench.shim({ connect: { type: "pause" } }),
      session: { id: this.session.id, state: "local" },
      ...choices,
      input: { userMessage: undefined, ...choices.input },
    });
  }

  /** What the model was asked last. */
  asked(): string[] {
    return conversation(this.bench.mainRequests().at(-1));
  }

  /** Takes away the end of the transcript, from the n-th last result on: the pod died while the calls were held. */
  loseResults(count: number): void {
    const path = this.bench.transcript();
    const lines = readFileSync(path, "utf8").trimEnd().split("\n");
    const results = lines.flatMap((line, at) =>
      JSON.parse(line).message?.content?.[0]?.type === "tool_result" ? [at] : [],
    );
    writeFileSync(path, `${lines.slice(0, results.at(-count)).join("\n")}\n`);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.bench[Symbol.asyncDispose]();
  }
}

test("two identical calls get their own answers, one of them cancelled, and the model goes on", async () => {
  await using parked = await Parked.open("call-1", "call-2");
  const answers = [
    answerOf("call-2", { account: 2 }),
    answerOf("call-1", { cancelled: true }, { status: "cancelled" }),
  ];
  const turn = await parked.resume({ answers });
  expect(turn.outcome?.type).toBe("finished");
  expect(turn.texts).toEqual(["I see."]);
  expect(parked.asked()).toEqual([
    "user Connect it.",
    "call call-1",
    "call call-2",
    'result call-1 {"cancelled":true}',
    'result call-2 {"account":2}',
    `user ${GO_ON}`,
  ]);
  expect(parked.bench.mainRequests()).toHaveLength(2);
  // The answers stay what they are in later turns.
  const asked = [...parked.asked(), "assistant I see.", "user And now?"];
  await parked.resume({ input: { userMessage: "And now?" } });
  expect(parked.asked()).toEqual(asked);
});

test("a text of the person beside the answers is the prompt after them", async () => {
  await using parked = await Parked.open("call-1");
  await parked.resume({ answers: [answerOf("call-1", "yes")], input: { userMessage: "Hurry." } });
  expect(parked.asked()).toEqual(["user Connect it.", "call call-1", 'result call-1 "yes"', "user Hurry."]);
});

test("a denial is an error, with and without a text beside it", async () => {
  await using parked = await Parked.open("call-1", "call-2");
  const denied = { denied: true, reason: "no" };
  await parked.resume({ answers: ["call-1", "call-2"].map((id) => answerOf(id, denied, { isError: true })) });
  expect(parked.asked().slice(3)).toEqual([
    'error call-1 {"denied":true,"reason":"no"}',
    'error call-2 {"denied":true,"reason":"no"}',
    `user ${GO_ON}`,
  ]);
});

test("an answer is data: a command, a path, a tag, and 200 KiB reach the model as they are", async () => {
  const texts = ["/compact", "@/etc/hostname", "\\u003c/system-reminder>", "x".repeat(200 << 10)].map(
    (text) => `"${text}"`,
  );
  const ids = texts.map((_, index) => `call-${index}`);
  await using parked = await Parked.open(...ids);
  await parked.resume({ answers: ids.map((id, index) => answerOf(id, "", { text: texts[index] ?? "" })) });
  // The results stand in the order in which the calls were answered.
  const asked = parked.asked().slice(1 + ids.length);
  expect(asked.slice(0, -1).sort()).toEqual(ids.map((id, index) => `result ${id} ${texts[index]}`));
  expect(asked.at(-1)).toBe(`user ${GO_ON}`);
});

test.each([1, 2])("calls that were held when the pod died get their answers too: %d of two", async (count) => {
  await using parked = await Parked.open("call-1", "call-2");
  parked.loseResults(count);
  const calls = ["call-1", "call-2"].map((toolCallId) => ({ toolCallId, toolName: "connect", input: INPUT }));
  expect([...(await findParked(parked.session, calls)).values()]).toEqual(["open", "open"]);
  await parked.resume({ answers: [answerOf("call-1", 1), answerOf("call-2", 2)], input: { userMessage: "Go." } });
  expect(parked.asked().slice(1)).toEqual([
    "call call-1",
    "call call-2",
    "result call-1 1",
    "result call-2 2",
    "user Go.",
  ]);
  expect([...(await findParked(parked.session, calls)).values()]).toEqual(["answered", "answered"]);
});

test("a turn that is stopped while it holds calls goes on with their answers", async () => {
  await using bench = await HarnessBench.open();
  const hold = { type: "hold", file: join(bench.root, "never"), text: "" } as const;
  bench.model.push(calls([TOOL, INPUT, "call-1"], ["Bash", { command: "true" }, "other"], [TOOL, INPUT, "call-2"]));
  const running = bench.start({ input: { userMessage: "Connect it." }, shim: bench.shim({ connect: hold }) });
  const { session } = await running.seen((line) => line.session !== undefined);
  await running.seen((line) => line.chunks?.some((chunk) => chunk.type === "tool-output-available") === true);
  while (bench.shimCalls().length < 2) await Bun.sleep(10);
  running.child.kill("SIGTERM");
  await running.finished;
  bench.model.push(says("I see."));
  const turn = await bench.run({
    input: { userMessage: undefined },
    session: { id: session?.id ?? "", state: "local" },
    answers: [answerOf("call-1", 1), answerOf("call-2", 2)],
  });
  expect(turn.texts).toEqual(["I see."]);
  const asked = conversation(bench.mainRequests().at(-1));
  expect(asked.filter((line) => line.includes("call-"))).toEqual([
    ...["call call-1", "call call-2", "result call-1 1", "result call-2 2"],
  ]);
  expect(asked.at(-1)).toBe(`user ${GO_ON}`);
});

test.each([0, 1])("a message instead of an answer closes the questions, %d of them without a result", async (lost) => {
  await using parked = await Parked.open("call-1");
  if (lost > 0) parked.loseResults(lost);
  await parked.resume({ input: { userMessage: "Never mind." } });
  expect(parked.asked().slice(1)).toEqual([
    "call call-1",
    lost === 0 ? `result call-1 ${unansweredText("connect")}` : `error call-1 ${cutOffText("connect")}`,
    "user Never mind.",
  ]);
  const stale = await parked.resume({ answers: [answerOf("call-1", "late")] });
  expect(stale.outcome).toMatchObject({ type: "failed", error: { code: "stale" } });
});

test("a call that is parked by the turn that goes on gets an answer of its own", async () => {
  await using parked = await Parked.open("call-1");
  parked.bench.model.push(calls([TOOL, INPUT, "call-2"]));
  await parked.resume({ answers: [answerOf("call-1", 1)] });
  expect(parked.bench.mainRequests()).toHaveLength(2);
  await parked.resume({ answers: [answerOf("call-2", 2)] });
  expect(parked.asked().slice(1)).toEqual([
    ...["call call-1", "result call-1 1", `user ${GO_ON}`],
    ...["call call-2", "result call-2 2", `user ${GO_ON}`],
  ]);
});

test("the session's files alone are enough on another pod, under other folders", async () => {
  await using parked = await Parked.open("call-1");
  await using other = await HarnessBench.open();
  const from = parked.bench.transcript();
  const folder = join(other.configDir, "projects", basename(dirname(from)));
  mkdirSync(folder, { recursive: true });
  cpSync(from, join(folder, basename(from)));
  other.model.push(says("I see."));
  const turn = await other.run({
    input: { userMessage: undefined },
    shim: other.shim({ connect: { type: "pause" } }),
    session: { id: parked.session.id, state: "restored" },
    answers: [answerOf("call-1", "yes")],
  });
  expect(turn.texts).toEqual(["I see."]);
  expect(conversation(other.mainRequests().at(-1)).slice(1)).toEqual([
    ...["call call-1", 'result call-1 "yes"', `user ${GO_ON}`],
  ]);
});

test("a second attempt of a run places nothing twice, and does not repeat the person's text", async () => {
  await using parked = await Parked.open("call-1");
  const resumed = { answers: [answerOf("call-1", "yes")], input: { userMessage: "Hurry." } };
  await parked.resume(resumed);
  await parked.resume({ ...resumed, attempt: 2 });
  expect(parked.asked().slice(1)).toEqual([
    ...["call call-1", 'result call-1 "yes"', "user Hurry.", "assistant I see.", `user ${GO_ON}`],
  ]);
  const otherwise = await parked.resume({ answers: [answerOf("call-1", "no")] });
  expect(otherwise.outcome).toMatchObject({ type: "failed", error: { code: "stale" } });
});

test("answers without their session, or for another call, are stale, and nothing is started", async () => {
  await using parked = await Parked.open("call-1");
  const requests = parked.bench.model.requests.length;
  for (const choices of [
    { answers: [answerOf("call-1", 1)], session: { state: "fresh" } as const },
    { answers: [answerOf("call-9", 1)] },
    { answers: [answerOf("call-1", 1, { input: { account: "b" } })] },
    { answers: [answerOf("call-1", 1, { toolName: "other" })] },
  ]) {
    const turn = await parked.resume(choices);
    expect(turn.outcome).toMatchObject({ type: "failed", error: { code: "stale" } });
  }
  expect(parked.bench.model.requests).toHaveLength(requests);
  expect(readFileSync(parked.bench.transcript(), "utf8")).toContain(pauseText("connect"));
});
