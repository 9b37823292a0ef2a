/** The pure parts of the harness. */
import { expect, test } from "bun:test";
import { cutMessage } from "../../src/errors.ts";
import { cliEnvironment, secretValues, withoutSecrets } from "../../src/harness/claude-code/cli-environment.ts";
import { commandLine } from "../../src/harness/claude-code/early-start.ts";
import { pauseAfter } from "../../src/harness/claude-code/mcp-preflight.ts";
import { promptBlocks } from "../../src/harness/claude-code/prompt.ts";
import { canonicalToolName, claudeCodeToolRules } from "../../src/harness/claude-code/tool-names.ts";
import { readTurnRequest } from "../../src/harness/claude-code/turn-request.ts";

function request(input: Record<string, unknown>, settings: Record<string, unknown> = {}) {
  return readTurnRequest(
    JSON.stringify({
      runId: "r",
      attempt: 3,
      input,
      settings,
      session: { state: "fresh" },
      paths: { appRoot: "/a", cwd: "/a/repo", configDir: "/c", runDir: "/r" },
      shim: null,
      answers: [],
    }),
  );
}

test.each([
  ["a name", "m1", "m1", []],
  ["a list", ["m1", "m2"], "m1", ["m2"]],
  ["main", { main: "m1", fallback: ["m2", { id: "m3" }] }, "m1", ["m2", "m3"]],
  ["default", { default: { id: "m1" } }, "m1", []],
  ["primary", { primary: { model: "m1" }, fallback: "m2" }, "m1", ["m2"]],
  ["one model as an object", { id: "m1" }, "m1", []],
  ["nothing", undefined, "of-the-pod", []],
  ["something else", 7, "of-the-pod", []],
])("models: %s", (_name, models, model, fallbackModels) => {
  const read = request({ models }, { model: "of-the-pod" });
  expect(read.model).toBe(model);
  expect(read.fallbackModels).toEqual([...fallbackModels]);
});

test("a turn request names its message after run and attempt", () => {
  expect(request({}).messageId).toBe("r:3");
});

test.each([
  ["not JSON", "{"],
  ["not a document", "[]"],
  ["without paths", '{"runId":"r","attempt":1,"input":{},"settings":{},"session":{}}'],
])("stdin that is %s is refused", (_name, stdin) => {
  expect(() => readTurnRequest(stdin)).toThrow("no turn document");
});

test("a level or a mode that is not known restricts nothing, and is said", () => {
  expect(request({ toolApprovalLevel: "Read-Only", mode: "plan" }).ignored).toEqual([]);
  expect(request({}).ignored).toEqual([]);
  expect(request({ toolApprovalLevel: "raed-only", mode: "agent" })).toMatchObject({
    readonly: false,
    plan: false,
    ignored: ['mode "agent" is not known, and changes nothing', 'toolApprovalLevel "raed-only" restricts nothing'],
  });
});

test.each([
  ["2026-01-01T00:00:00Z", Date.UTC(2026, 0, 1)],
  [1767225600, Date.UTC(2026, 0, 1)],
  [1767225600000, Date.UTC(2026, 0, 1)],
  ["soon", undefined],
])("an expiry of %p is read", (expiresAt, expected) => {
  expect(request({ mcp: { url: "http://h/mcp", expiresAt } }).mcp?.expiresAtMs).toBe(expected as number);
});

test("names of tools", () => {
  expect(canonicalToolName("Bash")).toBe("bash");
  expect(canonicalToolName("Task")).toBe("agent");
  expect(canonicalToolName("mcp__platform__search")).toBe("search");
  expect(canonicalToolName("mcp__tools__ask")).toBe("ask");
  expect(canonicalToolName("mcp__other__search")).toBe("mcp__other__search");
  expect(claudeCodeToolRules("bash")).toEqual(["Bash"]);
  expect(claudeCodeToolRules("Bash(git push:*)")).toEqual(["Bash(git push:*)"]);
  expect(claudeCodeToolRules("agent")).toEqual(["Agent", "Task"]);
  expect(claudeCodeToolRules("mcp__x__y")).toEqual(["mcp__x__y"]);
  expect(claudeCodeToolRules("search")).toContain("mcp__platform__search");
});

