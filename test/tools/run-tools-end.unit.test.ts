/** How a turn that asks a person ends: by its harness, by going on all the same, or from outside while it waits. */
import { expect, test } from "bun:test";
import type { Outcome } from "../../src/frames/frame.ts";
import type { HarnessInterrupt } from "../../src/harness/port.ts";
import { settle } from "../support/manual-clock.ts";
import { FINISH, HOLD_MS, RunToolsBench, START, STEP_ENDS } from "../support/run-tools-bench.ts";

/** What a harness needs to end a turn that was parked from outside. */
const PARKED_END_MS = 5000;
const FINISHED: Outcome = { type: "finished", usage: { outputTokens: 3 } };

test("a turn that parked nothing ends as its harness says, and its chunks are its own", async () => {
  const bench = RunToolsBench.hold();
  await bench.print(...START);
  await bench.call("p", "pick");
  await bench.tools.answer([bench.entry("p", { picked: 1 })]);
  await bench.print(STEP_ENDS, FINISH);
  await bench.tools.conclude(FINISHED);
  expect(bench.read.slice(-2)).toEqual([STEP_ENDS, FINISH]);
  expect(bench.outcomes).toEqual([FINISHED]);
});

test("a parked turn ends with its questions, signed as they are at the end, and one finish that says so", async () => {
  const bench = new RunToolsBench();
  await bench.print(...START);
  await bench.call("p", "pick");
  await bench.call("e", "erase");
  await bench.print(STEP_ENDS, FINISH);
  expect(bench.read.at(-1)).toEqual(STEP_ENDS);
  await bench.tools.conclude(FINISHED);
  expect(bench.outcomes).toMatchObject([{ type: "interrupt", suspension: "suspension 3", usage: { outputTokens: 3 } }]);
  expect(bench.issued.at(-1)?.questions.map(({ toolCallId }) => toolCallId)).toEqual(["p", "e"]);
  expect(bench.read.slice(-2)).toEqual([
    { type: "tool-approval-request", approvalId: bench.idOf("e"), toolCallId: "e", signature: "suspension 3" },
    { ...FINISH, finishReason: "tool-calls" },
  ]);
  expect(bench.read.filter(({ type }) => type === "finish")).toHaveLength(1);
  // A harness says its end once, an exit may say it again.
  await bench.tools.conclude({ type: "failed", error: { code: "harness_crashed", message: "" } });
  expect(bench.outcomes).toHaveLength(1);
});

test("the end waits for the question that is being signed", async () => {
  const bench = new RunToolsBench();
  const signed = Promise.withResolvers<undefined>();
  bench.signing = () => signed.promise;
  await bench.call("p", "pick");
  const ended = bench.tools.conclude(FINISHED);
  await settle();
  expect(bench.outcomes).toEqual([]);
  signed.resolve(undefined);
  await ended;
  expect(bench.outcomes).toMatchObject([{ type: "interrupt", interrupts: [{ toolCallId: "p" }] }]);
});

test("the exit of a harness that has named its questions does not end the turn before they are signed", async () => {
  const bench = new RunToolsBench();
  const signed = Promise.withResolvers<undefined>();
  bench.signing = () => signed.promise;
  const said = bench.tools.conclude(FINISHED, [
    { toolCallId: "q", toolName: "ask", input: {}, reason: "input_required" },
  ]);
  const exited = bench.tools.conclude({ type: "finished" });
  await settle();
  expect(bench.outcomes).toEqual([]);
  signed.resolve(undefined);
  await Promise.all([said, exited]);
  expect(bench.outcomes).toMatchObject([{ type: "interrupt", interrupts: [{ toolCallId: "q" }] }]);
});

test("a turn that goes on after it was parked, and whose questions then cannot be signed, says so", async () => {
  const bench = new RunToolsBench();
  await bench.print(...START);
  await bench.call("p", "pick");
  bench.signing = () => Promise.reject(new Error("no"));
  await bench.print({ type: "start-step" });
  expect(bench.failures).toMatchObject([new Error("no")]);
});

test.each([
  ["turn_failed", "interrupt"],
  ["harness_crashed", "interrupt"],
  ["harness_stalled", "failed"],
  ["stale", "failed"],
] as const)("a parked turn that then fails as %s is %s", async (code, type) => {
  const bench = new RunToolsBench();
  await bench.print(...START);
  await bench.call("p", "pick");
  await bench.print(FINISH);
  await bench.tools.conclude({ type: "failed", error: { code, message: "no" } });
  expect(bench.outcomes).toMatchObject([{ type }]);
  // Of a failure the end of the message says more than the harness did.
  expect(bench.read.filter((chunk) => chunk.type === "finish")).toHaveLength(type === "interrupt" ? 1 : 0);
});

