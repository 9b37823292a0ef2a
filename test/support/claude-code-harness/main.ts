/** The harness alone, as `dispatchd harness claude-code` starts it. */
import { runHarnessProgram } from "../../../src/harness/claude-code/program.ts";

process.exit(
  await runHarnessProgram({
    stdin: process.stdin,
    stdout: process.stdout,
    stderr: process.stderr,
    env: process.env,
    onSignal: (listener) => void process.once("SIGTERM", listener),
  }),
);
