/** The scripted model keeps to the Messages API as far as its clients look: a plain HTTP client here, no agent. */
import { afterEach, beforeEach, expect, test } from "bun:test";
import { spawn } from "node:child_process";
import { join } from "node:path";
import { calls, fails, type ScriptedModel, says, startScriptedModel, thinks } from "../support/scripted-model/index.ts";

let model: ScriptedModel;
beforeEach(async () => {
  model = await startScriptedModel();
});
afterEach(() => model.stop());

const TOOLS = [{ name: "Bash", input_schema: { type: "object" } }];

function ask(body: Record<string, unknown> = {}, headers: Record<string, string> = {}): Promise<Response> {
  return fetch(`${model.url}/v1/messages?beta=true`, {
    method: "POST",
    headers,
    body: JSON.stringify({
      model: "claude-x",
      stream: true,
      tools: TOOLS,
      messages: [{ role: "user", content: "hi" }],
      ...body,
    }),
  });
}

interface ServerEvent {
  readonly type: string;
  readonly delta?: Record<string, unknown>;
  readonly content_block?: Record<string, unknown>;
  readonly usage?: Record<string, number>;
}

function parse(text: string): ServerEvent[] {
  return text
    .split("\n\n")
    .filter((part) => part !== "")
    .map((part) => {
      const [event, data] = part.split("\n");
      const parsed = JSON.parse(data?.replace("data: ", "") ?? "") as ServerEvent;
      expect(event).toBe(`event: ${parsed.type}`);
      return parsed;
    });
}

const events = async (response: Promise<Response>): Promise<ServerEvent[]> => parse(await (await response).text());

test("text and thinking are streamed in deltas, thinking is signed", async () => {
  model.push(thinks("I think about it.", "I answer.", { deltaChars: 4, usage: { inputTokens: 5, outputTokens: 9 } }));
  const seen = await events(ask());
  expect(seen.map((event) => event.type).filter((type) => !type.endsWith("_delta"))).toEqual([
    ...["message_start", "content_block_start", "content_block_stop", "content_block_start", "content_block_stop"],
    "message_stop",
  ]);
  expect(seen.map((event) => event.delta?.thinking ?? "").join("")).toBe("I think about it.");
  expect(seen.map((event) => event.delta?.text ?? "").join("")).toBe("I answer.");
  expect(seen.filter((event) => event.delta?.type === "signature_delta")).toHaveLength(1);
  const end = seen.find((event) => event.type === "message_delta");
  expect(end).toMatchObject({ delta: { stop_reason: "end_turn" }, usage: { input_tokens: 5, output_tokens: 9 } });
});

test("parallel calls arrive as blocks whose deltas make up their input", async () => {
  model.push(calls(["Bash", { command: "ls -la" }, "one"], ["Read", { file_path: "/x" }]));
  const seen = await events(ask());
  const blocks = seen.filter((event) => event.type === "content_block_start").map((event) => event.content_block);
  expect(blocks).toMatchObject([
    { type: "tool_use", name: "Bash", id: "one" },
    { type: "tool_use", name: "Read", id: expect.stringMatching(/^toolu_/) },
  ]);
  expect(seen.map((event) => event.delta?.partial_json ?? "").join("")).toBe('{"command":"ls -la"}{"file_path":"/x"}');
  expect(seen.at(-2)?.delta?.stop_reason).toBe("tool_use");
});

test("errors have their status, their type and their pause", async () => {
  model.push(fails(429, { retryAfterSeconds: 0 }), fails(529), fails(500, { message: "broken" }));
  const [limited, overloaded, broken] = [await ask(), await ask(), await ask()];
  expect([limited.status, overloaded.status, broken.status]).toEqual([429, 529, 500]);
  expect(limited.headers.get("retry-after")).toBe("0");
  expect(await limited.json()).toMatchObject({ error: { type: "rate_limit_error" } });
  expect(await overloaded.json()).toMatchObject({ error: { type: "overloaded_error" } });
  expect(await broken.json()).toMatchObject({ error: { type: "api_error", message: "broken" } });
});

test("a stream can be cut in the middle", async () => {
  model.push({ ...says("one two three four"), cutAfterDeltas: 1 });
  const reader = (await ask()).body?.getReader();
  let text = "";
  let broken = false;
  try {
    for (;;) {
      const next = await reader?.read();
      if (!next || next.done) break;
      text += new TextDecoder().decode(next.value);
    }
  } catch {
    broken = true;
  }
  expect(broken).toBe(true);
  expect(text).toContain("one two ");
  expect(text).not.toContain("message_stop");
});