test("a parked turn whose questions can no longer be signed fails, and says why", async () => {
  const bench = new RunToolsBench();
  await bench.call("p", "pick");
  bench.signing = async () => "too large";
  await bench.tools.conclude(FINISHED);
  const error = { code: "turn_failed", message: "the turn could not be parked: too large" };
  expect(bench.outcomes).toEqual([{ type: "failed", error } as Outcome]);
});

test("nothing about a paused call reaches the reader any more, whatever its harness says of it", async () => {
  const bench = new RunToolsBench();
  await bench.print(...START);
  await bench.call("p", "pick");
  const before = [...bench.read];
  await bench.print({ type: "tool-output-error", toolCallId: "p", errorText: "timed out", dynamic: true });
  await bench.print({ type: "tool-output-available", toolCallId: "p", output: "[waiting for the person]" });
  await bench.withdraw("p");
  await bench.clock.advance(60_000);
  expect(bench.read).toEqual(before);
  await bench.tools.conclude(FINISHED);
  expect(bench.outcomes).toMatchObject([{ type: "interrupt" }]);
});

test("a parked turn that begins another step is ended there, and what follows reaches nobody", async () => {
  const bench = new RunToolsBench();
  await bench.print(...START);
  await bench.call("p", "pick");
  await bench.print(STEP_ENDS);
  const before = [...bench.read];
  const words = [
    { type: "text-start", id: "t" },
    { type: "text-delta", id: "t", delta: "I could not wait" },
  ];
  await bench.print({ type: "start-step" }, ...words);
  expect(bench.outcomes).toMatchObject([{ type: "interrupt", interrupts: [{ toolCallId: "p" }] }]);
  await bench.print(...words, FINISH);
  await bench.call("a", "look_up");
  // A large frame is looked at as well, and so left out.
  expect(bench.concern({ type: "text-delta", id: "t" })).toBe(true);
  expect(bench.read).toEqual(before);
  expect([bench.carried, bench.toldOf("a"), bench.outcomes.length]).toEqual([[], [], 1]);
});

test("a step after the limit ends a turn that was held, one before it does not", async () => {
  const bench = RunToolsBench.hold();
  await bench.print(...START);
  await bench.call("p", "pick");
  await bench.print({ type: "start-step" });
  expect(bench.outcomes).toEqual([]);
  await bench.clock.advance(HOLD_MS);
  await bench.print({ type: "start-step" });
  expect(bench.outcomes).toMatchObject([{ type: "interrupt" }]);
});

test("a call beside the parked one is finished before the turn ends", async () => {
  const bench = new RunToolsBench();
  await bench.print(...START);
  await bench.call("a", "look_up");
  await bench.call("p", "pick");
  await bench.reply("a", "A");
  expect(bench.outputsOf("a")).toMatchObject([{ type: "tool-output-available", output: "A" }]);
  await bench.tools.conclude(FINISHED);
  expect(bench.outcomes).toMatchObject([{ type: "interrupt", interrupts: [{ toolCallId: "p" }] }]);
});

test("subagents that work on in the background are in the plan that is signed, those that ended are not", async () => {
  const bench = new RunToolsBench();
  const agent = (toolCallId: string) => ({
    ...{ type: "tool-input-available", toolCallId, toolName: "agent", input: { prompt: toolCallId } },
    providerExecuted: true,
  });
  const output = (toolCallId: string, more: object) => ({
    type: "tool-output-available",
    toolCallId,
    output: "",
    ...more,
  });
  await bench.print(...START, agent("one"), agent("two"), agent("three"));
  await bench.print(output("one", { preliminary: true }), output("two", { preliminary: true }));
  // However large its last word is; what it says before is nobody's business here.
  const outputs = [output("one", { preliminary: true }), output("three", {}), output("one", {})];
  expect(outputs.map((chunk) => bench.concern(chunk))).toEqual([false, false, true]);
  await bench.print(output("one", {}));
  await bench.call("p", "pick");
  await bench.tools.conclude(FINISHED);
  expect(bench.issued.at(-1)?.subagents).toEqual([{ toolCallId: "two", toolName: "agent", input: { prompt: "two" } }]);
});

