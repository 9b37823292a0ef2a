/**
 * From the arguments to a subcommand. The only reader of `process.env` and the only caller of `process.exit`. What a
 * subcommand needs is loaded when it is chosen: this binary starts several processes per turn. What the daemon needs to
 * listen is at hand: loading it in parts would take 0.6 ms more.
 */
import { version } from "../package.json" with { type: "json" };
import { SECRET_SETTINGS } from "./config.ts";
import { standardStream } from "./log/standard-stream.ts";
import { forgetTyped, setParentDeathSignal, setStdoutAside } from "./process/native.ts";
import { serve } from "./serve.ts";

const EXIT_USAGE = 2;
/** EX_SOFTWARE: a fault of the program itself. */
const EXIT_INTERNAL = 70;

const SIGKILL = 9;

const STARTED_OFTEN = new Set(["serve", "harness", "orgfs-worker"]);

/**
 * In a compiled binary the script is within it; elsewhere it has to be named. The binary is named by what the kernel
 * runs: its path may lead to another file by now, or to none, when it was replaced under a running daemon.
 */
function selfArgv(): string[] {
  return Bun.main.startsWith("/$bunfs/") ? ["/proc/self/exe"] : [process.execPath, Bun.main];
}

/** As `selfArgv`, for processes that others start: to them the kernel's name for this program would be their own. */
function selfCommand(): string[] {
  return Bun.main.startsWith("/$bunfs/") ? [process.execPath] : [process.execPath, Bun.main];
}

async function runServe(args: readonly string[]): Promise<number> {
  const env = { ...process.env };
  // Read once, and then gone: neither a library nor a child finds them.
  for (const name of SECRET_SETTINGS) delete process.env[name];
  return serve({
    args,
    env,
    cwd: process.cwd(),
    version,
    selfArgv: selfArgv(),
    selfCommand: selfCommand(),
    stdout: standardStream(Bun.stdout),
    stderr: standardStream(Bun.stderr),
    onSignal: (listener) => {
      for (const name of ["SIGTERM", "SIGINT"] as const) process.on(name, () => listener(name));
    },
    onFault: (listener) => {
      for (const name of ["uncaughtException", "unhandledRejection"] as const) process.on(name, listener);
    },
  });
}

/** To whoever starts by hand what the daemon starts: the exit code says whether they asked for it. */
function explain(args: readonly (string | undefined)[], text: string): number {
  const help = args.some((arg) => arg === "--help" || arg === "-h");
  (help ? process.stdout : process.stderr).write(text);
  return help ? 0 : EXIT_USAGE;
}

async function runHarness([name, ...rest]: readonly string[]): Promise<number> {
  if (name !== "claude-code" || rest.length > 0) {
    const text = "dispatchd harness claude-code\n\nPerforms one turn: a turn document on stdin, frames on stdout.\n";
    return explain([name, ...rest], text);
  }
  const { runHarnessProgram } = await import("./harness/claude-code/program.ts");
  // A turn whose daemon is gone is nobody's: no further call of the model, and of no tool.
  setParentDeathSignal(SIGKILL);
  return runHarnessProgram({
    stdin: process.stdin,
    stdout: process.stdout,
    stderr: process.stderr,
    env: process.env,
    onSignal: (listener) => {
      for (const signal of ["SIGTERM", "SIGINT"] as const) process.on(signal, listener);
    },
  });
}

async function runMcp(args: readonly string[]): Promise<number> {
  const [{ runShim }, { Writable }] = await Promise.all([import("./tools/shim/program.ts"), import("node:stream")]);
  const protocol = standardStream(Bun.file(setStdoutAside()));
  const stdout = new Writable({
    decodeStrings: false,
    write: (text: string, _encoding, done) => protocol.write(text, done),
  });
  protocol.on("error", (error) => stdout.destroy(error));
  const stderr = standardStream(Bun.stderr);
  return runShim({
    args,
    version,
    stdin: process.stdin,
    stdout,
    writeError: (line) => stderr.write(line, () => {}),
    parent: () => process.ppid,
    onSignal: (listener) => {
      for (const name of ["SIGTERM", "SIGINT", "SIGHUP"] as const) process.on(name, listener);
    },
    onFault: (listener) => {
      for (const name of ["uncaughtException", "unhandledRejection"] as const) process.on(name, listener);
    },
  });
}

async function runOrgfs(args: readonly string[]): Promise<number> {
  const about = "Carries out one job on the org volume, as the daemon starts it: an order on stdin.";
  if (args.length > 0) return explain(args, `dispatchd orgfs-worker\n\n${about}\n`);
  return (await import("./orgfs-worker.ts")).runOrgfsWorker();
}

async function runScan(args: readonly string[]): Promise<number> {
  const { scanMarkers } = await import("./process/markers.ts");
  scanMarkers(args);
  return 0;
}

async function main(argv: readonly string[]): Promise<number> {
  const [command, ...args] = argv;
  // Straight to what starts most often and has to be quick; a question for the version is everywhere the same.
  if (STARTED_OFTEN.has(command ?? "serve") && args.includes("--version")) {
    process.stdout.write(`${version}\n`);
    return 0;
  }
  if (command === undefined || command === "--dev") return runServe(argv);
  if (command === "serve") return runServe(args);
  if (command === "harness") return runHarness(args);
  if (command === "mcp") return runMcp(args);
  if (command === "proc-scan") return runScan(args);
  if (command === "orgfs-worker") return runOrgfs(args);
  const [{ CLI_COMMANDS, runCli }, { createProcessIo }] = await Promise.all([
    import("./cli/index.ts"),
    import("./cli/process-io.ts"),
  ]);
  const row = (summary: string, run: (rest: readonly string[]) => Promise<number>) => ({
    summary,
    load: async () => ({ main: run }),
  });
  const table = {
    serve: row("run the daemon", runServe),
    ...CLI_COMMANDS,
    harness: row("perform one turn, as the daemon starts it", runHarness),
    mcp: row("serve a run's tools to its agent, as the harness starts it", runMcp),
  };
  return runCli(argv, createProcessIo({ env: process.env, version, process, forgetTyped }), table, "serve");
}

main(process.argv.slice(2)).then(
  (code) => process.exit(code),
  (error: unknown) => {
    console.error(`dispatchd: ${error instanceof Error ? error.stack : String(error)}`);
    process.exit(EXIT_INTERNAL);
  },
);
