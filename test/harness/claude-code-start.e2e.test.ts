/** Getting Claude Code to work on a turn: where it is, what hangs, what is not there yet. */
import { expect, test } from "bun:test";
import { chmodSync, readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { startMcpEndpoint } from "../support/claude-code-harness/mcp-endpoint.ts";
import { HarnessBench } from "../support/claude-code-harness/run-turn.ts";
import { calls, says } from "../support/scripted-model/index.ts";

const CLAUDE = resolve(
  import.meta.dir,
  `../../node_modules/@anthropic-ai/claude-agent-sdk-${process.platform}-${process.arch}/claude`,
);

/** A program in the place of Claude Code; `$CLAUDE` is the real one. */
async function standIn(bench: HarnessBench, script: string): Promise<string> {
  const path = join(bench.root, "claude-stand-in");
  await Bun.write(path, `#!/bin/sh\nCLAUDE=${CLAUDE}\n${script}\n`);
  chmodSync(path, 0o755);
  return path;
}

/** Command lines of all processes below a process. */
function commandLinesBelow(pid: number): string[] {
  const parents = new Map<number, number>();
  for (const entry of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const stat = readFileSync(`/proc/${entry}/stat`, "utf8");
      parents.set(Number(entry), Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]));
    } catch {
      // It ended while we looked.
    }
  }
  const below = (id: number): boolean => {
    const parent = parents.get(id);
    return parent !== undefined && (parent === pid || below(parent));
  };
  return [...parents.keys()].filter(below).flatMap((id) => {
    try {
      return [readFileSync(`/proc/${id}/cmdline`, "utf8")];
    } catch {
      return [];
    }
  });
}

test("a start that hangs is ended and tried once more without skills, and the model is told", async () => {
  await using bench = await HarnessBench.open();
  const skill = "---\nname: rocketry\ndescription: How rockets are built here.\n---\nWith care.\n";
  await Bun.write(join(bench.configDir, "skills/rocketry/SKILL.md"), skill);
  bench.model.push(says("With skills."), says("Without skills."));
  expect((await bench.run()).texts).toEqual(["With skills."]);
  const claudeCodePath = await standIn(
    bench,
    'case "$*" in *strictPluginOnlyCustomization*) exec "$CLAUDE" "$@";; esac\nexec sleep 70001',
  );
  const turn = await bench.run({ settings: { claudeCodePath, startBudgetMs: 4000 } });
  expect(turn.outcome?.type).toBe("finished");
  expect(turn.texts).toEqual(["Without skills."]);
  expect(turn.stderr).toContain("did not start within 4000 ms; starting once more without skills");
  const [before, after] = bench.model.requests.filter((request) => request.kind === "main");
  expect(JSON.stringify(before?.messages)).toContain("How rockets are built here.");
  expect(JSON.stringify(after?.messages)).not.toContain("How rockets are built here.");
  expect(before?.system).not.toContain("Skills could not be loaded");
  expect(after?.system).toContain("Skills could not be loaded");
}, 20_000);

test("a second start that hangs ends the turn as stalled", async () => {
  await using bench = await HarnessBench.open();
  const claudeCodePath = await standIn(bench, "exec sleep 70002");
  const turn = await bench.run({ settings: { claudeCodePath, startBudgetMs: 300 } });
  expect(turn.outcome).toMatchObject({ type: "failed", error: { code: "harness_stalled" } });
  expect(turn.chunks).toEqual([]);
});

test("a checkout's hook that takes longer than the budget does not count as a start that hangs", async () => {
  await using bench = await HarnessBench.open();
  const hooks = { SessionStart: [{ hooks: [{ type: "command", command: "sleep 5; echo the hook ran" }] }] };
  await Bun.write(join(bench.repo, ".claude/settings.json"), JSON.stringify({ hooks }));
  bench.model.push(says("After the hook."));
  const turn = await bench.run({ settings: { startBudgetMs: 3500 } });
  expect(turn.texts).toEqual(["After the hook."]);
  expect(turn.stderr).toBe("");
  expect(JSON.stringify(bench.model.requests[0]?.messages)).toContain("the hook ran");
}, 20_000);

test("a Claude Code that cannot start says why", async () => {
  await using bench = await HarnessBench.open();
  const claudeCodePath = await standIn(bench, 'echo "no disk left for scripted-credential" >&2; exit 3');
  const turn = await bench.run({ settings: { claudeCodePath } });
  expect(turn.outcome).toMatchObject({
    type: "failed",
    error: { code: "turn_failed", message: "Claude Code did not start: no disk left for [secret]" },
  });
});