test("a subagent whose output is closed by the end of the turn works on, and is in the plan", async () => {
  const bench = new RunToolsBench();
  const input = { prompt: "one" };
  const output = { type: "tool-output-available", toolCallId: "one", output: "so far", providerExecuted: true };
  await bench.print(...START, {
    ...{ type: "tool-input-available", toolCallId: "one", toolName: "agent", input, providerExecuted: true },
  });
  await bench.print({ ...output, preliminary: true });
  await bench.call("p", "pick");
  await bench.print(output, { type: "finish-step" }, { type: "finish", finishReason: "tool-calls" });
  await bench.tools.conclude(FINISHED);
  expect(bench.issued.at(-1)?.subagents).toEqual([{ toolCallId: "one", toolName: "agent", input }]);
});

test("the plan is signed with a harness's own question also where the run has no tools", async () => {
  const bench = new RunToolsBench({ specs: [], disposition: "native", mayAsk: true });
  const input = { prompt: "one" };
  await bench.print(...START, {
    ...{ type: "tool-input-available", toolCallId: "one", toolName: "agent", input, providerExecuted: true },
  });
  await bench.print({ type: "tool-output-available", toolCallId: "one", output: "so far", preliminary: true });
  const asked: HarnessInterrupt = { toolCallId: "q", toolName: "ask", input: {}, reason: "input_required" };
  await bench.tools.conclude(FINISHED, [asked]);
  expect(bench.outcomes).toMatchObject([{ type: "interrupt", interrupts: [{ toolCallId: "q" }] }]);
  expect(bench.issued.at(-1)?.subagents).toEqual([{ toolCallId: "one", toolName: "agent", input }]);
});

test("of calls that nothing is reported of the newest alone may turn out to be subagents", async () => {
  const bench = new RunToolsBench();
  await bench.print(...START);
  const ids = Array.from({ length: 257 }, (_, n) => `call-${n}`);
  for (const toolCallId of ids) await bench.announce(toolCallId, "agent", {}, { providerExecuted: true });
  for (const toolCallId of ids) {
    await bench.print({ type: "tool-output-available", toolCallId, output: "", preliminary: true });
  }
  await bench.call("p", "pick");
  await bench.tools.conclude(FINISHED);
  expect(bench.issued.at(-1)?.subagents.map(({ toolCallId }) => toolCallId)).toEqual(ids.slice(1));
});

test("the harness's own questions are asked as what they are", async () => {
  const bench = new RunToolsBench();
  const own: HarnessInterrupt[] = [
    { toolCallId: "q", toolName: "ask", input: { question: "?" }, reason: "input_required", message: "Which?" },
    { toolCallId: "l", toolName: "plan", input: { plan: "!" }, reason: "confirmation" },
  ];
  await bench.tools.conclude(FINISHED, own);
  expect(bench.issued.at(-1)?.questions).toMatchObject([
    { toolCallId: "q", reason: "input_required", message: "Which?", responseSchema: { type: "string" } },
    { toolCallId: "l", reason: "confirmation", responseSchema: null },
  ]);
  expect(bench.outcomes).toMatchObject([{ type: "interrupt", usage: { outputTokens: 3 } }]);
});

test("a question of the harness's own that cannot be asked beside what is parked is left out", async () => {
  const bench = new RunToolsBench();
  for (let n = 0; n < 32; n++) await bench.call(`p${n}`, "pick");
  await bench.tools.conclude(FINISHED, [{ toolCallId: "q", toolName: "ask", input: {}, reason: "input_required" }]);
  expect(bench.outcomes).toMatchObject([{ type: "interrupt", usage: { outputTokens: 3 } }]);
  const asked = bench.issued.at(-1)?.questions.map(({ toolCallId }) => toolCallId);
  expect(asked).toEqual(Array.from({ length: 32 }, (_, n) => `p${n}`));
  expect(bench.read.at(-1)).toMatchObject({ type: "tool-output-error", toolCallId: "q" });
});

test("a harness that parks by itself names a client tool, and the tool says how it is asked", async () => {
  const bench = new RunToolsBench({ disposition: "native" });
  await bench.print(...START);
  await bench.announce("p", "pick", { from: [1] });
  await bench.announce("e", "erase");
  await bench.print(STEP_ENDS);
  await bench.tools.conclude(FINISHED, [
    { toolCallId: "p", toolName: "pick", input: { from: [1] }, reason: "confirmation", message: "Pick one." },
    { toolCallId: "e", toolName: "erase", input: {} },
    { toolCallId: "e", toolName: "erase", input: {} },
  ]);
  expect(bench.issued.at(-1)?.questions).toMatchObject([
    { toolCallId: "p", reason: "dispatchd:client_tool", message: "Pick one.", tool: { name: "pick" } },
    { toolCallId: "e", reason: "tool_call" },
  ]);
  expect(bench.outcomes).toMatchObject([{ type: "interrupt", suspension: "suspension 1" }]);
  expect(bench.read.at(-1)).toMatchObject({ type: "tool-approval-request", toolCallId: "e" });
});

