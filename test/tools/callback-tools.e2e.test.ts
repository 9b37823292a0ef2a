/** Callback tools from end to end: the real Claude Code, the shim, the relay, and a callback on loopback. */
import { afterEach, beforeEach, expect, setDefaultTimeout, test } from "bun:test";
import { mkdir } from "node:fs/promises";
import type { Frame } from "../../src/frames/frame.ts";
import { TestDaemon } from "../support/daemon.ts";
import { calls, type ScriptedModel, says, startScriptedModel } from "../support/scripted-model/index.ts";

/** A turn takes a second, and several on a busy machine. */
setDefaultTimeout(30_000);

const TOKEN = "callback-token-0123456789";

let model: ScriptedModel;
let daemon: TestDaemon;
let callback: Bun.Server<undefined>;
let answer: (order: Order) => Response | Promise<Response>;
let orders: { readonly order: Order; readonly headers: Headers }[];

interface Order {
  readonly toolCallId: string;
  readonly toolName: string;
  readonly arguments: Readonly<Record<string, unknown>>;
}

beforeEach(async () => {
  orders = [];
  callback = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    async fetch(request) {
      const order = (await request.json()) as Order;
      orders.push({ order, headers: request.headers });
      return answer(order);
    },
  });
  model = await startScriptedModel();
  daemon = await TestDaemon.start({ harness: null, env: { IS_SANDBOX: "1", KILL_GRACE_MS: "2000" } });
  await mkdir(daemon.path("repo"));
});

afterEach(async () => {
  await daemon[Symbol.asyncDispose]();
  await model.stop();
  await callback.stop(true);
});

const tool = (over: Record<string, unknown> = {}) => ({
  name: "look_up",
  description: "Looks up a key.",
  kind: "callback",
  inputSchema: { type: "object", properties: { key: { type: "string", maxLength: 5 } }, required: ["key"] },
  ...over,
});

const run = (tools: unknown[]): Promise<Frame[]> =>
  daemon.run({
    runId: "run-callback",
    threadId: "thread-callback",
    input: {
      userMessage: "look it up",
      env: { ANTHROPIC_BASE_URL: model.url, ANTHROPIC_API_KEY: "sk-scripted-model-key" },
      tools,
      callback: { url: `http://127.0.0.1:${callback.port}/tools`, headers: { Authorization: `Bearer ${TOKEN}` } },
    },
  });

/** What a reader hears of a call, without its input. */
const outcomesOf = (frames: readonly Frame[], toolCallId: string) =>
  frames
    .flatMap(({ chunks }) => chunks)
    .filter((chunk) => chunk.toolCallId === toolCallId && /^tool-output/.test(chunk.type));

const call = (key: string, id: string, name = "look_up"): [string, Record<string, unknown>, string] => [
  `mcp__tools__${name}`,
  { key },
  id,
];

test("a call reaches the callback once, and its reply reader and model; the callback itself stays unknown", async () => {
  answer = (order) => Response.json({ text: `${order.arguments.key} is 42, asked with Bearer ${TOKEN}` });
  model.push(calls(call("a", "toolu_a"), call("b", "toolu_b")), says("Done."));
  const frames = await run([tool({ readOnly: true })]);
  expect(frames.at(-1)).toMatchObject({ done: true });
  expect(orders.map(({ order }) => order).sort((a, b) => a.toolCallId.localeCompare(b.toolCallId))).toEqual(
    ["a", "b"].map((key) => ({
      runId: "run-callback",
      threadId: "thread-callback",
      toolCallId: `toolu_${key}`,
      toolName: "look_up",
      arguments: { key },
    })),
  );
  for (const { headers } of orders) expect(headers.get("authorization")).toBe(`Bearer ${TOKEN}`);
  expect(new Set(orders.map(({ headers }) => headers.get("idempotency-key"))).size).toBe(2);
  for (const key of ["a", "b"]) {
    expect(outcomesOf(frames, `toolu_${key}`)).toMatchObject([
      { type: "tool-output-available", output: `${key} is 42, asked with [secret]` },
    ]);
  }
  const asked = JSON.stringify(model.requests);
  expect(asked).toContain("a is 42, asked with [secret]");
  for (const text of [JSON.stringify(frames), asked, JSON.stringify([daemon.log, daemon.noise])]) {
    expect(text).not.toContain(TOKEN);
    expect(text).not.toContain(`127.0.0.1:${callback.port}`);
  }
});

test("a callback that fails, takes too long or is not asked at all is a failure of the call, and the turn goes on", async () => {
  answer = ({ arguments: { key } }) =>
    key === "slow" ? new Promise<Response>(() => {}) : Response.json({ error: "no quota" }, { status: 429 });
  model.push(
    calls(call("full", "toolu_full")),
    calls(call("slow", "toolu_slow", "wait")),
    calls(call("longer", "toolu_long")),
    says("Done."),
  );
  const frames = await run([tool(), tool({ name: "wait", timeoutMs: 200 })]);
  expect(frames.find(({ outcome }) => outcome)).toMatchObject({ outcome: { type: "finished" } });
  const failure = (id: string) => outcomesOf(frames, id).map(({ type, errorText }) => [type, errorText]);
  expect(failure("toolu_full")).toEqual([["tool-output-error", "the tool answered with status 429: no quota"]]);
  expect(failure("toolu_slow")).toEqual([
    ["tool-output-error", "the tool did not answer within 200 ms; it may have been carried out all the same"],
  ]);
  expect(failure("toolu_long")).toEqual([
    ["tool-output-error", expect.stringContaining("/key must NOT have more than 5 characters")],
  ]);
  expect(orders.map(({ order }) => order.arguments.key)).toEqual(["full", "slow"]);
});

test("a call that the dispatch denies is not carried out", async () => {
  answer = () => new Response("done");
  model.push(calls(call("a", "toolu_a")), says("Done."));
  const frames = await run([tool({ permission: "deny" })]);
  expect(outcomesOf(frames, "toolu_a").map(({ type }) => type)).not.toContain("tool-output-available");
  expect(frames.find(({ outcome }) => outcome)).toMatchObject({ outcome: { type: "finished" } });
  expect(orders).toEqual([]);
});
