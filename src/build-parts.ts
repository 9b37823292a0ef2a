/** The parts of the daemon that listening does not need, loaded after it: runs, their processes, their routes. */
import type { Clock } from "./clock/port.ts";
import type { Config } from "./config.ts";
import { Dispatcher } from "./dispatch/dispatcher.ts";
import type { StateDir } from "./dispatch/state-dir.ts";
import { createLargeJson } from "./frames/large-lines.ts";
import { createHarnessRegistry } from "./harness/registry.ts";
import type { TokenAuth } from "./http/auth.ts";
import { isConnectionOpen } from "./http/connection-state.ts";
import type { LoadedRoutes } from "./http/router.ts";
import { createRoutes } from "./http/routes.ts";
import { watchReaders } from "./http/watch-readers.ts";
import type { Log } from "./log/port.ts";
import type { Redactor } from "./log/redact.ts";
import type { Metrics } from "./metrics/port.ts";
import { createProcesses } from "./process/run-processes.ts";
import { createPointers } from "./session/pointer.ts";

export interface PartsOptions {
  readonly config: Config;
  readonly clock: Clock;
  readonly log: Log;
  readonly redactor: Redactor;
  readonly selfArgv: readonly string[];
  readonly state: StateDir;
  readonly nonce: string;
  readonly earlierNonces: readonly string[];
  readonly auth: TokenAuth;
  readonly server: Bun.Server<undefined>;
}

export interface Parts {
  readonly dispatcher: Dispatcher;
  readonly routes: LoadedRoutes;
  readonly metrics: Metrics;
  /** Ends what goes on by itself; the runs have ended before. */
  close(): void;
}

export async function buildParts(options: PartsOptions): Promise<Parts> {
  const { config, clock, log, redactor, selfArgv, state, nonce, earlierNonces, auth, server } = options;
  // The heaviest, one after the other: /health is answered in between.
  const input = await import("./dispatch/input.ts");
  const { createPrometheusMetrics } = await import("./metrics/prometheus.ts");
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
  const metrics = createPrometheusMetrics(clock, config.version, {
    runs: () => dispatcher.registry.liveCount,
    readers: () => dispatcher.readers().length,
    draining: () => dispatcher.draining,
  });
  const modules = { metrics, input };
  const routes = createRoutes({ config, clock, log, redactor, largeJson, dispatcher, auth, server, modules });
  const stopWatch = watchReaders({
    clock,
    log,
    keepaliveMs: config.keepaliveMs,
    stallMs: config.readerStallMs,
    readers: () => dispatcher.readers(),
  });
  return {
    dispatcher,
    routes,
    metrics,
    close() {
      stopWatch();
      processes.stop();
      largeJson.stop();
      metrics.stop();
    },
  };
}
