/** `dispatchd serve`: settings in, a daemon until a signal ends it, an exit code out. */
import { systemClock } from "./clock/system.ts";
import type { Env } from "./config.ts";
import { ConfigError, loadConfig, SECRET_SETTINGS } from "./config.ts";
import { StartError, startDaemon } from "./daemon.ts";
import { messageOf } from "./errors.ts";
import { createJsonLog } from "./log/json-log.ts";
import type { LineStream } from "./log/line-sink.ts";
import { createLineSink } from "./log/line-sink.ts";
import { Redactor } from "./log/redact.ts";
import { eraseFromEnvironment } from "./process/native.ts";
import { randomHex } from "./random-hex.ts";

export interface ServeOptions {
  readonly args: readonly string[];
  readonly env: Env;
  readonly cwd: string;
  readonly version: string;
  readonly selfArgv: readonly string[];
  readonly selfCommand: readonly string[];
  readonly stdout: LineStream;
  readonly stderr: LineStream;
  /** Calls the listener at SIGTERM and SIGINT. */
  readonly onSignal: (listener: (name: string) => void) => void;
  /** Calls the listener for an exception that nobody caught and a rejection that nobody handled. */
  readonly onFault: (listener: (fault: unknown) => void) => void;
}

export const EXIT_USAGE = 2;
const EXIT_START = 1;
const EXIT_SECOND_SIGNAL = 130;
/** EX_SOFTWARE: a fault of the program itself. */
const EXIT_FAULT = 70;

const HELP = `dispatchd serve [--dev]

Runs the daemon. Every setting is an environment variable; the README lists them.

  --dev    needs no setting: loopback, a token made up and printed, state below the temporary folder
`;

/** Resolves with the exit code. */
export async function serve(options: ServeOptions): Promise<number> {
  const say = (stream: LineStream, text: string): void => void stream.write(text, () => {});
  const unknown = options.args.find((arg) => arg !== "--dev" && arg !== "--help" && arg !== "-h");
  if (unknown !== undefined) {
    say(options.stderr, `serve: unknown argument ${unknown}\n\n${HELP}`);
    return EXIT_USAGE;
  }
  if (options.args.some((arg) => arg === "--help" || arg === "-h")) {
    say(options.stdout, HELP);
    return 0;
  }
  try {
    return await run(options);
  } catch (error) {
    if (!(error instanceof ConfigError || error instanceof StartError)) throw error;
    say(options.stderr, `dispatchd: ${messageOf(error)}\n`);
    return error instanceof ConfigError ? EXIT_USAGE : EXIT_START;
  }
}

async function run({
  args,
  env,
  cwd,
  version,
  selfArgv,
  selfCommand,
  stdout,
  onSignal,
  onFault,
}: ServeOptions): Promise<number> {
  const dev = args.includes("--dev");
  const secretFiles = await readSecretFiles(env);
  const config = loadConfig({
    env,
    version,
    cwd,
    readSecretFile: (path) => secretFiles.get(path),
    randomId: () => randomHex(16),
    ...(dev ? { devStateDir: await makeDevFolder() } : {}),
  });
  const redactor = new Redactor();
  const logOf = (write: (line: string) => void) =>
    createJsonLog({ clock: systemClock, redactor, level: config.logLevel, write });
  const sink = createLineSink(stdout, (lines) => {
    let text = "";
    logOf((line) => {
      text += line;
    }).warn("log lines dropped", { lines });
    return text;
  });
  const log = logOf(sink);
  const daemon = await startDaemon({
    ...{ config, clock: systemClock, log, redactor, selfArgv, selfCommand },
    // What was read is not left in /proc for others to read.
    forgetSecrets: () => eraseFromEnvironment(SECRET_SETTINGS),
  });
  if (dev) stdout.write(`token: ${config.token.reveal()}\nurl: ${daemon.url}\nstate: ${config.stateDir}\n`, () => {});

  const { promise: signalled, resolve: signal } = Promise.withResolvers<number>();
  // What failed unseen may have left anything behind: the next start closes it, and says so.
  onFault((fault) => {
    log.error("fault", { reason: messageOf(fault), stack: (fault as Error | undefined)?.stack });
    signal(EXIT_FAULT);
  });
  let signals = 0;
  onSignal((name) => {
    signals++;
    log.info("signal received", { name });
    if (signals > 1) return signal(EXIT_SECOND_SIGNAL);
    daemon.stop().then(
      () => signal(0),
      (error: unknown) => {
        log.error("stop failed", { reason: messageOf(error) });
        signal(EXIT_START);
      },
    );
  });
  return Promise.race([signalled, daemon.failed]);
}

/** What the files hold that `NAME_FILE` variables name; one that cannot be read is not there. */
async function readSecretFiles(env: Env): Promise<ReadonlyMap<string, string>> {
  const contents = new Map<string, string>();
  for (const name of SECRET_SETTINGS) {
    const path = env[`${name}_FILE`];
    if (!path) continue;
    try {
      contents.set(path, await Bun.file(path).text());
    } catch {
      // Told with the other problems of the settings.
    }
  }
  return contents;
}

async function makeDevFolder(): Promise<string> {
  const [{ mkdtempSync }, { tmpdir }] = await Promise.all([import("node:fs"), import("node:os")]);
  return mkdtempSync(`${tmpdir()}/dispatchd-dev-`);
}
