/**
 * A worker whose one job does what its path says, for what a real one does only when something goes wrong:
 *
 *     open <path>   reads the file, which takes for ever on a FIFO that nobody writes to
 *     say <text>    writes the text to stdout, as the answer
 *     exit <code>   ends without an answer
 *     throw <code>  fails with an error of this code
 *     linger        answers, and does not end
 *     much <bytes>  answers with as many
 *     about         answers with what the process can see of itself
 */
import { dlopen } from "bun:ffi";
import { closeSync, constants, openSync, readdirSync, readFileSync, readlinkSync, writeSync } from "node:fs";
import { open } from "node:fs/promises";
import { runOrgfsWorker } from "../../src/orgfs-worker.ts";

const PR_GET_DUMPABLE = 3;

const steps: Readonly<Record<string, (rest: string) => unknown>> = {
  open(path) {
    const fd = openSync(path, constants.O_RDONLY);
    closeSync(fd);
    return null;
  },
  say(text) {
    writeSync(1, `${text}\n`);
    process.exit(0);
  },
  exit(code) {
    writeSync(2, "the last words");
    process.exit(Number(code));
  },
  throw(code) {
    throw Object.assign(new Error(`an error ${code}`), { code });
  },
  linger(path) {
    void open(path, constants.O_RDONLY);
    setInterval(() => {}, 1000);
    process.exit = (() => {}) as unknown as typeof process.exit;
    return "lingering";
  },
  much: (bytes) => "x".repeat(Number(bytes)),
  about: () => ({
    argv: process.argv.slice(2),
    environ: readFileSync("/proc/self/environ", "utf8"),
    cwd: process.cwd(),
    pid: process.pid,
    dumpable: dlopen("libc.so.6", { prctl: { args: ["i32"], returns: "i32" } }).symbols.prctl(PR_GET_DUMPABLE) === 1,
    files: readdirSync("/proc/self/fd").flatMap((fd) => {
      try {
        return [readlinkSync(`/proc/self/fd/${fd}`)];
      } catch {
        return []; // The listing's own.
      }
    }),
  }),
};

runOrgfsWorker({
  "volume-probe": async () => (input) => {
    const [step = "", ...rest] = input.path.split(" ");
    return steps[step]?.(rest.join(" ")) as null;
  },
}).then((code) => process.exit(code));
