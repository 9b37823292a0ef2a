/** Any program as a harness: it reads the turn's document on stdin and prints frames, as port.ts says. */
import type { Harness, HarnessCapabilities } from "../port.ts";

export function commandHarness(argv: readonly string[], capabilities: HarnessCapabilities, configDir: string): Harness {
  return { id: "command", argv, capabilities, configDir, settings: {} };
}
