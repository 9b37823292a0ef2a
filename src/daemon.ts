/**
 * `serve`, put together: builds the parts, listens, then closes what an earlier daemon on the state folder left.
 *
 * Nothing heavy is loaded and nothing slow is done before it listens; what needs either waits for it. /health waits
 * for nothing.
 */
import type { Clock } from "./clock/port.ts";
import type { Config } from "./config.ts";
import { Dispatcher } from "./dispatch/dispatcher.ts";
import type { StateDir } from "./dispatch/state-dir.ts";
import { addNonce, layOutStateDir, replaceableIn } from "./dispatch/state-dir.ts";
import { errnoOf, messageOf } from "./errors.ts";
import { createLargeJson } from "./frames/large-lines.ts";
import { createHarnessRegistry } from "./harness/registry.ts";
import { isConnectionOpen } from "./http/connection-state.ts";
import type { LateModules } from "./http/server.ts";
import { startServer } from "./http/server.ts";
import { watchReaders } from "./http/watch-readers.ts";
import type { Log } from "./log/port.ts";
import type { Redactor } from "./log/redact.ts";
import { lockFile, makeNonDumpable } from "./process/native.ts";
import { createProcesses } from "./process/run-processes.ts";
import { randomHex } from "./random-hex.ts";
import { createPointers } from "./session/pointer.ts";

export interface DaemonOptions {
  readonly config: Config;
  readonly clock: Clock;
  readonly log: Log;
  readonly redactor: Redactor;
  /** Starts this very binary. */
  readonly selfArgv: readonly string[];
}

export interface Daemon {
  readonly url: string;
  /** Ends all runs and stops listening; resolves within about 18 s. */
  stop(): Promise<void>;
  /** Rejects when the daemon cannot go on: what an earlier one left could not be closed. */
  readonly failed: Promise<never>;
}

/** Why there is no daemon, for the operator: a state folder in use, a port in use. */
export class StartError extends Error {}

/** From SIGTERM until all runs have ended: a kill ladder of 5 s, its sweep, and the last frames. */
const STOP_RUNS_MS = 15_000;
const LAST_BYTES_MS = 2000;
const LAST_BYTES_LOOK_MS = 10;
/** From listening to loading what is heavy. Who waits for the daemon asks again and again, and is answered before. */
const LOAD_AFTER_MS = 25;

export function startDaemon({ config, clock, log, redactor, selfArgv }: DaemonOptions): Daemon {
  makeNonDumpable();
  if (config.agentUser && process.getuid?.() !== 0) throw new StartError("AGENT_USER needs a daemon that is root");
  const state = openState(config);
  redactor.hide([config.token.reveal()]);
  const nonce = randomHex(16);
  const earlierNonces = addNonce(state, nonce);
  const largeJson = createLargeJson();
  const processes = createProcesses({ clock, log, nonce, scannerArgv: [...selfArgv, "proc-scan"] });
  const dispatcher = new Dispatcher({
    config,
    clock,
    log,
    redactor,
    largeJson,
    state,
    nonce,
    earlierNonces,
    processes,
    pointers: createPointers(state.threads),
    harnesses: createHarnessRegistry(config, selfArgv),
    ownerIsThere: ({ owner }) => owner?.connection === undefined || isConnectionOpen(owner.connection),
  });
  const { promise: late, resolve: loaded } = Promise.withResolvers<LateModules>();
  const server = listen(config, () => startServer({ config, clock, log, redactor, largeJson, dispatcher, late }));
  const url = `http://${addressOf(config.host)}:${server.port}`;
  const { version, bootId, appRoot } = config;
  log.info("listening", {
    url,
    port: server.port,
    version,
    bootId,
    appRoot,
    isolation: config.agentUser ? "user" : "none",
  });

  const begun = loadLate(config, clock, dispatcher).then(async (modules) => {
    loaded(modules);
    await dispatcher.begin(modules.metrics);
    return modules;
  });
  const failed = begun.then(
    () => new Promise<never>(() => {}),
    (error: unknown) => {
      throw new StartError(`the state folder cannot be used: ${messageOf(error)}`);
    },
  );
  failed.catch(() => {}); // For the caller to look at.
  const stopWatch = watchReaders({
    clock,
    log,
    keepaliveMs: config.keepaliveMs,
    stallMs: config.readerStallMs,
    readers: () => dispatcher.readers(),
  });

  return {
    url,
    failed,
    async stop() {
      dispatcher.draining = true;
      log.info("draining", { runs: dispatcher.registry.liveCount });
      await dispatcher.stop(STOP_RUNS_MS);
      // Answers that are still being read get their last bytes, and until then whoever asks gets an answer.
      const until = clock.monotonic() + LAST_BYTES_MS;
      while (server.pendingRequests > 0 && clock.monotonic() < until) await clock.sleep(LAST_BYTES_LOOK_MS);
      await server.stop(true);
      stopWatch();
      processes.stop();
      largeJson.stop();
      (await begun).metrics.stop();
      log.info("stopped");
    },
  };
}

function openState({ stateDir, agentUser }: Config): StateDir {
  let state: StateDir;
  try {
    state = layOutStateDir(stateDir);
  } catch (error) {
    throw new StartError(`the state folder ${stateDir} cannot be made: ${errnoOf(error) ?? messageOf(error)}`);
  }
  const open = agentUser ? replaceableIn(state.root, agentUser) : undefined;
  if (open !== undefined) {
    const why = `AGENT_USER can write ${open} and so replace the state folder ${stateDir}`;
    throw new StartError(`${why}: set STATE_DIR to another place`);
  }
  // Held until the process ends, however it ends.
  if (lockFile(state.lock) === "held") throw new StartError(`another daemon uses the state folder ${stateDir}`);
  return state;
}

function listen<T>({ host, port }: Config, start: () => T): T {
  try {
    return start();
  } catch (error) {
    throw new StartError(`cannot listen on ${host} port ${port}: ${errnoOf(error) ?? messageOf(error)}`);
  }
}

/** What costs too much to be loaded before the daemon listens: the schemas, the metrics. */
async function loadLate(config: Config, clock: Clock, dispatcher: Dispatcher) {
  await clock.sleep(LOAD_AFTER_MS);
  // One after the other: /health is answered in between.
  const input = await import("./dispatch/input.ts");
  const prometheus = await import("./metrics/prometheus.ts");
  const metrics = prometheus.createPrometheusMetrics(clock, config.version, {
    runs: () => dispatcher.registry.liveCount,
    readers: () => dispatcher.readers().length,
    draining: () => dispatcher.draining,
  });
  return { input, metrics };
}

/** The address under which this host reaches itself. */
function addressOf(host: string): string {
  if (host === "::" || host === "0.0.0.0") return "127.0.0.1";
  return host.includes(":") ? `[${host}]` : host;
}