test("a harness that parks by itself parks no call of a subagent", async () => {
  const bench = new RunToolsBench({ disposition: "native" });
  await bench.print(...START);
  await bench.subagentCall("s", "pick");
  expect(bench.toldOf("s")).toMatchObject([
    { type: "success", text: expect.stringContaining("report to your caller") },
  ]);
  await bench.tools.conclude(FINISHED);
  expect(bench.outcomes).toEqual([FINISHED]);
});

test("a harness that parks by itself says when its turn is over, whatever it does before", async () => {
  const bench = new RunToolsBench({ disposition: "native" });
  await bench.print(...START);
  await bench.call("p", "pick");
  await bench.print(STEP_ENDS, { type: "start-step" });
  expect(bench.outcomes).toEqual([]);
  await bench.tools.conclude(FINISHED);
  expect(bench.outcomes).toMatchObject([{ type: "interrupt", interrupts: [{ toolCallId: "p" }] }]);
});

test.each<[string, HarnessInterrupt]>([
  ["a call that nobody announced", { toolCallId: "x", toolName: "pick", input: {} }],
  ["other arguments than were announced", { toolCallId: "p", toolName: "pick", input: { all: true } }],
  ["another tool than was announced", { toolCallId: "p", toolName: "connect", input: {} }],
  ["a call that has its result", { toolCallId: "a", toolName: "look_up", input: {} }],
  ["a call that the dispatch denies", { toolCallId: "d", toolName: "forbidden", input: {} }],
  ["arguments that do not fit", { toolCallId: "w", toolName: "look_up", input: { key: 1 } }],
  ["no tool of the run, as one of them", { toolCallId: "b", toolName: "bash", input: {}, reason: "tool_call" }],
  ["no tool of the run, without a reason", { toolCallId: "b", toolName: "bash", input: {} }],
])("a harness that parks %s is not believed", async (_name, interrupt) => {
  const bench = new RunToolsBench({ disposition: "native" });
  await bench.print(...START);
  await bench.announce("p", "pick");
  await bench.announce("d", "forbidden");
  await bench.announce("w", "look_up", { key: 1 });
  await bench.call("a", "look_up");
  await bench.reply("a", "A");
  await bench.tools.conclude(FINISHED, [interrupt]);
  const error = { code: "turn_failed", message: "the harness parked calls that it cannot park" };
  expect(bench.outcomes).toEqual([{ type: "failed", error, usage: { outputTokens: 3 } } as Outcome]);
  expect(bench.issued).toEqual([]);
});

test("what is not believed does not take along what is", async () => {
  const bench = new RunToolsBench({ disposition: "native" });
  await bench.announce("p", "pick");
  await bench.tools.conclude(FINISHED, [
    { toolCallId: "x", toolName: "pick", input: {} },
    { toolCallId: "p", toolName: "pick", input: {} },
  ]);
  expect(bench.outcomes).toMatchObject([{ type: "interrupt", interrupts: [{ toolCallId: "p" }] }]);
});

test("a harness that parks more than a person can be asked has failed", async () => {
  const bench = new RunToolsBench({ disposition: "native" });
  const own = Array.from({ length: 33 }, (_, n) => ({ toolCallId: `p${n}`, toolName: "pick", input: {} }));
  for (const { toolCallId } of own) await bench.announce(toolCallId, "pick");
  await bench.tools.conclude(FINISHED, own);
  expect(bench.outcomes).toMatchObject([{ type: "failed", error: { code: "turn_failed" } }]);
});

