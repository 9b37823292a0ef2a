/** Which calls of the run's tools are believed, what becomes of them, and what a reader is told. */
import { expect, test } from "bun:test";
import { RunToolsBench, START, STEP_ENDS, tool } from "../support/run-tools-bench.ts";

const available = (toolCallId: string, output: unknown) => ({
  ...{ type: "tool-output-available", toolCallId, output, dynamic: true },
});
const failed = (toolCallId: string, errorText: string) => ({
  ...{ type: "tool-output-error", toolCallId, errorText, dynamic: true },
});

test("a call is carried out whether its announcement or its request comes first, and its output comes after it", async () => {
  const bench = new RunToolsBench();
  await bench.print(...START);
  await bench.call("a", "look_up", { key: "a" });
  await bench.request("b", "look_up", { key: "b" });
  await bench.clock.advance(1999);
  expect(bench.carried.map(({ call }) => call.toolCallId)).toEqual(["a"]);
  await bench.announce("b", "look_up", { key: "b" });
  await bench.reply("b", "B");
  await bench.reply("a", "no such key", true);
  expect(bench.read.slice(2).map(({ type, toolCallId }) => `${type} ${toolCallId}`)).toEqual([
    "tool-input-available a",
    "tool-input-available b",
    "tool-output-available b",
    "tool-output-error a",
  ]);
  expect(bench.outputsOf("a")).toEqual([failed("a", "no such key")]);
  expect(bench.outputsOf("b")).toEqual([available("b", "B")]);
  expect(bench.answered).toEqual([
    ["b", { type: "success", text: "B" }],
    ["a", { type: "failure", error: "no such key" }],
  ]);
  await bench.clock.advance(10_000);
  expect(bench.answered).toHaveLength(2);
  expect(bench.counted).toEqual(["answered", "failed"]);
});

test("a call whose announcement and request lie in the same step reaches the reader before it is answered", async () => {
  const bench = new RunToolsBench();
  bench.tools.relayEvents.onRequest({ name: "d", toolCallId: "d", toolName: "forbidden", args: {} });
  await bench.print(...START, { type: "tool-input-available", toolCallId: "d", toolName: "forbidden", input: {} });
  expect(bench.read.map(({ type }) => type).slice(-2)).toEqual(["tool-input-available", "tool-output-denied"]);
});

test("a request that nobody announces is told so after two seconds, and not a moment before", async () => {
  const bench = new RunToolsBench();
  await bench.request("x", "look_up");
  await bench.clock.advance(1999);
  expect(bench.answered).toEqual([]);
  await bench.clock.advance(1);
  expect(bench.toldOf("x")).toEqual([
    { type: "failure", error: "this call was not carried out: no such call was announced" },
  ]);
  await bench.announce("x", "look_up");
  expect([bench.carried, bench.read.length, bench.counted]).toEqual([[], 1, ["made_up"]]);
});

test("requests without end do not fill the log", async () => {
  const bench = new RunToolsBench();
  for (let n = 0; n < 200; n++) await bench.request(`x${n}`, "look_up");
  await bench.clock.advance(2000);
  bench.tools.stop();
  const said = bench.log.said.map(({ event }) => event).filter((event) => event.startsWith("tool request"));
  expect(said.length).toBe(21);
  expect(bench.log.said.at(-1)).toMatchObject({ event: "tool requests not believed", fields: { requests: 180 } });
});

test("an early request that is withdrawn is nobody's any more", async () => {
  const bench = new RunToolsBench();
  await bench.request("x", "look_up");
  await bench.withdraw("x");
  await bench.announce("x", "look_up");
  await bench.clock.advance(5000);
  expect([bench.carried, bench.answered]).toEqual([[], []]);
});

