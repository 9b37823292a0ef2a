/** The HTTP side, bound to a port. /health answers at once; every other route once it is loaded. */
import type { Config } from "../config.ts";
import { messageOf } from "../errors.ts";
import type { Log } from "../log/port.ts";
import type { Metrics } from "../metrics/port.ts";
import type { HealthRoute } from "./health-route.ts";
import { health } from "./health-route.ts";
import type { LoadedRoutes } from "./router.ts";
import { createRouter } from "./router.ts";

/** What costs most to load. */
export interface LateModules {
  readonly metrics: Metrics;
  readonly input: typeof import("../dispatch/input.ts");
}

export interface ServerOptions {
  readonly config: Config;
  readonly log: Log;
  readonly health: HealthRoute;
  readonly routes: Promise<LoadedRoutes>;
  readonly metrics: () => Metrics | undefined;
}

/** Between two bytes of a request; a stream is taken out of it. Seconds. */
const IDLE_TIMEOUT_S = 60;

export function startServer(options: ServerOptions): Bun.Server<undefined> {
  const { config, log } = options;
  const route = createRouter(
    { health: (asked) => health(asked, options.health), loaded: options.routes },
    options.health.auth,
    config.bootId,
    (error, path) => {
      options.metrics()?.refused(error.code);
      log.debug("request refused", { path, code: error.code, detail: error.detail });
    },
    (error) => log.error("request failed", { reason: messageOf(error), stack: (error as Error)?.stack }),
  );
  // Bun's own limit answers without a body: ours is counted first, so Bun's is out of the way.
  return Bun.serve({
    hostname: config.host,
    port: config.port,
    idleTimeout: IDLE_TIMEOUT_S,
    maxRequestBodySize: Number.MAX_SAFE_INTEGER,
    development: false,
    // Said outright: without `development` Bun shares the port, and any process of this user could answer for us.
    reusePort: false,
    fetch: route,
  });
}
