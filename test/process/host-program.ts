/**
 * A daemon that only has runs: `host-program.ts <nonce> <shell script>` starts one, prints what the script prints, and
 * lives until it is killed.
 */
import { systemClock } from "../../src/clock/system.ts";
import { createProcesses } from "../../src/process/run-processes.ts";
import { quietLog, SCANNER_ARGV } from "./real-processes.ts";

const [nonce = "", script = ""] = process.argv.slice(2);
const processes = createProcesses({ clock: systemClock, log: quietLog, nonce, scannerArgv: SCANNER_ARGV });
const run = processes.spawn({
  argv: ["/bin/sh", "-c", script],
  cwd: "/",
  env: { PATH: "/usr/bin:/bin" },
  stdin: "",
  runName: "hosted",
});
for await (const chunk of run.stdout) process.stdout.write(chunk);
setInterval(() => {}, 1000);