test.each<[string, [string, string, unknown]]>([
  ["of another call", ["other", "look_up", { key: "a", more: [1, { b: 2 }] }]],
  ["of no call", ["", "look_up", { key: "a", more: [1, { b: 2 }] }]],
  ["for another tool", ["a", "forbidden", { key: "a", more: [1, { b: 2 }] }]],
  ["for a tool that the run does not have", ["a", "no_such_tool", { key: "a", more: [1, { b: 2 }] }]],
  ["with another argument", ["a", "look_up", { key: "b", more: [1, { b: 2 }] }]],
  ["with one argument more", ["a", "look_up", { key: "a", more: [1, { b: 2 }], all: true }]],
  ["with one argument less", ["a", "look_up", { key: "a" }]],
  ["with another argument deep down", ["a", "look_up", { key: "a", more: [1, { b: 3 }] }]],
  ["with the prototype of its arguments changed", ["a", "look_up", JSON.parse('{"key":"a","__proto__":{}}')]],
])("a request %s is not believed, and the true one is carried out all the same", async (_name, [id, name, args]) => {
  const bench = new RunToolsBench();
  await bench.announce("a", "look_up", { key: "a", more: [1, { b: 2 }] });
  await bench.request(id, name, args, "forged");
  await bench.clock.advance(2000);
  expect(bench.toldOf("forged").map(({ type }) => type)).toEqual(["failure"]);
  expect([bench.carried, bench.counted]).toEqual([[], ["made_up"]]);
  await bench.request("a", "look_up", { more: [1, { b: 2 }], key: "a" }, "true");
  await bench.reply("a", "A");
  expect(bench.toldOf("true")).toEqual([{ type: "success", text: "A" }]);
  expect(bench.outputsOf("a")).toEqual([available("a", "A")]);
});

test("of a call that has its result nothing is held that grows with its arguments", async () => {
  const bench = new RunToolsBench();
  await bench.call("a", "look_up", { key: "a" });
  const [carried] = bench.carried;
  expect(carried?.call.input).toEqual({ key: "a" });
  await bench.reply("a", "A");
  expect(carried?.call.input).toBeUndefined();
});

test("a call that was announced twice is the one that was announced first", async () => {
  const bench = new RunToolsBench();
  await bench.announce("a", "look_up", { key: "a" });
  await bench.announce("a", "look_up", { key: "all" });
  await bench.request("a", "look_up", { key: "all" }, "second");
  await bench.request("a", "look_up", { key: "a" }, "first");
  expect(bench.toldOf("second")).toMatchObject([{ type: "failure" }]);
  expect(bench.carried.map(({ call }) => call.input)).toEqual([{ key: "a" }]);
});

test("two requests for one call are one call: carried out once, and both are told", async () => {
  const bench = new RunToolsBench();
  await bench.call("a", "look_up");
  await bench.request("a", "look_up", {}, "copy");
  expect(bench.carried).toHaveLength(1);
  await bench.withdraw("a");
  expect(bench.carried[0]?.signal.aborted).toBe(false);
  await bench.reply("a", "A");
  expect(bench.answered).toEqual([["copy", { type: "success", text: "A" }]]);
  expect(bench.outputsOf("a")).toEqual([available("a", "A")]);
});

test.each(["look_up", "pick", "forbidden"])(
  "a request for a call of %s that has its result is not believed",
  async (name) => {
    const bench = new RunToolsBench();
    await bench.call("a", name);
    await bench.reply("a", "A");
    const before = bench.read.length;
    await bench.request("a", name, {}, "again");
    expect(bench.toldOf("again")).toEqual([
      { type: "failure", error: "this call was not carried out: the call has its result already" },
    ]);
    expect(bench.read).toHaveLength(before);
    expect(bench.carried.length).toBe(name === "look_up" ? 1 : 0);
  },
);

test("no request is for a call that an earlier run made", async () => {
  const spec = tool("look_up");
  const chunks = [{ type: "tool-input-available", toolCallId: "old", toolName: "look_up", input: {}, dynamic: true }];
  const bench = new RunToolsBench({}, { chunks, answered: [{ toolCallId: "old", spec, input: {} }] });
  await bench.print(...START);
  expect(bench.read.map(({ type }) => type)).toEqual(["start", "tool-input-available", "start-step"]);
  await bench.request("old", "look_up");
  expect(bench.toldOf("old")).toMatchObject([{ type: "failure" }]);
  // What the harness repeats of it is the daemon's to say.
  await bench.print(available("old", "again"), failed("old", "lost"));
  expect(bench.outputsOf("old")).toEqual([]);
});

test("a call of the harness's own tool with the name of one of the run's is the harness's", async () => {
  const bench = new RunToolsBench();
  await bench.announce("own", "look_up", {}, { providerExecuted: true });
  await bench.request("own", "look_up");
  await bench.clock.advance(2000);
  expect(bench.toldOf("own")).toMatchObject([{ type: "failure" }]);
  await bench.print(available("own", "its output"));
  expect(bench.outputsOf("own")).toEqual([available("own", "its output")]);
});

