/** The commands as a process of their own, wired as the binary's main wires them. */
import { runCli } from "../../src/cli/index.ts";
import { createProcessIo } from "../../src/cli/process-io.ts";

runCli(process.argv.slice(2), createProcessIo({ env: process.env, version: "1.2.3", process })).then(
  (code) => process.exit(code),
  (error: unknown) => {
    console.error(error);
    process.exit(70);
  },
);
