/**
 * `serve`, put together: listens, then builds the parts (build-parts.ts) and closes what an earlier daemon on the state
 * folder left.
 *
 * Nothing is loaded and nothing slow is done before it listens that listening does not need; what needs it waits for
 * it. /health waits for nothing.
 */
import { existsSync } from "node:fs";
import type { Parts } from "./build-parts.ts";
import type { Clock } from "./clock/port.ts";
import { type Config, ConfigError } from "./config.ts";
import type { StateDir } from "./dispatch/state-dir.ts";
import { addNonce, layOutStateDir, replaceableIn } from "./dispatch/state-dir.ts";
import { errnoOf, messageOf } from "./errors.ts";
import { TokenAuth } from "./http/auth.ts";
import { startServer } from "./http/server.ts";
import type { Log } from "./log/port.ts";
import type { Redactor } from "./log/redact.ts";
import { lockFile, makeNonDumpable } from "./process/native.ts";
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
const LAST_BYTES_MS = 2000;
const LAST_BYTES_LOOK_MS = 10;
/** From listening to loading what is heavy. Who waits for the daemon asks again and again, and is answered before. */
const LOAD_AFTER_MS = 25;

export function startDaemon(options: DaemonOptions): Daemon {
  const { config, clock, log, redactor } = options;
  makeNonDumpable();
  if (config.agentUser && process.getuid?.() !== 0) throw new StartError("AGENT_USER needs a daemon that is root");
  const state = openState(config);
  redactor.hide([config.token.reveal()]);
  const nonce = randomHex(16);
  const earlierNonces = orRefuse(`the state folder ${config.stateDir} cannot be written`, () => addNonce(state, nonce));
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
  log.info("listening", { url, port: server.port, version, bootId, appRoot, isolation });

  const begin = async (): Promise<void> => {
    await clock.sleep(LOAD_AFTER_MS);
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
      await begun;
      close();
      log.info("stopped");
    },
  };
}

function openState({ appRoot, stateDir, agentUser }: Config): StateDir {
  if (!existsSync(appRoot)) throw new StartError(`APP_ROOT ${appRoot} is not there`);
  const state = orRefuse(`the state folder ${stateDir} cannot be made`, () => layOutStateDir(stateDir));
  const open = agentUser ? replaceableIn(state.root, agentUser) : undefined;
  if (open !== undefined) {
    const why = `AGENT_USER can write ${open} and so replace the state folder ${stateDir}`;
    throw new StartError(`${why}: set STATE_DIR to another place`);
  }
  // Held until the process ends, however it ends.
  if (lockFile(state.lock) === "held") throw new StartError(`another daemon uses the state folder ${stateDir}`);
  return state;
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
