/** Which start follows which, on sessions that the test makes up. */
import { expect, test } from "bun:test";
import type { McpServerStatus, SDKSystemMessage } from "@anthropic-ai/claude-agent-sdk/core";
import type { StartFailure, TurnSession } from "../../src/harness/claude-code/cli-session.ts";
import { firstChoice, type StartChoice, startTurn } from "../../src/harness/claude-code/start-turn.ts";
import { readTurnRequest } from "../../src/harness/claude-code/turn-request.ts";

const INIT = { type: "system", subtype: "init", session_id: "s" } as SDKSystemMessage;

interface FakeStart {
  readonly ready?: StartFailure;
  readonly init?: StartFailure;
  /** States of the MCP endpoint, one per question; the last one stays. */
  readonly mcp?: readonly McpServerStatus["status"][];
}

/** What happened, in order; starts are taken from the list, the last one again and again. */
function world(starts: readonly FakeStart[], input: Record<string, unknown> = {}, attempts = 3) {
  const story: string[] = [];
  const choices: StartChoice[] = [];
  const turn = readTurnRequest(
    JSON.stringify({
      runId: "r",
      attempt: 1,
      input,
      settings: { startBudgetMs: 1000, mcpPreflightAttempts: attempts, mcpPreflightBaseMs: 100 },
      session: { id: "old", state: "local" },
      paths: { appRoot: "/", cwd: "/", configDir: "/", runDir: "/" },
      shim: null,
      answers: [],
    }),
  );
  const open = (choice: StartChoice): TurnSession => {
    const fake = starts[Math.min(choices.length, starts.length - 1)] ?? {};
    choices.push(choice);
    const name = `#${choices.length}`;
    story.push(`open ${name}`);
    const states = [...(fake.mcp ?? ["connected"])];
    return {
      promptId: "p",
      ready: async () => fake.ready,
      mcpServers: async () => {
        const status = states.length > 1 ? states.shift() : states[0];
        return [{ name: "platform", status: status ?? "connected" }];
      },
      sendPrompt: () => void story.push(`prompt ${name}`),
      init: async () => fake.init ?? INIT,
      next: async () => undefined,
      end: async () => void story.push(`end ${name}`),
    };
  };
  const run = (resumable: string | null = "old") =>
    startTurn(turn, firstChoice(turn, resumable ?? undefined), {
      open,
      sleep: async (ms) => void (ms >= 100 && story.push(`pause ${ms}`)),
      now: () => 1000,
      log: () => undefined,
    });
  return { story, choices, run };
}

const MCP = { mcp: { url: "http://h/mcp" } };

test("a good start gets the prompt and is kept", async () => {
  const { story, choices, run } = world([{}]);
  expect((await run()).init).toBe(INIT);
  expect(story).toEqual(["open #1", "prompt #1"]);
  expect(choices).toEqual([{ resume: "old", sessionLost: false, withoutSkills: false }]);
});

test("a session that cannot be resumed is tried once, and then left out", async () => {
  const { story, choices, run } = world([{ ready: { type: "refused", reason: "No conversation found with…" } }, {}]);
  await run();
  expect(story).toEqual(["open #1", "end #1", "open #2", "prompt #2"]);
  expect(choices[1]).toEqual({ resume: undefined, sessionLost: true, withoutSkills: false });
});

test("a session that is in use elsewhere, said as late as with the prompt", async () => {
  const { choices, run } = world([{ init: { type: "refused", reason: "Session ID old is already in use." } }, {}]);
  await run();
  expect(choices[1]?.resume).toBeUndefined();
});

test("any other refusal is the end", async () => {
  const { story, run } = world([{ ready: { type: "refused", reason: "no disk" } }]);
  await expect(run()).rejects.toThrow("Claude Code did not start: no disk");
  expect(story).toEqual(["open #1", "end #1"]);
});

test("a refusal without a session to leave out is the end", async () => {
  const { choices, run } = world([{ ready: { type: "refused", reason: "No conversation found" } }]);
  await expect(run(null)).rejects.toThrow("No conversation found");
  expect(choices).toEqual([{ resume: undefined, sessionLost: true, withoutSkills: false }]);
});

test("a start that stalls is ended before the one without skills; a second stall is the end", async () => {
  const { story, choices, run } = world([{ ready: { type: "stalled" } }, { init: { type: "stalled" } }]);
  await expect(run()).rejects.toMatchObject({ code: "harness_stalled" });
  expect(story).toEqual(["open #1", "end #1", "open #2", "prompt #2", "end #2"]);
  expect(choices[1]?.withoutSkills).toBe(true);
});

test("a pending endpoint is waited for within the same start", async () => {
  const { story, run } = world([{ mcp: ["pending", "pending", "connected"] }], MCP);
  await run();
  expect(story).toEqual(["open #1", "prompt #1"]);
});

test("a failed endpoint is tried again after pauses that double, each process ended before its pause", async () => {
  const { story, run } = world([{ mcp: ["failed"] }, { mcp: ["needs-auth"] }, {}], MCP);
  await run();
  expect(story).toEqual(["open #1", "end #1", "pause 100", "open #2", "end #2", "pause 200", "open #3", "prompt #3"]);
});

test("an endpoint that stays away ends the turn, named with its state, and no prompt is sent", async () => {
  const { story, run } = world([{ mcp: ["failed"] }], MCP, 2);
  await expect(run()).rejects.toMatchObject({
    code: "mcp_unavailable",
    message: "MCP servers are not available, tried 2 times: platform: failed",
  });
  expect(story).toEqual(["open #1", "end #1", "pause 100", "open #2", "end #2"]);
});

test("an endpoint that stays pending is given up at the budget", async () => {
  const { run } = world([{ mcp: ["pending"] }], MCP, 1);
  await expect(run()).rejects.toThrow("platform: pending");
});

test("credentials that have expired are not tried", async () => {
  const { story, run } = world([{}], { mcp: { url: "http://h/mcp", expiresAt: "1970-01-01T00:00:00.500Z" } });
  await expect(run()).rejects.toMatchObject({ code: "mcp_unavailable" });
  expect(story).toEqual([]);
});