test("a stream can end with an error event, and a hanging one ends with its client", async () => {
  model.push({ ...says("one two three"), errorAfterDeltas: 1 }, { ...says("one two three"), hangAfterDeltas: 1 });
  expect((await events(ask())).at(-1)).toMatchObject({ type: "error", error: { type: "overloaded_error" } });
  const gone = new AbortController();
  const hanging = await fetch(`${model.url}/v1/messages`, {
    method: "POST",
    signal: gone.signal,
    body: JSON.stringify({ model: "x", stream: true, tools: TOOLS, messages: [] }),
  });
  const reader = hanging.body?.getReader();
  expect(new TextDecoder().decode((await reader?.read())?.value)).toContain("message_start");
  gone.abort();
  await expect(reader?.read() ?? Promise.resolve()).rejects.toThrow();
});

test("delays come before the first byte and between deltas", async () => {
  model.push(says("abcdefgh", { delayMs: 120, betweenDeltasMs: 60, deltaChars: 2 }));
  const before = performance.now();
  const response = await ask();
  expect(performance.now() - before).toBeGreaterThanOrEqual(115);
  await response.text();
  expect(performance.now() - before).toBeGreaterThanOrEqual(350);
});

test("requests beside the conversation and of subagents do not disturb a script", async () => {
  model.push(says("for the conversation"), { ...says("for the subagent"), to: "subagent" });
  const text = async (response: Promise<Response>): Promise<string> =>
    (await events(response)).map((event) => event.delta?.text ?? "").join("");
  expect(await text(ask({ tools: [] }))).not.toContain("for the");
  const count = await fetch(`${model.url}/v1/messages/count_tokens`, { method: "POST", body: "{}" });
  expect(await count.json()).toEqual({ input_tokens: 42 });
  expect(await text(ask({}, { "x-claude-code-agent-id": "a1" }))).toBe("for the subagent");
  expect(await text(ask())).toBe("for the conversation");
  expect(model.pending()).toBe(0);
  expect(model.requests.map((request) => request.kind)).toEqual(["side", "count_tokens", "subagent", "main"]);
});

test("a handler decides first, and may leave it to the script", async () => {
  model.setHandler((request) => (request.model === "claude-y" ? says("handled") : undefined));
  model.push(says("scripted"));
  expect(JSON.stringify(await events(ask({ model: "claude-y" })))).toContain("handled");
  expect(JSON.stringify(await events(ask()))).toContain("scripted");
});

test("an answer without a stream is one message", async () => {
  model.push(says("whole"));
  const message = await (await ask({ stream: false })).json();
  expect(message).toMatchObject({
    role: "assistant",
    content: [{ type: "text", text: "whole" }],
    stop_reason: "end_turn",
  });
});

test("unscripted, it shows that it has seen the conversation", async () => {
  const words = (seen: ServerEvent[]): string => seen.map((event) => event.delta?.text ?? "").join("");
  const first = await events(ask({ messages: [{ role: "user", content: "My cat is Ada." }] }));
  expect(words(first)).toContain('Hello from the scripted model. You wrote: "My cat is Ada."');
  const reminder = { type: "text", text: "<system-reminder>not said</system-reminder>" };
  const seen = await events(
    ask({
      messages: [
        { role: "user", content: [reminder, { type: "text", text: "My cat is Ada." }] },
        { role: "assistant", content: "Hello." },
        { role: "user", content: "What is its name?" },
      ],
    }),
  );
  const said = words(seen);
  expect(said).toContain("one earlier message");
  expect(said).toContain("My cat is Ada.");
  expect(said).not.toContain("not said");
}, 10_000);

test("unscripted, it looks at the checkout when the message is about it, and tells what it saw", async () => {
  const asked = { role: "user", content: "What is in this repository?" };
  const call = (await events(ask({ messages: [asked] }))).find((event) => event.content_block?.type === "tool_use");
  expect(call?.content_block?.name).toBe("Bash");
  const made = { type: "tool_use", id: "one", name: "Bash", input: {} };
  const result = { type: "tool_result", tool_use_id: "one", content: "README.md" };
  const seen = await events(
    ask({
      messages: [asked, { role: "assistant", content: [made] }, { role: "user", content: [result] }],
    }),
  );
  expect(seen.map((event) => event.delta?.text ?? "").join("")).toContain("README.md");
});

test("as a program it prints its address on one line, and ends when it is told to", async () => {
  const child = spawn(process.execPath, [join(import.meta.dir, "../support/scripted-model/main.ts")], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const line = await new Promise<string>((resolve) => void child.stdout.once("data", (data) => resolve(String(data))));
  const { url } = JSON.parse(line);
  expect((await fetch(`${url}/api/hello`, { method: "HEAD" })).status).toBe(200);
  const exit = new Promise((resolve) => void child.once("exit", resolve));
  child.kill("SIGTERM");
  expect(await exit).toBe(0);
});
