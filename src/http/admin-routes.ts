/** `GET /idle`, `GET /metrics`, `POST /config`, `POST /orgfs-config`. */
import type { Clock } from "../clock/port.ts";
import type { ConfigUpdate } from "../dispatch/input.ts";
import type { Log } from "../log/port.ts";
import type { Metrics } from "../metrics/port.ts";
import { empty, json } from "./answer.ts";
import type { RouteRequest } from "./router.ts";

export interface AdminRoutes {
  readonly clock: Clock;
  readonly log: Log;
  /** Milliseconds since the epoch of the last frame, keepalive or dispatch; now, while a run is at work. */
  readonly activeAt: () => number;
  readonly metrics: Metrics;
  readonly readBody: (request: Request) => Promise<unknown>;
  /** Hands a mount request to the sidecar. */
  readonly relay: (request: unknown) => Promise<{ readonly written: boolean }>;
  readonly parseUpdate: (value: unknown) => ConfigUpdate;
  readonly update: (update: ConfigUpdate) => void;
}

export function idle(routes: AdminRoutes): Response {
  const since = routes.activeAt();
  return json({ idleSince: new Date(since).toISOString(), idleMs: Math.max(0, routes.clock.now() - since) });
}

export async function metrics(routes: AdminRoutes): Promise<Response> {
  const { contentType, text } = await routes.metrics.render();
  return new Response(text, { headers: { "Content-Type": contentType } });
}

/** `{token?, env?, suspensionKeys?}`: for later runs. Each replaces what an earlier call gave, as a whole. */
export async function configure({ request }: RouteRequest, routes: AdminRoutes): Promise<Response> {
  const update = routes.parseUpdate(await routes.readBody(request));
  routes.update(update);
  routes.log.info("configuration received", {
    token: update.token !== undefined,
    ...(update.env ? { env: Object.keys(update.env) } : {}),
    ...(update.suspensionKeys === undefined ? {} : { suspensionKeys: true }),
  });
  return empty();
}

/** What to mount, for the sidecar beside the daemon. */
export async function relayMountRequest({ request }: RouteRequest, routes: AdminRoutes): Promise<Response> {
  return json(await routes.relay(await routes.readBody(request)));
}
