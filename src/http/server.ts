/** The HTTP side: every route, bound to a port. */
import type { Clock } from "../clock/port.ts";
import type { Config } from "../config.ts";
import type { Dispatcher } from "../dispatch/dispatcher.ts";
import { messageOf } from "../errors.ts";
import type { LargeJson } from "../frames/large-lines.ts";
import type { Log } from "../log/port.ts";
import type { Redactor } from "../log/redact.ts";
import type { Metrics } from "../metrics/port.ts";
import type { AdminRoutes } from "./admin-routes.ts";
import { configure, health, idle, metrics } from "./admin-routes.ts";
import { json } from "./answer.ts";
import { TokenAuth } from "./auth.ts";
import { dispatchRoute } from "./dispatch-route.ts";
import { readJson } from "./read-body.ts";
import type { ReaderOptions } from "./readers.ts";
import type { Routes } from "./router.ts";
import { createRouter } from "./router.ts";
import { cancelRun, listRuns, readFrames, showRun } from "./run-routes.ts";

/** What is loaded after the daemon listens. */
export interface LateModules {
  readonly metrics: Metrics;
  readonly input: typeof import("../dispatch/input.ts");
}

export interface ServerOptions {
  readonly config: Config;
  readonly clock: Clock;
  readonly log: Log;
  readonly redactor: Redactor;
  readonly largeJson: LargeJson;
  readonly dispatcher: Dispatcher;
  readonly late: Promise<LateModules>;
}

/** Between two bytes of a request; a stream is taken out of it. Seconds. */
const IDLE_TIMEOUT_S = 60;

export function startServer(options: ServerOptions): Bun.Server<undefined> {
  const { config, clock, log, dispatcher } = options;
  let late: LateModules | undefined;
  void options.late.then((modules) => {
    late = modules;
  });
  const readers: ReaderOptions = {
    clock,
    keepaliveMs: config.keepaliveMs,
    metrics: () => late?.metrics,
    onActivity: () => dispatcher.touch(),
    withoutTimeout: (request) => server.timeout(request, 0),
    connectionOf(request) {
      const address = server.requestIP(request);
      const localPort = server.port;
      if (!address || localPort === undefined) return undefined;
      return { localPort, remoteAddress: address.address, remotePort: address.port };
    },
  };
  const auth = new TokenAuth(config.token, clock);
  const route = createRouter(
    createRoutes(options, auth, readers),
    auth,
    config.bootId,
    (error, path) => {
      late?.metrics.refused(error.code);
      log.debug("request refused", { path, code: error.code, detail: error.detail });
    },
    (error) => log.error("request failed", { reason: messageOf(error), stack: (error as Error)?.stack }),
  );
  // Bun's own limit answers without a body: ours is counted first, so Bun's is out of the way.
  const server = Bun.serve({
    hostname: config.host,
    port: config.port,
    idleTimeout: IDLE_TIMEOUT_S,
    maxRequestBodySize: Number.MAX_SAFE_INTEGER,
    development: false,
    // Said outright: without `development` Bun shares the port, and any process of this user could answer for us.
    reusePort: false,
    fetch: route,
  });
  return server;
}

function createRoutes(options: ServerOptions, auth: TokenAuth, readers: ReaderOptions): Routes {
  const { config, clock, log, redactor, dispatcher, late } = options;
  const { registry, tombstones } = dispatcher;
  const ready = Promise.all([late, dispatcher.ready]).then(([modules]) => modules);
  const readBody = (request: Request): Promise<unknown> => readJson(request, config.maxBodyBytes, options.largeJson);
  const runs = { registry, tombstones, readers, maxReaders: config.maxReaders, ready, log };
  const dispatch = { readers, log, ready, readBody, dispatcher };
  const admin: AdminRoutes = {
    auth,
    bootId: config.bootId,
    version: config.version,
    isolation: config.agentUser ? "user" : "none",
    clock,
    log,
    draining: () => dispatcher.draining,
    liveRuns: () => registry.liveCount,
    activeAt: () => dispatcher.activeAt,
    metrics: async () => (await late).metrics,
    readBody,
    parseUpdate: async (value) => {
      const { input } = await late;
      return input.check(input.configSchema, value);
    },
    update: ({ token, env }) => {
      if (token !== undefined) {
        redactor.hide([token]);
        auth.replace(token);
      }
      if (env !== undefined) dispatcher.configure(env);
    },
  };
  return {
    health: (asked) => health(asked, admin),
    fixed: {
      "/dispatch": { POST: (asked) => dispatchRoute(asked, dispatch) },
      "/runs": { GET: () => listRuns(runs) },
      "/config": { POST: (asked) => configure(asked, admin) },
      "/idle": { GET: () => idle(admin) },
      "/metrics": { GET: () => metrics(admin) },
      "/openapi.json": { GET: async () => json((await import("./openapi.ts")).openApi(config.version)) },
    },
    run: {
      "": { GET: (asked) => showRun(asked, runs), DELETE: (asked) => cancelRun(asked, runs) },
      "/frames": { GET: (asked) => readFrames(asked, runs) },
    },
  };
}
