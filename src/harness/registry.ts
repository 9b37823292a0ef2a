/** The harnesses of this pod: the one place where they are registered. */
import { type Config, ConfigError, NOT_BELOW_ORG } from "../config.ts";
import { followLinks } from "../follow-links.ts";
import { claudeCodeHarness } from "./claude-code/row.ts";
import { commandHarness } from "./command/row.ts";
import type { Harness } from "./port.ts";

export interface HarnessRegistry {
  /** The harness of this name, the default one without a name. Undefined: there is none. */
  find(id: string | undefined): Harness | undefined;
}

/**
 * The settings, with the harnesses' configuration folder by its real path. Links on the way to it are followed here, and
 * nowhere after: sessions are read and placed, and skills are linked, without following any. So before a run begins, when no
 * agent of this daemon's has its hands on them yet; what one of an earlier daemon's may have laid is left as it is. Throws
 * ConfigError when it leads below `orgRoot`, as when it is said to be there.
 */
export async function settleConfigFolder(
  config: Config,
  orgRoot: string,
): Promise<{ readonly config: Config; readonly warning?: string }> {
  const { harness, agentUser: agent } = config;
  const { type, path } = await followLinks(harness.claudeConfigDir, { agent, closed: orgRoot });
  if (type === "closed") throw new ConfigError([`CLAUDE_CONFIG_DIR ${NOT_BELOW_ORG}`]);
  const settled = { ...config, harness: { ...harness, claudeConfigDir: path } };
  if (type !== "agents-link") return { config: settled };
  return {
    config: settled,
    warning: "CLAUDE_CONFIG_DIR leads over a link that AGENT_USER can have made, and is not followed",
  };
}

/** `selfArgv` starts this very binary. */
export function createHarnessRegistry(config: Config, selfArgv: readonly string[]): HarnessRegistry {
  const { runner } = config.harness;
  if (runner) {
    // Whoever sets a program of their own means it for every run, whatever a dispatch names.
    const only = commandHarness(runner.argv, runner.capabilities, config.harness.claudeConfigDir);
    return { find: () => only };
  }
  const builtIn = claudeCodeHarness(config.harness, selfArgv);
  return { find: (id) => (id === undefined || id === builtIn.id ? builtIn : undefined) };
}