test("a turn that waits for people alone can be parked, one that does anything else cannot", async () => {
  const bench = RunToolsBench.hold();
  const holds = (): boolean => bench.tools.waitsOnly(bench.openCalls) === "turn";
  await bench.print(...START);
  expect(holds()).toBe(false);
  await bench.call("p", "pick");
  expect(holds()).toBe(true);
  await bench.call("a", "look_up");
  expect(holds()).toBe(false);
  await bench.reply("a", "A");
  expect(holds()).toBe(true);
  const own = { type: "tool-input-available", toolCallId: "own", toolName: "bash", input: {}, providerExecuted: true };
  await bench.print(own);
  expect(holds()).toBe(false);
  await bench.print({ type: "tool-output-available", toolCallId: "own", output: "" });
  expect(holds()).toBe(true);
  await bench.tools.answer([bench.entry("p", { picked: 1 })]);
  expect(holds()).toBe(false);
  await bench.call("e", "erase");
  await bench.tools.answer([bench.entry("e", { approved: true })]);
  expect(holds()).toBe(false);
});

test("what only a subagent asks cannot outlive the run, beside a question of the turn itself it is parked with it", async () => {
  const bench = RunToolsBench.hold();
  const agent = {
    type: "tool-input-available",
    toolCallId: "agent",
    toolName: "agent",
    input: {},
    providerExecuted: true,
  };
  await bench.print(...START, agent);
  await bench.subagentCall("s", "pick");
  expect(bench.tools.waitsOnly(bench.openCalls)).toBe("subagent");
  await bench.call("p", "pick");
  expect(bench.tools.waitsOnly(bench.openCalls)).toBe("turn");
});

test("a turn in which only a subagent asks goes on when it waits no more, for as long as it takes", async () => {
  const bench = RunToolsBench.hold();
  await bench.print(...START);
  await bench.subagentCall("s", "pick");
  bench.tools.park("nobody read the run");
  expect(bench.toldOf("s")).toEqual([{ type: "success", text: expect.stringContaining("report to your caller") }]);
  await bench.clock.advance(60_000);
  expect(bench.outcomes).toEqual([]);
  await bench.tools.conclude(FINISHED);
  expect(bench.outcomes).toMatchObject([{ type: "finished" }]);
});

test("a turn that is parked from outside ends by itself, as a parked one", async () => {
  const bench = RunToolsBench.hold();
  await bench.print(...START);
  await bench.call("p", "pick");
  bench.tools.park("the pod is shutting down");
  await settle();
  expect(bench.answered).toEqual([["p", { type: "pause" }]]);
  await bench.print(STEP_ENDS, FINISH);
  await bench.tools.conclude(FINISHED);
  await bench.clock.advance(PARKED_END_MS);
  expect(bench.outcomes).toMatchObject([{ type: "interrupt", interrupts: [{ toolCallId: "p" }] }]);
});

test("one whose harness does not end is ended, five seconds after it was first parked", async () => {
  const bench = RunToolsBench.hold();
  await bench.call("p", "pick");
  bench.tools.park("nobody reads");
  await bench.clock.advance(PARKED_END_MS - 1);
  bench.tools.park("it is silent, too");
  expect(bench.outcomes).toEqual([]);
  await bench.clock.advance(1);
  expect(bench.outcomes).toMatchObject([{ type: "interrupt", suspension: "suspension 2" }]);
});

test("an answer that comes while a turn is parked from outside is too late for it, and good for a new dispatch", async () => {
  const bench = RunToolsBench.hold();
  await bench.call("p", "pick");
  const entry = bench.entry("p", { picked: 1 });
  bench.tools.park("the pod is shutting down");
  expect(await bench.tools.answer([entry])).toMatchObject({ type: "stale", dead: false });
  await bench.clock.advance(PARKED_END_MS);
  expect(bench.outcomes).toMatchObject([{ type: "interrupt", interrupts: [{ id: entry.interruptId }] }]);
  expect(await bench.tools.answer([entry])).toMatchObject({ type: "stale", dead: false });
});

test("what a person's answer came to is shown also when the harness ends before it says a word", async () => {
  const chunks = [
    { type: "tool-input-available", toolCallId: "old", toolName: "erase", input: {}, dynamic: true },
    { type: "tool-output-available", toolCallId: "old", output: "done", dynamic: true },
  ];
  const error = { code: "harness_crashed", message: "it crashed" } as const;
  const silent = new RunToolsBench({}, { chunks, answered: [] });
  await silent.tools.conclude({ type: "failed", error });
  expect(silent.read).toEqual([{ type: "start" }, ...chunks]);
  const speaking = new RunToolsBench({}, { chunks, answered: [] });
  await speaking.print({ type: "start", messageId: "m" });
  await speaking.tools.conclude({ type: "failed", error });
  expect(speaking.read).toEqual([{ type: "start", messageId: "m" }, ...chunks]);
});