test("a denied call is told to reader and model, and nobody else hears of it", async () => {
  const bench = new RunToolsBench();
  await bench.call("d", "forbidden");
  expect(bench.outputsOf("d")).toEqual([{ type: "tool-output-denied", toolCallId: "d" }]);
  expect(bench.toldOf("d")).toEqual([{ type: "failure", error: "forbidden is not permitted in this run" }]);
  expect([bench.carried, bench.issued, bench.counted]).toEqual([[], [], ["denied"]]);
});

test("arguments that do not fit the tool's schema are told to the model before anything is done", async () => {
  const bench = new RunToolsBench();
  await bench.call("a", "look_up", { key: 1 });
  expect(bench.toldOf("a")).toEqual([
    { type: "failure", error: expect.stringMatching(/^the arguments do not fit look_up: .*\/key/) },
  ]);
  expect(bench.outputsOf("a")).toMatchObject([{ type: "tool-output-error" }]);
  expect([bench.carried, bench.counted]).toEqual([[], ["failed"]]);
});

test("a call that its harness gives up is called off, and what comes of it reaches nobody", async () => {
  const bench = new RunToolsBench();
  await bench.call("a", "look_up");
  await bench.withdraw("a");
  expect(bench.carried[0]?.signal.aborted).toBe(true);
  await bench.reply("a", "too late");
  expect([bench.answered, bench.outputsOf("a")]).toEqual([[], []]);
  // The harness says what became of it.
  await bench.print(failed("a", "called off"));
  expect(bench.outputsOf("a")).toEqual([failed("a", "called off")]);
});

test("a call that is made again after it was called off is not carried out a second time", async () => {
  const bench = new RunToolsBench();
  await bench.call("a", "look_up");
  await bench.withdraw("a");
  await bench.request("a", "look_up", {}, "again");
  bench.carried[0]?.resolve({ text: "of the first", isError: false });
  await bench.clock.advance(0);
  expect(bench.carried).toHaveLength(1);
  const error = expect.stringContaining("may have been carried out");
  expect(bench.answered).toEqual([["again", { type: "failure", error }]]);
  // Its harness says what became of it.
  await bench.print(failed("a", "called off"));
  expect(bench.outputsOf("a")).toEqual([failed("a", "called off")]);
});

test("a call that is made again while it is still being decided on is carried out once", async () => {
  const bench = new RunToolsBench();
  await bench.announce("a", "look_up");
  const { onRequest, onWithdrawn } = bench.tools.relayEvents;
  onRequest({ name: "first", toolCallId: "a", toolName: "look_up", args: {} });
  onWithdrawn("first");
  onRequest({ name: "second", toolCallId: "a", toolName: "look_up", args: {} });
  await bench.clock.advance(0);
  expect(bench.carried).toHaveLength(1);
  await bench.reply("a", "A");
  expect(bench.answered).toEqual([["second", { type: "success", text: "A" }]]);
});

test("what the harness reports of a call that has its result, or is parked, is dropped", async () => {
  const bench = new RunToolsBench();
  await bench.call("a", "look_up");
  await bench.print({ ...available("a", "half"), preliminary: true });
  await bench.reply("a", "A");
  await bench.call("p", "pick");
  await bench.call("d", "forbidden");
  for (const id of ["a", "p", "d"]) {
    await bench.print({ ...available(id, "half"), preliminary: true });
    await bench.print(available(id, "made up"), failed(id, "made up"), { type: "tool-output-denied", toolCallId: id });
  }
  expect(bench.read.filter(({ type }) => type !== "tool-input-available")).toEqual([
    available("a", "A"),
    { type: "tool-output-denied", toolCallId: "d" },
  ]);
});

test.each([
  ["a", "look_up"],
  ["p", "pick"],
])("a final report of call %s of %s, which nobody has answered, says that the harness gave it up", async (id, name) => {
  const bench = RunToolsBench.hold();
  await bench.call(id, name);
  await bench.print({ ...available(id, "half"), preliminary: true });
  expect(bench.outputsOf(id)).toEqual([]);
  await bench.print(failed(id, "a neighbour failed"));
  expect(bench.outputsOf(id)).toEqual([failed(id, "a neighbour failed")]);
  expect(bench.toldOf(id)).toEqual([{ type: "failure", error: "the call was given up" }]);
  // The relay finds out a moment later.
  await bench.withdraw(id);
  await bench.reply(id, "too late");
  expect(await bench.tools.answer([bench.entry(id, { picked: 1 })])).toMatchObject({ type: "stale" });
  expect(bench.carried.map(({ signal }) => signal.aborted)).toEqual(name === "look_up" ? [true] : []);
  expect(bench.asked).toEqual(name === "pick" ? [["p"], []] : []);
  expect([bench.outputsOf(id).length, bench.answered.length]).toEqual([1, 1]);
});

