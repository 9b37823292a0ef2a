/** The harnesses of this pod: the one place where they are registered. */
import type { Config } from "../config.ts";
import { claudeCodeHarness } from "./claude-code/row.ts";
import { commandHarness } from "./command/row.ts";
import type { Harness } from "./port.ts";

export interface HarnessRegistry {
  /** The harness of this name, the default one without a name. Undefined: there is none. */
  find(id: string | undefined): Harness | undefined;
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
