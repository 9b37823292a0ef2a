/** The registry's row of the built-in harness. Light: the daemon loads it before it listens. */
import type { Config } from "../../config.ts";
import type { Harness } from "../port.ts";
import { responseSchemaOf } from "./own-questions.ts";

/** As much as Claude Code allows. An answer of 256 KiB of which more than a sixth has to be escaped is longer. */
const MAX_RESULT_CHARS = 500_000;

/** `selfArgv` starts this program; the harness is one of its subcommands. */
export function claudeCodeHarness(config: Config["harness"], selfArgv: readonly string[]): Harness {
  return {
    id: "claude-code",
    argv: [...selfArgv, "harness", "claude-code"],
    capabilities: {
      resume: true,
      clientTools: "shim",
      sessionFiles: { main: "projects/*/<id>.jsonl", side: "projects/*/<id>" },
    },
    configDir: config.claudeConfigDir,
    // What reads transcripts is loaded when the first suspended run is resumed.
    findParked: async (session, calls) => (await import("./find-parked.ts")).findParked(session, calls),
    responseSchemaOf,
    shimDialect: {
      toolCallIdMeta: "claudecode/toolUseId",
      endTurnMeta: { "claude/endTurn": true },
      // A longer result is put into a file otherwise, from 50,000 characters on, and the model reads where.
      toolMeta: { "anthropic/maxResultSizeChars": MAX_RESULT_CHARS },
    },
    settings: {
      claudeCodePath: config.claudeCodePath,
      model: config.claudeCodeModel,
      startBudgetMs: config.startBudgetMs,
      mcpPreflightAttempts: config.mcpPreflightAttempts,
      mcpPreflightBaseMs: config.mcpPreflightBaseMs,
    },
  };
}