test("an output that the daemon did not give is none, even of a call that is being asked", async () => {
  const bench = RunToolsBench.hold();
  await bench.call("e", "erase");
  await bench.print(available("e", "approved by nobody"));
  expect(bench.outputsOf("e").at(-1)).toEqual(
    failed("e", "the call was not carried out: its output came from elsewhere"),
  );
  expect(bench.carried).toEqual([]);
});

test("what is beside a dropped output stays, and a frame of nothing else is none", async () => {
  const bench = new RunToolsBench();
  await bench.call("p", "pick");
  const frame = { chunks: [available("p", "made up")], body: "", verbatim: false };
  expect(bench.tools.take(frame)).toBeUndefined();
  // The session's id and the outcome of such a frame are not lost with it.
  expect(bench.tools.take({ ...frame, sessionId: "s" })).toMatchObject({ chunks: [], sessionId: "s" });
  const outcome = { type: "finished" };
  expect(bench.tools.take({ ...frame, outcome })).toMatchObject({ chunks: [], outcome });
  const text = { type: "text-delta", id: "t", delta: "hello" };
  await bench.print(available("p", "made up"), text, STEP_ENDS);
  expect(bench.read.slice(1)).toEqual([text, STEP_ENDS]);
});

test("a call that never reached the daemon has the error that its harness gives it, and no output", async () => {
  const bench = new RunToolsBench();
  await bench.announce("refused", "look_up");
  await bench.announce("forged", "look_up");
  await bench.print({ ...available("forged", "half"), preliminary: true });
  await bench.print(failed("refused", "no such tool"), available("forged", "approved by nobody"));
  expect(bench.outputsOf("refused")).toEqual([failed("refused", "no such tool")]);
  expect(bench.outputsOf("forged")).toEqual([
    failed("forged", "the call was not carried out: its output came from elsewhere"),
  ]);
  for (const id of ["refused", "forged"]) {
    await bench.request(id, "look_up");
    expect(bench.toldOf(id)).toMatchObject([{ type: "failure" }]);
  }
  expect(bench.carried).toEqual([]);
});

test("a frame that is too large to be parsed here is looked at when it is about the run's tools", () => {
  const bench = new RunToolsBench();
  expect(bench.concern({ type: "text-start", id: "t" })).toBe(false);
  expect(bench.concern({ type: "tool-input-available", toolCallId: "x", toolName: "Write" })).toBe(false);
  expect(bench.concern({ type: "tool-input-available", toolCallId: "x", toolName: "look_up" })).toBe(true);
  for (const type of ["start", "start-step", "finish"]) expect(bench.concern({ type })).toBe(true);
});

test("a disk that does not take an answer ends the run", async () => {
  const bench = new RunToolsBench();
  const broken = new Error("ENOSPC");
  bench.tools.connect({ directory: "", publicKey: "", answer: () => Promise.reject(broken), stop: async () => {} });
  await bench.call("d", "forbidden");
  expect(bench.failures).toEqual([broken]);
});

test("nothing is said, asked or carried out after the end", async () => {
  const bench = RunToolsBench.hold();
  await bench.call("a", "look_up");
  await bench.call("p", "pick");
  await bench.request("early", "look_up");
  const before = [bench.read.length, bench.waiting.length];
  bench.tools.stop();
  expect(bench.carried[0]?.signal.aborted).toBe(true);
  await bench.reply("a", "too late");
  await bench.request("late", "look_up");
  await bench.clock.advance(60_000);
  const refused = await bench.tools.answer([bench.entry("p", { picked: 1 })]);
  expect(refused).toMatchObject({ type: "stale" });
  await bench.tools.conclude({ type: "finished" });
  expect([bench.read.length, bench.waiting.length]).toEqual(before);
  expect([bench.answered, bench.outcomes, bench.carried.length]).toEqual([[], [], 1]);
});
