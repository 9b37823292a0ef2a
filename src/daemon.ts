/**
 * `serve`, put together: listens, then builds the parts (build-parts.ts) and closes what an earlier daemon on the state
 * folder left.
 *
 * Nothing is loaded and nothing slow is done before it listens that listening does not need; what needs it waits for
 * it. /health waits for nothing.
 */
import type { Parts } from "./build-parts.ts";
import type { Clock } from "./clock/port.ts";
import { type Config, ConfigError } from "./config.ts";
import { errnoOf, messageOf } from "./errors.ts";
import { TokenAuth } from "./http/auth.ts";
import { startServer } from "./http/server.ts";
import type { Log } from "./log/port.ts";
import type { Redactor } from "./log/redact.ts";
import { isThere, lockFile, makeFolder, makeNonDumpable } from "./process/native.ts";
import { randomHex } from "./random-hex.ts";

export interface DaemonOptions {
  readonly config: Config;
  readonly clock: Clock;
  readonly log: Log;
  readonly redactor: Redactor;
  /** Starts this very binary. */
  readonly selfArgv: readonly string[];
  /** The same, for processes that are not started by the daemon. */
  readonly selfCommand: readonly string[];
  /** Called once, before any other process is started: the settings have been read. */
  readonly forgetSecrets: () => void;
}

export interface Daemon {
  readonly url: string;
  /** Ends all runs and stops listening; resolves within about 18 s, 28 s with an org volume. */
  stop(): Promise<void>;
  /** Rejects when the daemon cannot go on: what an earlier one left could not be closed, or a setting leads astray. */
  readonly failed: Promise<never>;
}

/** Why there is no daemon, for the operator: a state folder in use, a port in use. */
export class StartError extends Error {}

/** From SIGTERM until all runs have ended: a kill ladder of 5 s, its sweep, and the last frames. */
const STOP_RUNS_MS = 15_000;
/** The same with sessions to save: the ladder, and 12 s for the saves. */
const STOP_AND_SAVE_MS = 18_000;
/** To be passed through by the agent, not listed. */
const STATE_DIR_MODE = 0o711;
const LAST_BYTES_MS = 2000;
const LAST_BYTES_LOOK_MS = 10;
/** For the end of a recovery that the stop of the runs has waited for already: a file that hangs has no end. */
const RECOVERY_END_MS = 1000;
/** From listening to loading what is heavy. Who waits for the daemon asks again and again, and is answered before. */
const LOAD_AFTER_MS = 25;

/** Resolves when it listens. Rejects with a `StartError` when there can be no daemon. */
export async function startDaemon(options: DaemonOptions): Promise<Daemon> {
  const { config, clock, log, redactor } = options;
  makeNonDumpable();
  if (config.agentUser && process.getuid?.() !== 0) throw new StartError("AGENT_USER needs a daemon that is root");
  await claimState(config);
  const auth = new TokenAuth(config.token, clock);
  const isolation = config.agentUser ? "user" : "none";
  const { version, bootId, appRoot } = config;
  let stopping = false;
  let parts: Parts | undefined;
  const { promise: built, resolve: build } = Promise.withResolvers<Parts>();
  const server = orRefuse(`cannot listen on ${config.host} port ${config.port}`, () =>
    startServer({
      config,
      log,
      health: {
        auth,
        bootId,
        version,
        isolation,
        draining: () => stopping,
        liveRuns: () => parts?.dispatcher.registry.liveCount ?? 0,
        org: () => parts?.org.state() ?? (config.org.statusPath === null ? "none" : { home: "unmounted", stuck: 0 }),
      },
      routes: built.then(({ routes }) => routes),
      metrics: () => parts?.metrics,
    }),
  );
  const url = `http://${addressOf(config.host)}:${server.port}`;

  const begin = async (): Promise<void> => {
    await clock.sleep(0);
    options.forgetSecrets();
    redactor.hide([config.token.reveal()]);
    log.info("listening", { url, port: server.port, version, bootId, appRoot, isolation });
    for (const warning of config.warnings) log.warn("configuration", { warning });
    await clock.sleep(LOAD_AFTER_MS);
    const { addNonce, layOutStateDir } = await import("./dispatch/state-dir.ts");
    const state = layOutStateDir(config.stateDir);
    const nonce = randomHex(16);
    const earlierNonces = addNonce(state, nonce);
    const { buildParts } = await import("./build-parts.ts");
    parts = await buildParts({ ...options, state, nonce, earlierNonces, auth, server });
    build(parts);
    await parts.dispatcher.begin(parts.metrics);
  };
  const begun = begin();
  const failed = begun.then(
    () => new Promise<never>(() => {}),
    (error: unknown) => {
      // What only a look at the disk tells: the same to the operator as what the settings say by themselves.
      if (error instanceof ConfigError) throw error;
      throw new StartError(`the state folder cannot be used: ${messageOf(error)}`);
    },
  );
  failed.catch(() => {}); // For the caller to look at.

  return {
    url,
    failed,
    async stop() {
      stopping = true;
      const stoppedAt = clock.monotonic();
      log.info("draining", { runs: parts?.dispatcher.registry.liveCount ?? 0 });
      const { dispatcher, sessions, close } = await built;
      dispatcher.draining = true;
      await dispatcher.stop(config.org.statusPath === null ? STOP_RUNS_MS : STOP_AND_SAVE_MS);
      // Answers that are still being read get their last bytes, and until then whoever asks gets an answer.
      const until = clock.monotonic() + LAST_BYTES_MS;
      while (server.pendingRequests > 0 && clock.monotonic() < until) await clock.sleep(LAST_BYTES_LOOK_MS);
      // A mount that is stopped drops what it still holds; until then whoever asks gets an answer.
      await clock.sleep(Math.max(0, sessions.writeBackUntil() - clock.monotonic()));
      await server.stop(true);
      const recovered = begun.then(() => true);
      if (!(await Promise.race([recovered, clock.sleep(RECOVERY_END_MS).then(() => false)]))) {
        log.warn("recovery given up", { waitedMs: Math.round(clock.monotonic() - stoppedAt) });
      }
      close();
      log.info("stopped");
    },
  };
}

/** The state folder is there, and this daemon's. */
async function claimState({ appRoot, stateDir, agentUser }: Config): Promise<void> {
  if (!isThere(appRoot)) throw new StartError(`APP_ROOT ${appRoot} is not there`);
  orRefuse(`the state folder ${stateDir} cannot be made`, () => makeFolder(stateDir, STATE_DIR_MODE));
  const open = agentUser && (await import("./dispatch/state-dir.ts")).replaceableIn(stateDir, agentUser);
  if (open) {
    const why = `AGENT_USER can write ${open} and so replace the state folder ${stateDir}`;
    throw new StartError(`${why}: set STATE_DIR to another place`);
  }
  // Held until the process ends, however it ends.
  const lock = orRefuse(`the state folder ${stateDir} cannot be used`, () => lockFile(`${stateDir}/lock`));
  if (lock === "held") throw new StartError(`another daemon uses the state folder ${stateDir}`);
}

/** What a start cannot do without; the operator is told what and why. */
function orRefuse<T>(what: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw new StartError(`${what}: ${errnoOf(error) ?? messageOf(error)}`);
  }
}

/** The address under which this host reaches itself. */
function addressOf(host: string): string {
  if (host === "::" || host === "0.0.0.0") return "127.0.0.1";
  return host.includes(":") ? `[${host}]` : host;
}
