/** The client and `run` on the daemon itself, with a harness that calls client tools through the shim. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { runCli } from "../../src/cli/index.ts";
import { answer, cancel, createClient, type Run, StaleError, type Tool } from "../../src/client/index.ts";
import { MemoryIo } from "../cli/memory-io.ts";
import { until } from "../support/fake-daemon.ts";
import { ASKING_HARNESS, type AskedCall } from "./asking-harness.ts";
import { RealDaemon } from "./real-daemon.ts";

const KEY = `k1:${Buffer.alloc(32, 7).toString("base64url")}`;
const inputSchema = { type: "object", properties: { account: { type: "string" } } };
const responseSchema = { type: "object", properties: { address: { type: "string" } }, required: ["address"] };
const tools: readonly Tool[] = [
  { name: "connect", description: "Connects an account.", kind: "client", inputSchema, responseSchema },
];
const deploy: Tool = { name: "deploy", description: "Deploys.", kind: "callback", inputSchema, permission: "ask" };

let daemon: RealDaemon;
beforeAll(async () => {
  const HARNESS_CAPABILITIES = '{"resume":true,"clientTools":"shim"}';
  daemon = await RealDaemon.start({ HARNESS_CAPABILITIES, SUSPENSION_KEYS: KEY }, ASKING_HARNESS);
});
afterAll(() => daemon[Symbol.asyncDispose]());

const connect = (id: string): AskedCall => ({ id, name: "connect", input: { account: id } });
const prompt = (...calls: AskedCall[]): string => JSON.stringify(calls);
const good = { address: "a@example.invalid" };

async function textOf(run: Run): Promise<string> {
  let text = "";
  for await (const chunk of run) if (chunk.type === "text-delta") text += chunk.delta;
  return text;
}

function connectTo({ url, token }: RealDaemon) {
  const client = createClient({ url, token });
  const ask = (threadId: string, holdSeconds: number, ...calls: AskedCall[]): Run =>
    client.dispatch({ input: { threadId, userMessage: prompt(...calls), tools, clientTools: { holdSeconds } } });
  return { client, ask };
}

describe("the client", () => {
  test("goes on with a suspended turn: each call gets its own answer, once", async () => {
    const { ask } = connectTo(daemon);
    const run = ask("acknowledge", 0, connect("one"), connect("two"));
    const result = await run.result();
    if (result.type !== "interrupt") throw new Error(JSON.stringify(result));
    const [one, two] = [...result.interrupts].sort((a, b) => (a.toolCallId < b.toolCallId ? -1 : 1));
    expect(one).toMatchObject({
      reason: "dispatchd:client_tool",
      toolCallId: "one",
      responseSchema,
      metadata: { toolName: "connect", input: { account: "one" } },
    });
    if (!one || !two) throw new Error("a question is missing");
    const answers = [answer(one, good), cancel(two)];
    const next = run.resume(answers);
    const text = await textOf(next);
    expect(text).toContain(`connect gave ${JSON.stringify(good)}. `);
    expect(text).toContain('connect gave {"cancelled":true}. ');
    expect((await next.result()).type).toBe("finished");
    // What was used is used.
    expect(await run.resume(answers).result()).toMatchObject({ type: "failed", code: "stale", stale: { dead: true } });
  });

  test("is told by name of a suspension that was changed, and of an answer that does not fit", async () => {
    const { client, ask } = connectTo(daemon);
    const run = ask("changed", 0, connect("one"));
    const result = await run.result();
    if (result.type !== "interrupt") throw new Error(JSON.stringify(result));
    const [interrupt] = result.interrupts;
    if (!interrupt) throw new Error("there is no question");
    const input = { threadId: "changed", tools };
    const changed = { ...result, suspension: `${result.suspension}x` };
    expect(await client.resume(changed, [answer(interrupt, good)], { input }).result()).toMatchObject({
      type: "refused",
      code: "stale",
      stale: { interruptId: interrupt.id, dead: true },
    });
    expect(await client.resume(result, [answer(interrupt, 5)], { input }).result()).toMatchObject({
      type: "refused",
      code: "stale",
      stale: { interruptId: interrupt.id, dead: false },
    });
    const [earlier] = await daemon.starts();
    expect(earlier).toBeDefined();
    const stored = JSON.parse(JSON.stringify(result));
    expect((await client.resume(stored, [answer(interrupt, good)], { input }).result()).type).toBe("finished");
  });

  test("answers a turn that waits, and the same again", async () => {
    const { client, ask } = connectTo(daemon);
    const run = ask("hold", 60, connect("one"), connect("two"));
    const text = textOf(run);
    await until(() => run.interrupts.length === 2, "both questions");
    expect(run.waiting).toMatchObject({ suspension: expect.any(String), until: expect.any(String) });
    const [one, two] = run.interrupts;
    if (!one || !two) throw new Error("a question is missing");
    expect(await run.answer([answer(one, good)])).toBe(1);
    expect(await run.answer([answer(one, good)])).toBe(1);
    await expect(run.answer([answer(one, { address: "other" })])).rejects.toBeInstanceOf(StaleError);
    await expect(run.answer([answer(two, 5)])).rejects.toMatchObject({ name: "RefusedError", code: "bad_input" });
    await until(() => run.interrupts.length === 1, "the next waiting frame");
    expect(run.interrupts[0]?.id).toBe(two.id);
    expect(await client.answer(run.runId, [cancel(two)])).toBe(1);
    const said = await text;
    expect(said).toContain(`${one.toolCallId} gave ${JSON.stringify(good)}. `);
    expect(said).toContain(`${two.toolCallId} gave {"cancelled":true}. `);
    expect((await run.result()).type).toBe("finished");
    expect(run.interrupts).toEqual([]);
  });

  test("takes an answer that came too late for the turn into the next one, on another pod", async () => {
    const { ask } = connectTo(daemon);
    const run = ask("decay", 1, connect("one"));
    const result = await run.result();
    if (result.type !== "interrupt") throw new Error(JSON.stringify(result));
    const [one] = run.interrupts;
    if (!one) throw new Error("there is no question");
    const late = answer(one, good);
    await expect(run.answer([late])).rejects.toMatchObject({ name: "StaleError", stale: { dead: false } });
    await using other = await RealDaemon.start(
      { HARNESS_CAPABILITIES: '{"resume":true,"clientTools":"shim"}', SUSPENSION_KEYS: KEY },
      ASKING_HARNESS,
    );
    const { client } = connectTo(other);
    const next = client.resume(result, [late], { input: { threadId: "decay", tools } });
    expect(await textOf(next)).toBe(`connect gave ${JSON.stringify(good)}. `);
  });
});

describe("run", () => {
  function start(files: Record<string, string> = {}) {
    const env = { DISPATCHD_URL: daemon.url, DISPATCHD_TOKEN: daemon.token };
    return new MemoryIo({ env, person: true, files: { "tools.json": JSON.stringify(tools), ...files } });
  }
  const argv = (thread: string, ...more: string[]) => ["run", "--tools", "tools.json", "--thread", thread, ...more];

  test("asks while the turn waits, and again for what does not fit", async () => {
    const io = start();
    const code = runCli(argv("cli-hold", "--hold", "60", prompt(connect("one"))), io);
    for (const line of ['{"address": 5}', JSON.stringify(good)]) {
      await until(() => io.prompt !== undefined, "a prompt");
      io.type(line);
    }
    expect(await code).toBe(0);
    expect(io.err).toContain("not taken: refused with 400 bad_input: ");
    expect(io.out).toBe(`one gave ${JSON.stringify(good)}. \n`);
    expect((await daemon.starts()).length).toBeGreaterThan(0);
  });

  test("asks after the turn, and again for what does not fit", async () => {
    const io = start();
    const code = runCli(argv("cli-next", prompt(connect("one"))), io);
    for (const line of ['{"address": 5}', JSON.stringify(good)]) {
      await until(() => io.prompt !== undefined, "a prompt");
      io.type(line);
    }
    expect(await code).toBe(0);
    expect(io.err).toContain("refused with 409 stale: ");
    expect(io.out).toBe(`connect gave ${JSON.stringify(good)}. \n`);
  });

  test("takes what is typed too long into the next turn", async () => {
    const io = start();
    const code = runCli(argv("cli-decay", "--run-id", "cli-decay", "--hold", "1", prompt(connect("one"))), io);
    await until(() => io.prompt !== undefined, "a prompt");
    const client = createClient({ url: daemon.url, token: daemon.token });
    await until(async () => (await client.run("cli-decay")).state === "ended", "the end of the hold");
    io.type(JSON.stringify(good));
    expect(await code).toBe(0);
    expect(io.err).toContain("the turn does not wait any longer: the answer goes into the next one\n");
    expect(io.out).toBe(`connect gave ${JSON.stringify(good)}. \n`);
  });

  test("left at the prompt, the turn waits; the command that was printed goes on", async () => {
    const io = start();
    const code = runCli(argv("cli-left", "--run-id", "cli-left", "--hold", "60", prompt(connect("one"))), io);
    await until(() => io.prompt !== undefined, "a prompt");
    io.ctrlC();
    expect(await code).toBe(6);
    const command = io.err.trimEnd().split("\n").at(-1)?.trim().split(" ").slice(1) ?? [];
    const later = start();
    const next = runCli(command, later);
    await until(() => later.prompt !== undefined, "a prompt");
    later.type(JSON.stringify(good));
    expect(await next).toBe(0);
    expect(later.out).toBe(`one gave ${JSON.stringify(good)}. \n`);
  });

  test("denies what has to be approved: nothing is carried out, and the agent reads why", async () => {
    const io = start({ "tools.json": JSON.stringify([deploy]) });
    const call = { id: "one", name: "deploy", input: {} };
    const callback = ["--callback", "http://127.0.0.1:1/never"];
    const code = runCli(argv("cli-ask", ...callback, prompt(call)), io);
    for (const line of ["n", "not today"]) {
      await until(() => io.prompt !== undefined, "a prompt");
      io.type(line);
    }
    expect(await code).toBe(0);
    expect(io.out).toBe('deploy gave {"denied":true,"reason":"not today"}. \n');
  });
});
