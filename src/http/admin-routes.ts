/** `GET /health`, `GET /idle`, `GET /metrics`, `POST /config`. */
import type { Clock } from "../clock/port.ts";
import type { ConfigUpdate } from "../dispatch/input.ts";
import { HttpError } from "../errors.ts";
import type { Log } from "../log/port.ts";
import type { Metrics } from "../metrics/port.ts";
import { empty, json } from "./answer.ts";
import type { TokenAuth } from "./auth.ts";
import type { RouteRequest } from "./router.ts";

export interface AdminRoutes {
  readonly auth: TokenAuth;
  readonly bootId: string;
  readonly version: string;
  readonly isolation: "user" | "none";
  readonly clock: Clock;
  readonly log: Log;
  readonly draining: () => boolean;
  readonly liveRuns: () => number;
  /** Milliseconds since the epoch of the last frame, keepalive or dispatch; now, while a run is at work. */
  readonly activeAt: () => number;
  readonly metrics: () => Promise<Metrics>;
  readonly readBody: (request: Request) => Promise<unknown>;
  readonly parseUpdate: (value: unknown) => Promise<ConfigUpdate>;
  readonly update: (update: ConfigUpdate) => void;
}

const MAX_NONCE_CHARS = 256;

/** From memory alone: nothing else in the daemon can make it wait. */
export function health({ url }: RouteRequest, routes: AdminRoutes): Response {
  const nonce = url.searchParams.get("nonce");
  if (nonce !== null && nonce.length > MAX_NONCE_CHARS) {
    throw new HttpError("bad_input", `nonce: at most ${MAX_NONCE_CHARS} characters`);
  }
  return json({
    status: "ok",
    bootId: routes.bootId,
    version: routes.version,
    draining: routes.draining(),
    isolation: routes.isolation,
    runs: routes.liveRuns(),
    org: "none",
    ...(nonce === null ? {} : { proof: routes.auth.prove(routes.bootId, nonce) }),
  });
}

export function idle(routes: AdminRoutes): Response {
  const since = routes.activeAt();
  return json({ idleSince: new Date(since).toISOString(), idleMs: Math.max(0, routes.clock.now() - since) });
}

export async function metrics(routes: AdminRoutes): Promise<Response> {
  const { contentType, text } = await (await routes.metrics()).render();
  return new Response(text, { headers: { "Content-Type": contentType } });
}

/** `{token?, env?}`: for later runs. `env` replaces what an earlier call gave, as a whole. */
export async function configure({ request }: RouteRequest, routes: AdminRoutes): Promise<Response> {
  const update = await routes.parseUpdate(await routes.readBody(request));
  routes.update(update);
  routes.log.info("configuration received", {
    token: update.token !== undefined,
    ...(update.env ? { env: Object.keys(update.env) } : {}),
  });
  return empty();
}
