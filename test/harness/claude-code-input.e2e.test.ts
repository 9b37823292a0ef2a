/** What of a dispatch reaches the model, and what the agent may do. */
import { expect, test } from "bun:test";
import { existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { startMcpEndpoint, toolResultTexts } from "../support/claude-code-harness/mcp-endpoint.ts";
import { HarnessBench } from "../support/claude-code-harness/run-turn.ts";
import { calls, type ReceivedRequest, says } from "../support/scripted-model/index.ts";

const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const PDF = Buffer.from("%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF").toString("base64");

function mainRequest(bench: HarnessBench): ReceivedRequest {
  const request = bench.model.requests.find((candidate) => candidate.kind === "main");
  if (!request) throw new Error("the model was not asked");
  return request;
}

function userBlocks(request: ReceivedRequest): Record<string, unknown>[] {
  return request.messages
    .filter((message) => message.role === "user")
    .flatMap((message) => (Array.isArray(message.content) ? message.content : []));
}

test("images, PDFs and texts of the message become blocks, what cannot be passed on is named", async () => {
  await using bench = await HarnessBench.open();
  bench.model.push(says("Seen."));
  const text = Buffer.from("id,name\n1,Ada\n").toString("base64");
  const turn = await bench.run({
    input: {
      userMessage: {
        parts: [
          { type: "text", text: "Look at these." },
          { type: "file", mediaType: "image/png", url: `data:image/png;base64,${PIXEL}`, filename: "dot.png" },
          { type: "file", mediaType: "application/pdf", url: `data:application/pdf;base64,${PDF}`, filename: "a.pdf" },
          { type: "file", mediaType: "text/csv", url: `data:text/csv;base64,${text}`, filename: "people.csv" },
          { type: "file", mediaType: "application/zip", url: "data:application/zip;base64,UEs=", filename: "x.zip" },
          { type: "file", mediaType: "image/png", url: "https://example.com/y.png", filename: "y.png" },
        ],
      },
    },
  });
  expect(turn.outcome?.type).toBe("finished");
  const blocks = userBlocks(mainRequest(bench));
  expect(blocks.find((block) => block.type === "image")).toMatchObject({
    source: { type: "base64", media_type: "image/png" },
  });
  const documents = blocks.filter((block) => block.type === "document");
  expect(documents).toMatchObject([
    { source: { type: "base64", media_type: "application/pdf", data: PDF }, title: "a.pdf" },
    { source: { type: "text", media_type: "text/plain", data: "id,name\n1,Ada\n" }, title: "people.csv" },
  ]);
  const texts = blocks.map((block) => block.text).join("\n");
  expect(texts).toContain("Look at these.");
  expect(texts).toContain('"x.zip" (application/zip), which could not be passed on');
  expect(texts).toContain('"y.png" (image/png), which could not be passed on');
});

test.each([
  ["a text", "Hello there."],
  ["content", { content: "Hello there." }],
  ["parts", { parts: [{ type: "text", text: "Hello there." }] }],
])("a user message may be %s", async (_name, userMessage) => {
  await using bench = await HarnessBench.open();
  bench.model.push(says("Hello."));
  expect((await bench.run({ input: { userMessage } })).outcome?.type).toBe("finished");
  expect(userBlocks(mainRequest(bench)).map((block) => block.text)).toContain("Hello there.");
});

test("instructions, repository, branch, person and the checkout's CLAUDE.md reach the model", async () => {
  await using bench = await HarnessBench.open();
  await Bun.write(join(bench.repo, "CLAUDE.md"), "Always use tabs in this checkout.");
  bench.model.push(says("Yes."));
  await bench.run({
    input: {
      agent: { id: "a1", instructions: "Answer like a pirate." },
      workspace: { cwd: "/repo", repo: "acme/rocket", branch: "fix/boost" },
      user: { name: "Ada", email: "ada@example.com" },
      organizationId: "org-7",
      models: { main: "claude-sonnet-5" },
    },
  });
  const request = mainRequest(bench);
  expect(request.model).toBe("claude-sonnet-5");
  for (const told of ["Answer like a pirate.", "acme/rocket", "fix/boost", "Ada <ada@example.com>", "org-7"]) {
    expect(request.system).toContain(told);
  }
  expect(JSON.stringify(request.messages)).toContain("Always use tabs in this checkout.");
});

test("a disallowed tool is not offered, under its own name or the canonical one", async () => {
  await using bench = await HarnessBench.open();
  bench.model.push(calls(["Bash", { command: "touch made" }]), says("Refused."));
  const turn = await bench.run({ input: { agent: { disallowedTools: ["bash", "WebFetch"] } } });
  expect(turn.outcome?.type).toBe("finished");
  const { toolNames } = mainRequest(bench);
  expect(toolNames).toContain("Read");
  expect(toolNames).not.toContain("Bash");
  expect(existsSync(join(bench.repo, "made"))).toBe(false);
});

test("plan mode refuses what changes something", async () => {
  await using bench = await HarnessBench.open();
  bench.model.push(
    calls(
      ["Write", { file_path: join(bench.repo, "made"), content: "x" }, "write-call"],
      ["Bash", { command: "touch made-too" }, "bash-call"],
    ),
    says("A plan."),
  );
  const turn = await bench.run({ input: { mode: "plan" } });
  expect(turn.outcome?.type).toBe("finished");
  expect(readdirSync(bench.repo)).toEqual([]);
  const denied = turn.chunks.filter((chunk) => chunk.type === "tool-output-denied").map((chunk) => chunk.toolCallId);
  expect(denied.sort()).toEqual(["bash-call", "write-call"]);
});

test("a read-only turn reads, and changes nothing whatever the checkout allows", async () => {
  await using bench = await HarnessBench.open();
  await using endpoint = startMcpEndpoint({ tools: [{ name: "lookup", readOnly: true }, { name: "change" }] });
  mkdirSync(join(bench.repo, ".claude"));
  const permissions = { allow: ["Bash(*)", "Write", "Edit", "mcp__platform__change", "mcp__platform"] };
  await Bun.write(join(bench.repo, ".claude/settings.json"), JSON.stringify({ disableAllHooks: true, permissions }));
  await Bun.write(join(bench.repo, "note.txt"), "to be read");
  const attempts = [
    ["Write", { file_path: join(bench.repo, "made"), content: "x" }],
    ["Bash", { command: "touch made" }],
    ["Edit", { file_path: join(bench.repo, "note.txt"), old_string: "read", new_string: "changed" }],
  ] as const;
  const task = { description: "d", prompt: "p", subagent_type: "general-purpose", run_in_background: false };
  bench.model.push(
    calls(...attempts, ["mcp__platform__change", {}, "change-call"]),
    calls(
      ["Read", { file_path: join(bench.repo, "note.txt") }],
      ["mcp__platform__lookup", { key: "k" }, "lookup-call"],
    ),
    calls(["Agent", task]),
    { ...calls(...attempts), to: "subagent" },
    { ...says("Could not."), to: "subagent" },
    says("I only read."),
  );
  const turn = await bench.run({ input: { toolApprovalLevel: "readonly", mcp: { url: endpoint.url } } });
  expect(turn.texts).toEqual(["I only read."]);
  expect(readdirSync(bench.repo).sort()).toEqual([".claude", "note.txt"]);
  expect(readFileSync(join(bench.repo, "note.txt"), "utf8")).toBe("to be read");
  expect(endpoint.calls).toEqual(["lookup"]);
  const results = toolResultTexts(bench.model.requests.at(-1)?.messages ?? []).join("\n");
  expect(results).toContain("to be read");
  expect(results).toContain("answer of lookup");
  const lookup = turn.message?.parts.find((part) => part.type === "dynamic-tool" && part.toolCallId === "lookup-call");
  expect(lookup).toMatchObject({ toolName: "lookup", state: "output-available" });
}, 20_000);

test("a read-only turn runs no program of the checkout: neither its hooks nor its servers", async () => {
  await using bench = await HarnessBench.open();
  mkdirSync(join(bench.repo, ".claude"));
  const touch = (name: string): string => `touch ${join(bench.repo, name)}`;
  const hook = (name: string) => [{ hooks: [{ type: "command", command: touch(name) }] }];
  const hooks = { SessionStart: hook("by-start"), PreToolUse: hook("by-hook"), PostToolUse: hook("by-hook") };
  await Bun.write(join(bench.repo, ".claude/settings.json"), JSON.stringify({ hooks }));
  const server = { command: "/bin/sh", args: ["-c", `${touch("by-server")}; sleep 10`] };
  await Bun.write(join(bench.repo, ".mcp.json"), JSON.stringify({ mcpServers: { own: server } }));
  bench.model.push(calls(["Read", { file_path: join(bench.repo, ".mcp.json") }]), says("Read."));
  const turn = await bench.run({ input: { toolApprovalLevel: "readonly" } });
  expect(turn.texts).toEqual(["Read."]);
  expect(readdirSync(bench.repo).sort()).toEqual([".claude", ".mcp.json"]);
});

test("a read-only turn runs no program that the checkout's settings name for credentials, nor takes its variables", async () => {
  await using bench = await HarnessBench.open();
  mkdirSync(join(bench.repo, ".claude"));
  mkdirSync(join(bench.repo, "bin"));
  const made = (name: string): string => join(bench.root, `made-by-${name}`);
  await Bun.write(join(bench.repo, "bin/ps"), `#!/bin/sh\ntouch ${made("ps")}\n`, { mode: 0o755 });
  const names = ["apiKeyHelper", "proxyAuthHelper", "awsAuthRefresh", "awsCredentialExport", "gcpAuthRefresh"];
  const programs = Object.fromEntries([...names, "otelHeadersHelper"].map((name) => [name, `touch ${made(name)}`]));
  // With these two it asks for credentials elsewhere, and finds its programs in the checkout.
  const env = { CLAUDE_CODE_USE_BEDROCK: "1", PATH: `${bench.repo}/bin:/usr/bin:/bin` };
  await Bun.write(join(bench.repo, ".claude/settings.json"), JSON.stringify({ ...programs, env }));
  bench.model.push(says("Read."));
  const turn = await bench.run({ input: { toolApprovalLevel: "readonly" } });
  expect(turn.texts).toEqual(["Read."]);
  expect(readdirSync(bench.root).filter((name) => name.startsWith("made-by-"))).toEqual([]);
});

test("a read-only turn asks the image's own program for its credential, and no variable is on a command line", async () => {
  await using bench = await HarnessBench.open();
  mkdirSync(join(bench.repo, ".claude"));
  mkdirSync(bench.configDir);
  const asked = join(bench.root, "asked");
  const helper = { apiKeyHelper: `cat /proc/$PPID/cmdline > ${asked}; echo from-the-image` };
  await Bun.write(join(bench.configDir, "settings.json"), JSON.stringify(helper));
  const checkout = { apiKeyHelper: "echo from-the-checkout", env: { SOME_SECRET: "the checkout's" } };
  await Bun.write(join(bench.repo, ".claude/settings.json"), JSON.stringify(checkout));
  bench.model.push(says("Read."));
  const env = { ANTHROPIC_API_KEY: "", SOME_SECRET: "a-secret-of-the-run" };
  const turn = await bench.run({ input: { toolApprovalLevel: "readonly" }, env });
  expect(turn.texts).toEqual(["Read."]);
  const commandLine = readFileSync(asked, "utf8");
  expect(commandLine).toContain("--settings");
  expect(commandLine).not.toContain("a-secret-of-the-run");
});

test("an empty message fails the turn without starting anything", async () => {
  await using bench = await HarnessBench.open();
  const turn = await bench.run({ input: { userMessage: { parts: [] } } });
  expect(turn.outcome).toEqual({
    type: "failed",
    error: { code: "turn_failed", message: "the user message is empty" },
  });
  expect(bench.model.requests).toEqual([]);
});
