/** `GET /health`: from memory alone, nothing else in the daemon can make it wait. It answers before all else is loaded. */
import { HttpError } from "../errors.ts";
import type { OrgState } from "../orgfs/port.ts";
import { json } from "./answer.ts";
import type { TokenAuth } from "./auth.ts";
import type { RouteRequest } from "./router.ts";

export interface HealthRoute {
  readonly auth: TokenAuth;
  readonly bootId: string;
  readonly version: string;
  readonly isolation: "user" | "none";
  readonly draining: () => boolean;
  readonly liveRuns: () => number;
  readonly org: () => OrgState;
}

const MAX_NONCE_CHARS = 256;

export function health({ url }: RouteRequest, route: HealthRoute): Response {
  const nonce = url.searchParams.get("nonce");
  if (nonce !== null && nonce.length > MAX_NONCE_CHARS) {
    throw new HttpError("bad_input", `nonce: at most ${MAX_NONCE_CHARS} characters`);
  }
  return json({
    status: "ok",
    bootId: route.bootId,
    version: route.version,
    draining: route.draining(),
    isolation: route.isolation,
    runs: route.liveRuns(),
    org: route.org(),
    ...(nonce === null ? {} : { proof: route.auth.prove(route.bootId, nonce) }),
  });
}
