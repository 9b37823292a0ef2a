/**
 * The guard of a read-only turn. The built-in tools that change something are not offered at all; what is left to
 * decide are the tools of MCP servers, whose servers say of each whether it only reads. Runs before every rule, so that
 * nothing a checkout's settings allow gets past it.
 */
import type { HookCallbackMatcher, HookJSONOutput, McpServerStatus } from "@anthropic-ai/claude-agent-sdk/core";
import { isOwnQuestion, READ_ONLY_TOOLS } from "./tool-names.ts";

const READS: ReadonlySet<string> = new Set(READ_ONLY_TOOLS);

export function readOnlyHook(servers: () => Promise<readonly McpServerStatus[]>): HookCallbackMatcher {
  return {
    hooks: [
      async (input): Promise<HookJSONOutput> => {
        if (input.hook_event_name !== "PreToolUse") return {};
        const name = input.tool_name;
        if (READS.has(name) || name === "Task" || isOwnQuestion(name)) return {};
        if (name.startsWith("mcp__") && onlyReads(name, await servers())) return allow();
        return deny(`${name} was refused: this turn may only read, and the tool does not say that it only reads.`);
      },
    ],
  };
}

function onlyReads(name: string, servers: readonly McpServerStatus[]): boolean {
  return servers.some((server) =>
    (server.tools ?? []).some(
      (tool) =>
        name === `mcp__${nameInRules(server.name)}__${nameInRules(tool.name)}` && tool.annotations?.readOnly === true,
    ),
  );
}

/** Names of servers and tools as Claude Code writes them into the name of a call. */
function nameInRules(name: string): string {
  return name.replaceAll(/[^a-zA-Z0-9_-]/g, "_");
}

function allow(): HookJSONOutput {
  return { hookSpecificOutput: { hookEventName: "PreToolUse", permissionDecision: "allow" } };
}

function deny(reason: string): HookJSONOutput {
  return {
    hookSpecificOutput: { hookEventName: "PreToolUse", permissionDecision: "deny", permissionDecisionReason: reason },
  };
}