test("files that are not base64, or empty, or of an unknown kind", () => {
  const file = (mediaType: string, url: string) =>
    promptBlocks({ parts: [{ type: "file", mediaType, url, filename: "f" }] })[0];
  expect(file("text/plain", "data:text/plain,caf%C3%A9")).toMatchObject({ source: { data: "café" }, title: "f" });
  expect(file("", "data:application/json;base64,e30=")).toMatchObject({ source: { type: "text", data: "{}" } });
  expect(file("image/jpg", "data:image/jpg;base64,aGk=")).toMatchObject({ source: { media_type: "image/jpeg" } });
  expect(file("text/plain", "data:text/plain,")).toMatchObject({
    type: "text",
    text: expect.stringContaining("empty"),
  });
  expect(file("text/plain", "data:text/plain,%")).toMatchObject({
    text: expect.stringContaining("could not be passed"),
  });
  expect(file("video/mp4", "data:video/mp4;base64,aGk=")).toMatchObject({ text: expect.stringContaining("video/mp4") });
});

test("a type that says nothing leaves it to the data URL to say it", () => {
  const file = (mediaType: string, url: string) =>
    promptBlocks({ parts: [{ type: "file", mediaType, url, filename: "f" }] })[0];
  for (const mediaType of ["image/*", "*/*", "application/octet-stream", "Application/Octet-Stream; x=y"]) {
    expect(file(mediaType, "data:image/png;base64,aGk=")).toMatchObject({ source: { media_type: "image/png" } });
    expect(file(mediaType, "data:text/plain;charset=utf-8,hi")).toMatchObject({ source: { type: "text", data: "hi" } });
    // The URL's own default is no word of the sender's.
    expect(file(mediaType, "data:;base64,aGk=")).toMatchObject({
      text: expect.stringContaining("could not be passed"),
    });
  }
  expect(file("text/csv", "data:application/octet-stream;base64,aGk=")).toMatchObject({ source: { data: "hi" } });
  expect(file("", "data:,hi")).toMatchObject({ source: { data: "hi" } });
});

test.each(["application/pdf", "image/png", "text/plain", "application/json"])(
  "an empty file of %s is named",
  (type) => {
    const url = `data:${type};base64,`;
    expect(promptBlocks({ parts: [{ type: "file", mediaType: type, url, filename: "f" }] })).toEqual([
      { type: "text", text: '[The attached file "f" is empty.]' },
    ]);
  },
);

test("blank text is no message, and other parts are passed over", () => {
  expect(() => promptBlocks({ parts: [{ type: "text", text: "  " }, { type: "step-start" }] })).toThrow("empty");
  expect(() => promptBlocks(undefined)).toThrow("empty");
});

test("the environment is the one given, without the runtime's, and with ours", () => {
  const env = cliEnvironment({ A: "1", BUN_OPTIONS: "--x", CLAUDE_CONFIG_DIR: "/other", NONE: undefined }, "/config");
  expect(env).toMatchObject({ A: "1", CLAUDE_CONFIG_DIR: "/config", IS_SANDBOX: "1", DISABLE_TELEMETRY: "1" });
  expect(Object.keys(env)).not.toContain("BUN_OPTIONS");
  expect(Object.keys(env)).not.toContain("NONE");
});

test("secrets are taken out of messages, the longer ones first", () => {
  const secrets = secretValues(
    { API_KEY: "12345678", SHORT_KEY: "abc", PATH: "/usr/bin/x" },
    { authorization: "Bearer 12345678-9" },
  );
  expect(withoutSecrets("12345678 and Bearer 12345678-9 and 12345678-9, abc in /usr/bin/x", secrets)).toBe(
    "[secret] and [secret] and [secret], abc in /usr/bin/x",
  );
});

test("pauses double up to the longest", () => {
  expect([1, 2, 3, 6, 7, 8].map((attempt) => pauseAfter(attempt, 2000))).toEqual([
    2000, 4000, 8000, 64_000, 128_000, 128_000,
  ]);
});

test("a text is cut at a character", () => {
  expect(cutMessage("abc")).toBe("abc");
  expect(cutMessage("é".repeat(1024))).toBe("é".repeat(1024));
  expect(cutMessage("é".repeat(1025))).toBe(`${"é".repeat(1022)}…`);
  expect(Buffer.byteLength(cutMessage("😀".repeat(1000)))).toBeLessThanOrEqual(2048);
  expect(cutMessage("😀".repeat(1000))).not.toContain("\ufffd");
});

test("headers and system prompt are on no command line", () => {
  const line = commandLine({
    mcpServers: { platform: { type: "http", url: "http://h", headers: { k: "secret" } } },
    systemPrompt: { type: "preset", preset: "claude_code", append: "private" },
  }).join(" ");
  expect(line).toContain("--await-initialize");
  expect(line).not.toContain("secret");
  expect(line).not.toContain("private");
});
