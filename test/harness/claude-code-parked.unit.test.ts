/** What is read of a transcript that the agent may have written: which calls wait, and which do not. */
import { afterEach, expect, test } from "bun:test";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import { open } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findParked } from "../../src/harness/claude-code/find-parked.ts";
import { responseSchemaOf } from "../../src/harness/claude-code/own-questions.ts";
import { linesOf } from "../../src/harness/claude-code/transcript-lines.ts";
import type { ParkedCall, ParkedState } from "../../src/harness/port.ts";
import { pauseText } from "../../src/pause-text.ts";

const folders: string[] = [];
afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});

const ID = "11111111-1111-4111-8111-111111111111";
const CALL: ParkedCall = { toolCallId: "call-1", toolName: "connect", input: { account: "a", deep: [{ b: 1, c: 2 }] } };

const use = (id: string, name: string, input: unknown, more: object = {}): object => ({
  ...{ parentUuid: "p", isSidechain: false, type: "assistant", uuid: `use-${id}` },
  ...{ message: { role: "assistant", content: [{ type: "tool_use", id, name, input }] } },
  ...more,
});
const result = (id: string, text: string, more: object = {}): object => ({
  ...{ parentUuid: `use-${id}`, isSidechain: false, type: "user", uuid: `result-${id}` },
  ...{
    message: { role: "user", content: [{ type: "tool_result", tool_use_id: id, content: [{ type: "text", text }] }] },
  },
  ...more,
});
const prompt = (text: string): object => ({
  ...{ parentUuid: "p", isSidechain: false, type: "user", promptSource: "sdk", uuid: "prompt" },
  message: { role: "user", content: [{ type: "text", text }] },
});
const parked = use("call-1", "mcp__tools__connect", { deep: [{ c: 2, b: 1 }], account: "a" });

function transcriptOf(rows: readonly (object | string)[]): { configDir: string; path: string } {
  const configDir = mkdtempSync(join(tmpdir(), "parked-"));
  folders.push(configDir);
  mkdirSync(join(configDir, "projects/-repo"), { recursive: true });
  const path = join(configDir, `projects/-repo/${ID}.jsonl`);
  writeFileSync(path, rows.map((row) => `${typeof row === "string" ? row : JSON.stringify(row)}\n`).join(""));
  return { configDir, path };
}

async function stateOf(rows: readonly (object | string)[], call = CALL): Promise<ParkedState | undefined> {
  return (await findParked({ configDir: transcriptOf(rows).configDir, id: ID }, [call])).get(call.toolCallId);
}

test("a call is open while its result is the text of a pause, or while it has none", async () => {
  expect(await stateOf([parked, result("call-1", pauseText("connect"))])).toBe("open");
  expect(await stateOf([parked])).toBe("open");
  expect(await stateOf([parked, result("call-1", '{"done":true}')])).toBe("answered");
  expect(await stateOf([parked, result("call-1", pauseText("other"))])).toBe("answered");
  expect(await stateOf([parked, prompt("Never mind.")])).toBe("answered");
  expect(await stateOf([parked, result("call-1", pauseText("connect")), prompt("Never mind.")])).toBe("open");
});

test("a call that was cut off while it was held is open until the conversation goes on", async () => {
  const block = { type: "tool_result", tool_use_id: "call-1", content: "Connection closed", is_error: true };
  const cut = { ...result("call-1", ""), message: { role: "user", content: [block] } };
  expect(await stateOf([parked, cut])).toBe("open");
  expect(await stateOf([parked, cut, prompt("Go on.")])).toBe("answered");
  const next = {
    parentUuid: "p",
    message: { id: "next", role: "assistant", content: [] },
    type: "assistant",
    uuid: "n",
  };
  expect(await stateOf([parked, cut, next])).toBe("answered");
  expect(await stateOf([parked, next])).toBe("answered");
  expect(await stateOf([parked, result("call-1", pauseText("connect")), next])).toBe("open");
});

test("a call with another name, another input, or of another server is absent", async () => {
  const paused = result("call-1", pauseText("connect"));
  expect(await stateOf([paused])).toBe("absent");
  expect(await stateOf([use("call-1", "mcp__tools__connect", { account: "b" }), paused])).toBe("absent");
  expect(await stateOf([use("call-1", "mcp__platform__connect", CALL.input), paused])).toBe("absent");
  expect(await stateOf([use("call-1", "mcp__tools__other", CALL.input), paused])).toBe("absent");
  expect(await stateOf([use("call-1", "mcp__tools__connect", CALL.input, { isSidechain: true }), paused])).toBe(
    "absent",
  );
  // What was sent to the model is kept beside the conversation, and is not it.
  expect(await stateOf([{ type: "api-request-blob", ...use("x", "y", 1), message: [parked] }])).toBe("absent");
});

test("identical calls have states of their own", async () => {
  const { configDir } = transcriptOf([
    parked,
    use("call-2", "mcp__tools__connect", CALL.input),
    result("call-2", '{"done":true}'),
    result("call-1", pauseText("connect")),
  ]);
  const states = await findParked({ configDir, id: ID }, [CALL, { ...CALL, toolCallId: "call-2" }]);
  expect([...states]).toEqual([
    ["call-1", "open"],
    ["call-2", "answered"],
  ]);
});

