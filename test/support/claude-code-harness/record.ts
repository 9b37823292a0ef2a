/**
 * Records what Claude Code says in a few scripted turns, for the golden test of the translation:
 *
 *     bun test/support/claude-code-harness/record.ts
 *
 * writes `recorded/<name>.jsonl`. What differs from run to run and means nothing to the translation is left out.
 */
import { join } from "node:path";
import { query, type SDKMessage, type SDKUserMessage } from "@anthropic-ai/claude-agent-sdk/core";
import { findClaudeCode } from "../../../src/harness/claude-code/find-claude-code.ts";
import { calls, type ScriptedTurn, says, thinks } from "../scripted-model/index.ts";
import { HarnessBench } from "./run-turn.ts";

const NOISE = new Set([
  ...["uuid", "session_id", "timestamp", "usage", "modelUsage", "model_usage_since_last_result", "subagent_stats"],
  ...["begun_message_ids", "output_file", "outputFile", "agentId", "agent_id", "run_id", "task_id", "api_message_id"],
  ...["ttft_ms", "request_id", "end_time", "thinking_duration_ms", "totalDurationMs", "origin"],
]);

const task = { description: "look", prompt: "Look around.", subagent_type: "Explore" };
const SCRIPTS: Readonly<Record<string, readonly ScriptedTurn[]>> = {
  tools: [
    calls(["Bash", { command: "echo one" }, "call-1"], ["Read", { file_path: "/not/there" }, "call-2"]),
    says("Done."),
  ],
  reasoning: [thinks("I should think first.", "I thought.")],
  "cut-stream": [{ ...says("This is cut in the middle."), cutAfterDeltas: 2 }, says("This is whole.")],
  "failed-stream": [{ ...says("This fails on the way."), errorAfterDeltas: 2 }, says("This came without a stream.")],
  "cut-call": [
    {
      blocks: [
        { type: "text", text: "Look:" },
        { type: "tool_use", name: "Bash", input: { command: `echo ${"x".repeat(80)}` }, id: "call-1" },
      ],
      cutAfterDeltas: 2,
    },
    says("I go on."),
  ],
  subagent: [
    calls(["Agent", { ...task, run_in_background: false }, "call-1"]),
    { ...calls(["Bash", { command: "echo inside" }, "inner-1"]), to: "subagent" },
    { ...says("I found two files."), to: "subagent" },
    says("Two files."),
  ],
  "background-subagent": [
    calls(["Agent", { ...task, run_in_background: true }, "call-1"]),
    says("It works."),
    { ...says("I found two files.", { delayMs: 700 }), to: "subagent" },
    says("Two files."),
  ],
};

for (const [name, script] of Object.entries(SCRIPTS)) {
  await using bench = await HarnessBench.open({ script });
  const claudeCode = findClaudeCode({
    configured: null,
    execPath: process.execPath,
    moduleDir: import.meta.dir,
    path: undefined,
    home: undefined,
  });
  const stop = Promise.withResolvers<void>();
  const session = query({
    prompt: prompt(stop.promise),
    options: {
      pathToClaudeCodeExecutable: claudeCode,
      cwd: bench.repo,
      env: { ...bench.environment(), CLAUDE_CONFIG_DIR: bench.configDir, IS_SANDBOX: "1", DISABLE_TELEMETRY: "1" },
      includePartialMessages: true,
      forwardSubagentText: true,
      permissionMode: "bypassPermissions",
      allowDangerouslySkipPermissions: true,
    },
  });
  const awaited = name === "background-subagent" ? 2 : 1;
  const lines: string[] = [];
  let results = 0;
  for await (const message of session) {
    lines.push(JSON.stringify(essence(message), (key, value) => (NOISE.has(key) ? undefined : value)));
    if (message.type === "result" && ++results === awaited) break;
  }
  stop.resolve();
  const text = lines
    .join("\n")
    .replaceAll(bench.root, "/pod")
    .replaceAll(/msg_[0-9a-f]{24}/g, numbered());
  await Bun.write(join(import.meta.dir, "recorded", `${name}.jsonl`), `${text}\n`);
}

async function* prompt(stop: Promise<void>): AsyncGenerator<SDKUserMessage> {
  yield { type: "user", message: { role: "user", content: "Go." }, parent_tool_use_id: null };
  await stop;
}

/** `init` lists everything that is installed; the result of a subagent's call is wrapped in words for the model. */
function essence(message: SDKMessage): object {
  if (message.type === "system" && message.subtype === "init") return { type: "system", subtype: "init" };
  if (message.type !== "user" || message.parent_tool_use_id !== null) return message;
  const status = (message.tool_use_result as { status?: unknown } | undefined)?.status;
  const { content } = message.message;
  if (status === undefined || !Array.isArray(content)) return message;
  const bare = content.map((block) => ({ ...block, content: [{ type: "text", text: "words for the model" }] }));
  return { ...message, message: { ...message.message, content: bare } };
}

function numbered(): (id: string) => string {
  const known: string[] = [];
  return (id) => {
    if (!known.includes(id)) known.push(id);
    return `msg_${known.indexOf(id) + 1}`;
  };
}