test("a path that names no program fails the turn plainly", async () => {
  await using bench = await HarnessBench.open();
  const turn = await bench.run({ settings: { claudeCodePath: join(bench.root, "nothing") } });
  expect(turn.outcome).toMatchObject({
    type: "failed",
    error: { code: "turn_failed", message: "CLAUDE_CODE_PATH does not name an executable file" },
  });
});

test("Claude Code is found with an empty PATH", async () => {
  await using bench = await HarnessBench.open();
  bench.model.push(says("Found."));
  expect((await bench.run({ env: { PATH: "" } })).texts).toEqual(["Found."]);
});

test("the run's MCP endpoint is waited for, and its tools and headers work", async () => {
  await using bench = await HarnessBench.open();
  await using endpoint = startMcpEndpoint({ failures: 2, slowMs: 400 });
  bench.model.push(calls(["mcp__platform__lookup", { key: "k" }, "lookup-call"]), says("Looked up."));
  const turn = await bench.run({
    input: { mcp: { url: endpoint.url, headers: { authorization: "Bearer run-secret-42" } } },
    settings: { mcpPreflightAttempts: 6, mcpPreflightBaseMs: 50 },
  });
  expect(turn.texts).toEqual(["Looked up."]);
  expect(endpoint.calls).toEqual(["lookup"]);
  expect(endpoint.attempts()).toBeGreaterThan(2);
  expect(turn.stderr).toContain("platform: failed");
  expect(endpoint.headers.every((headers) => headers.get("authorization") === "Bearer run-secret-42")).toBe(true);
  expect(turn.chunks.find((chunk) => chunk.type === "tool-input-available")).toMatchObject({ toolName: "lookup" });
}, 20_000);

test("headers of the endpoint are on no command line", async () => {
  await using bench = await HarnessBench.open();
  await using endpoint = startMcpEndpoint();
  bench.model.push({ ...says("Slowly said."), betweenDeltasMs: 400 });
  const turn = bench.start({ input: { mcp: { url: endpoint.url, headers: { "x-key": "run-secret-43" } } } });
  await turn.seen((line) => line.chunks?.some((chunk) => chunk.type === "text-delta") === true);
  const lines = commandLinesBelow(turn.child.pid ?? 0);
  expect(lines.some((line) => line.includes("claude"))).toBe(true);
  expect(lines.filter((line) => line.includes("run-secret-43"))).toEqual([]);
  expect((await turn.finished).texts).toEqual(["Slowly said."]);
});

test("an endpoint that is never there ends the turn before the model is asked", async () => {
  await using bench = await HarnessBench.open();
  const turn = await bench.run({
    input: { mcp: { url: "http://127.0.0.1:1/mcp", headers: { authorization: "Bearer run-secret-44" } } },
    settings: { mcpPreflightAttempts: 2, mcpPreflightBaseMs: 20 },
  });
  expect(turn.outcome).toEqual({
    type: "failed",
    error: { code: "mcp_unavailable", message: "MCP servers are not available, tried 2 times: platform: failed" },
  });
  expect(bench.model.requests.filter((request) => request.kind === "main")).toEqual([]);
  expect(turn.stderr).not.toContain("run-secret-44");
  expect(turn.exitCode).toBe(1);
});

test("expired credentials of the endpoint are not tried", async () => {
  await using bench = await HarnessBench.open();
  const turn = await bench.run({
    input: { mcp: { url: "http://127.0.0.1:1/mcp", expiresAt: "2020-01-01T00:00:00Z" } },
  });
  expect(turn.outcome).toMatchObject({
    error: { code: "mcp_unavailable", message: expect.stringContaining("expired at 2020-01-01T00:00:00.000Z") },
  });
});

test("the shim's tools are the run's own: not executed by a provider, their prefix taken off", async () => {
  await using bench = await HarnessBench.open();
  const server = join(import.meta.dir, "../support/claude-code-harness/stdio-tools.ts");
  bench.model.push(calls(["mcp__tools__ask_someone", { question: "?" }, "shim-call"]), says("Asked."));
  const turn = await bench.run({
    input: { mode: "plan" },
    shim: { command: process.execPath, args: [server], toolTimeoutMs: 60_000 },
  });
  expect(turn.texts).toEqual(["Asked."]);
  const part = turn.message?.parts.find((candidate) => candidate.type === "dynamic-tool");
  expect(part).toMatchObject({ toolName: "ask_someone", state: "output-available", output: "somebody answered" });
  expect(part && "providerExecuted" in part ? part.providerExecuted : undefined).toBeUndefined();
});