test("a question of the harness's own waits with the input that is run again", async () => {
  const raw = { questions: [{ question: "Which?" }] };
  const whole = { questions: [{ question: "Which?", multiSelect: false }] };
  const rows = (toolInput: unknown): object[] => [
    use("call-1", "AskUserQuestion", raw),
    {
      ...{ parentUuid: "use-call-1", type: "attachment", uuid: "deferred" },
      attachment: { type: "hook_deferred_tool", toolUseID: "call-1", toolName: "AskUserQuestion", toolInput },
    },
  ];
  const asked = { toolCallId: "call-1", toolName: "ask_user_question", input: whole };
  expect(await stateOf(rows(whole), asked)).toBe("open");
  expect(await stateOf(rows({ questions: [{ question: "Another?" }] }), asked)).toBe("absent");
  expect(await stateOf([...rows(whole), result("call-1", "blue")], asked)).toBe("answered");
});

test("lines that are long, cut or no JSON do not hide a call", async () => {
  const long = { type: "user", message: { role: "user", content: "x".repeat(5 << 20) } };
  const { configDir, path } = transcriptOf([
    "{no json",
    long,
    parked,
    long,
    result("call-1", pauseText("connect")),
    long,
  ]);
  const session = { configDir, id: ID };
  expect((await findParked(session, [CALL])).get("call-1")).toBe("open");
  truncateSync(path, Bun.file(path).size - (1 << 20));
  expect((await findParked(session, [CALL])).get("call-1")).toBe("open");
});

test("rows that are too large to be parsed by a daemon ask nothing, and answer and pass over as others do", async () => {
  const large = "x".repeat(2 << 20);
  const paused = result("call-1", pauseText("connect"));
  expect(await stateOf([parked, result("call-1", large)])).toBe("answered");
  expect(await stateOf([parked, prompt(large)])).toBe("answered");
  expect(await stateOf([parked, paused, prompt(large), use("w", "Write", large), result("w", large)])).toBe("open");
  expect(await stateOf([use("call-1", "mcp__tools__connect", { large })])).toBe("absent");
  const input = { large };
  expect(await stateOf([use("call-1", "mcp__tools__connect", input), paused], { ...CALL, input })).toBe("absent");
});

test("what is no file of the session is not read, and not waited for", async () => {
  const outside = transcriptOf([parked]);
  const link = mkdtempSync(join(tmpdir(), "parked-"));
  folders.push(link);
  mkdirSync(join(link, "projects/-repo"), { recursive: true });
  const stateIn = async (id: string): Promise<unknown> =>
    (await findParked({ configDir: link, id }, [CALL])).get("call-1");
  symlinkSync(outside.path, join(link, "projects/-repo/linked.jsonl"));
  expect(await stateIn("linked")).toBe("absent");
  symlinkSync(join(outside.configDir, "projects/-repo"), join(link, "projects/-other"));
  expect(await stateIn(ID)).toBe("absent");
  execFileSync("mkfifo", [join(link, "projects/-repo/fifo.jsonl")]);
  expect(await stateIn("fifo")).toBe("absent");
  mkdirSync(join(link, "projects/-repo/folder.jsonl"));
  expect(await stateIn("folder")).toBe("absent");
  expect(await stateIn("../-repo/linked")).toBe("absent");
  expect(await stateIn("not-there")).toBe("absent");
});

test("each question has a schema for its answer: an option, several, or words of one's own", () => {
  const options = [{ label: "red" }, { label: "blue" }];
  const schema = responseSchemaOf("ask_user_question", {
    questions: [
      { question: "Which?", options },
      { question: "Which ones?", options, multiSelect: true },
    ],
  });
  const text = { type: "string", minLength: 1 };
  const one = { enum: ["red", "blue"] };
  expect(schema).toMatchObject({
    properties: {
      answers: {
        properties: {
          "Which?": { anyOf: [one, text] },
          "Which ones?": { anyOf: [{ type: "array", items: { anyOf: [one, text] }, minItems: 1 }, text] },
        },
        required: ["Which?", "Which ones?"],
        additionalProperties: false,
      },
    },
    required: ["answers"],
  });
  expect(responseSchemaOf("exit_plan_mode", {})).toMatchObject({ required: ["approved"] });
  expect(responseSchemaOf("ask_user_question", { questions: "?" })).toBeNull();
  expect(responseSchemaOf("bash", {})).toBeNull();
});

test("lines are read from a place on: those that begin there or after it", async () => {
  const { path } = transcriptOf(["first", "second", "third"]);
  await using file = await open(path);
  const linesFrom = async (from: number): Promise<string[]> => {
    const found: string[] = [];
    const transcript = { path, file, bytes: 19, [Symbol.asyncDispose]: () => Promise.resolve() };
    for await (const { start, end, bytes } of linesOf(transcript, from)) found.push(`${start}-${end} ${bytes}`);
    return found;
  };
  expect(await linesFrom(0)).toEqual(["0-6 first", "6-13 second", "13-19 third"]);
  expect(await linesFrom(6)).toEqual(["6-13 second", "13-19 third"]);
  expect(await linesFrom(7)).toEqual(["13-19 third"]);
  expect(await linesFrom(18)).toEqual([]);
});
