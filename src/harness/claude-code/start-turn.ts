/**
 * From a turn to a Claude Code that works on it. Starts it as often as needed, one process at a time, each ended before
 * the next:
 *
 * - The session cannot be resumed: once more, without it.
 * - It says nothing within the start budget: something that it reads at its start hangs. Once more, without skills; then
 *   the turn ends as `harness_stalled`.
 * - The run's MCP endpoint is not connected: again after a pause that doubles; then `mcp_unavailable`.
 *
 * Whatever is left out is told to the model, in the system prompt of the next start, and to the log.
 */
import type { SDKSystemMessage } from "@anthropic-ai/claude-agent-sdk/core";
import { messageOf } from "../../errors.ts";
import type { StartFailure, TurnSession } from "./cli-session.ts";
import { checkMcpServers, pauseAfter } from "./mcp-preflight.ts";
import { TurnFailure } from "./turn-failure.ts";
import type { TurnRequest } from "./turn-request.ts";

/** An idle Claude Code ends when its stdin closes; one that hangs is not waited for. */
const IDLE_EXIT_MS = 1000;
/** How Claude Code words that a session cannot be resumed: absent, or open elsewhere. */
const SESSION_REFUSED = /No conversation found|already in use|session is (already )?running|held by/i;

export interface StartChoice {
  readonly resume: string | undefined;
  readonly sessionLost: boolean;
  readonly withoutSkills: boolean;
}

export interface StartDeps {
  readonly open: (choice: StartChoice) => TurnSession;
  readonly sleep: (ms: number) => Promise<void>;
  readonly now: () => number;
  readonly log: (line: string) => void;
}

export interface StartedTurn {
  readonly session: TurnSession;
  readonly init: SDKSystemMessage;
}

/** `resumable`: the session's id, if its transcript is there. */
export function firstChoice(turn: TurnRequest, resumable: string | undefined): StartChoice {
  const sessionLost = turn.document.session.id !== undefined && resumable === undefined;
  return { resume: resumable, sessionLost, withoutSkills: false };
}

/** Throws TurnFailure; no process is left then. */
export async function startTurn(turn: TurnRequest, first: StartChoice, deps: StartDeps): Promise<StartedTurn> {
  const { settings } = turn;
  let choice = first;
  for (let mcpAttempt = 1; ; ) {
    refuseExpired(turn, deps.now());
    const session = deps.open(choice);
    const result = await tryStart(turn, session, deps);
    if (result.type === "system") return { session, init: result };
    // The process goes before the next one comes: it must not hold connections, or the session.
    await session.end(result.type === "stalled" ? 0 : IDLE_EXIT_MS);
    if (result.type !== "mcp_unavailable") {
      choice = without(turn, choice, result, deps.log);
      continue;
    }
    if (mcpAttempt >= settings.mcpPreflightAttempts) {
      const tried = mcpAttempt === 1 ? "once" : `${mcpAttempt} times`;
      throw new TurnFailure("mcp_unavailable", `MCP servers are not available, tried ${tried}: ${result.states}`);
    }
    const pauseMs = pauseAfter(mcpAttempt, settings.mcpPreflightBaseMs);
    deps.log(`MCP servers are not available (${result.states}); attempt ${mcpAttempt}, the next in ${pauseMs} ms`);
    await deps.sleep(pauseMs);
    mcpAttempt += 1;
  }
}

type StartResult = SDKSystemMessage | StartFailure | { readonly type: "mcp_unavailable"; readonly states: string };

async function tryStart(turn: TurnRequest, session: TurnSession, deps: StartDeps): Promise<StartResult> {
  const { startBudgetMs } = turn.settings;
  const trouble = await session.ready(startBudgetMs);
  if (trouble) return trouble;
  if (turn.mcp) {
    try {
      const mcp = await checkMcpServers(() => session.mcpServers(), startBudgetMs, deps.sleep);
      if (!mcp.connected) return { type: "mcp_unavailable", states: mcp.states };
    } catch (error) {
      return { type: "refused", reason: messageOf(error) };
    }
  }
  session.sendPrompt();
  return session.init(startBudgetMs);
}

/** What to leave out at the next start. Throws TurnFailure when there is nothing more to leave out. */
function without(
  turn: TurnRequest,
  choice: StartChoice,
  trouble: StartFailure,
  log: (line: string) => void,
): StartChoice {
  const budgetMs = turn.settings.startBudgetMs;
  if (trouble.type === "stalled") {
    if (choice.withoutSkills) {
      throw new TurnFailure(
        "harness_stalled",
        `Claude Code did not start within ${budgetMs} ms, with skills and without: something that it reads at start hangs`,
      );
    }
    log(`Claude Code did not start within ${budgetMs} ms; starting once more without skills`);
    return { ...choice, withoutSkills: true };
  }
  if (choice.resume !== undefined && SESSION_REFUSED.test(trouble.reason)) {
    if (turn.document.answers.length > 0) {
      throw new TurnFailure(
        "stale",
        `the session in which the questions were asked cannot be resumed: ${trouble.reason}`,
      );
    }
    log(`session ${choice.resume} cannot be resumed (${trouble.reason}); beginning a new one`);
    return { ...choice, resume: undefined, sessionLost: true };
  }
  throw new TurnFailure("turn_failed", `Claude Code did not start: ${trouble.reason}`);
}

function refuseExpired(turn: TurnRequest, nowMs: number): void {
  const expiresAtMs = turn.mcp?.expiresAtMs;
  if (expiresAtMs === undefined || expiresAtMs > nowMs) return;
  const at = new Date(expiresAtMs).toISOString();
  throw new TurnFailure("mcp_unavailable", `the credentials of the run's MCP endpoint expired at ${at}`);
}
