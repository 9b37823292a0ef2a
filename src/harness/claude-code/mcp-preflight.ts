/**
 * Is the run's MCP endpoint there? Asked of Claude Code before it gets the prompt: a turn without its tools is worse
 * than a turn that starts late. `pending` means that nobody knows yet, and is asked again.
 */
import type { McpServerStatus } from "@anthropic-ai/claude-agent-sdk/core";
import { ENDPOINT_SERVER } from "./tool-names.ts";

const POLL_MS = 50;
/** Longest pause between two attempts. */
const MAX_PAUSE_MS = 128_000;

export type PreflightState = { readonly connected: true } | { readonly connected: false; readonly states: string };

/** Waits for a verdict, at most `budgetMs`. `states` names the servers, each with its state. */
export async function checkMcpServers(
  servers: () => Promise<McpServerStatus[]>,
  budgetMs: number,
  sleep: (ms: number) => Promise<void>,
): Promise<PreflightState> {
  for (let waitedMs = 0; ; waitedMs += POLL_MS) {
    const ours = (await servers()).filter((server) => server.name === ENDPOINT_SERVER);
    if (ours.length > 0 && ours.every((server) => server.status === "connected")) return { connected: true };
    const undecided = ours.some((server) => server.status === "pending");
    if (!undecided || waitedMs >= budgetMs) {
      // Only name and state: a server's own error may repeat the headers it was called with.
      const states = ours.map((server) => `${server.name}: ${server.status}`).join(", ");
      return { connected: false, states: states || `${ENDPOINT_SERVER}: unknown` };
    }
    await sleep(POLL_MS);
  }
}

/** The pause after failed attempt number `attempt`, counted from 1. */
export function pauseAfter(attempt: number, baseMs: number): number {
  return Math.min(baseMs * 2 ** (attempt - 1), MAX_PAUSE_MS);
}
