/** Every route but /health: what is behind them is loaded after the daemon listens. */
import type { Clock } from "../clock/port.ts";
import type { Config } from "../config.ts";
import type { Dispatcher } from "../dispatch/dispatcher.ts";
import type { LargeJson } from "../frames/large-lines.ts";
import type { Log } from "../log/port.ts";
import type { Redactor } from "../log/redact.ts";
import type { Org } from "../orgfs/port.ts";
import type { AdminRoutes } from "./admin-routes.ts";
import { configure, idle, metrics, relayMountRequest } from "./admin-routes.ts";
import { json } from "./answer.ts";
import { answerRun } from "./answer-route.ts";
import type { TokenAuth } from "./auth.ts";
import { dispatchRoute } from "./dispatch-route.ts";
import { readJson } from "./read-body.ts";
import type { ReaderOptions } from "./readers.ts";
import type { LoadedRoutes } from "./router.ts";
import { cancelRun, listRuns, readFrames, showRun } from "./run-routes.ts";
import type { LateModules } from "./server.ts";

export interface RoutesOptions {
  readonly config: Config;
  readonly clock: Clock;
  readonly log: Log;
  readonly redactor: Redactor;
  readonly largeJson: LargeJson;
  readonly dispatcher: Dispatcher;
  readonly org: Org;
  readonly auth: TokenAuth;
  readonly server: Bun.Server<undefined>;
  readonly modules: LateModules;
  /** Takes a list of suspension keys that was checked. */
  readonly replaceKeys: (list: string) => void;
}

/** As long as a key at least, and longer than its id mostly is. */
const MIN_KEY_CHARS = 43;

export function createRoutes(options: RoutesOptions): LoadedRoutes {
  const { config, clock, log, redactor, dispatcher, org, auth, server, modules } = options;
  const { registry, tombstones } = dispatcher;
  const readers: ReaderOptions = {
    clock,
    log,
    keepaliveMs: config.keepaliveMs,
    metrics: () => modules.metrics,
    onActivity: () => dispatcher.touch(),
    withoutTimeout: (request) => server.timeout(request, 0),
    connectionOf(request) {
      const address = server.requestIP(request);
      const localPort = server.port;
      if (!address || localPort === undefined) return undefined;
      return { localPort, remoteAddress: address.address, remotePort: address.port };
    },
  };
  const ready = dispatcher.ready.then(() => modules);
  const readBody = (request: Request): Promise<unknown> => readJson(request, config.maxBodyBytes, options.largeJson);
  const runs = { registry, tombstones, readers, maxReaders: config.maxReaders, ready, log };
  const dispatch = { readers, log, ready, readBody, dispatcher };
  const admin: AdminRoutes = {
    clock,
    log,
    activeAt: () => dispatcher.activeAt,
    metrics: modules.metrics,
    readBody,
    relay: (request) => org.relayMountRequest(request),
    parseUpdate: (value) => modules.input.check(modules.input.configSchema, value),
    update: ({ token, env, suspensionKeys }) => {
      if (token !== undefined) {
        redactor.hide([token]);
        auth.replace(token);
      }
      if (env !== undefined) dispatcher.configure(env);
      if (suspensionKeys !== undefined) {
        redactor.hide(suspensionKeys.split(/[\s,:]+/).filter((word) => word.length >= MIN_KEY_CHARS));
        options.replaceKeys(suspensionKeys);
      }
    },
  };
  return {
    fixed: {
      "/dispatch": { POST: (asked) => dispatchRoute(asked, dispatch) },
      "/runs": { GET: () => listRuns(runs) },
      "/config": { POST: (asked) => configure(asked, admin) },
      "/orgfs-config": { POST: (asked) => relayMountRequest(asked, admin) },
      "/idle": { GET: () => idle(admin) },
      "/metrics": { GET: () => metrics(admin) },
      "/openapi.json": { GET: async () => json((await import("./openapi.ts")).openApi(config.version)) },
    },
    run: {
      "": { GET: (asked) => showRun(asked, runs), DELETE: (asked) => cancelRun(asked, runs) },
      "/frames": { GET: (asked) => readFrames(asked, runs) },
      "/answers": { POST: (asked) => answerRun(asked, { ...runs, readBody, parse: modules.input.parseAnswers }) },
    },
  };
}
