/**
 * From a request to its route. In this order: `/health` for everybody, the token, the path, the method. Every path also
 * answers below `/_sandbox`, and every answer carries the boot id.
 */
import { HttpError } from "../errors.ts";
import { refusal } from "./answer.ts";
import type { TokenAuth } from "./auth.ts";

export interface RouteRequest {
  readonly request: Request;
  readonly url: URL;
  /** The decoded run id of `/runs/:id…`; empty elsewhere. */
  readonly runId: string;
}

export type Handler = (request: RouteRequest) => Response | Promise<Response>;
type Methods = Readonly<Record<string, Handler>>;

export interface Routes {
  readonly health: Handler;
  /** The others. A request waits for them. */
  readonly loaded: Promise<LoadedRoutes>;
}

export interface LoadedRoutes {
  /** By exact path. */
  readonly fixed: Readonly<Record<string, Methods>>;
  /** By what follows `/runs/:id`: "" or "/frames". */
  readonly run: Readonly<Record<string, Methods>>;
}

const PREFIX = "/_sandbox";
const RUN_PATH = /^\/runs\/([^/]+)(\/[^/]*)?$/;

export function createRouter(
  routes: Routes,
  auth: TokenAuth,
  bootId: string,
  onRefused: (error: HttpError, path: string) => void,
  onFailed: (error: unknown) => void,
): (request: Request) => Promise<Response> {
  const answer = async (request: Request): Promise<Response> => {
    const url = targetOf(request);
    const path = stripPrefix(url.pathname);
    try {
      if (path === "/health")
        return await pick({ GET: routes.health, HEAD: routes.health }, request)({ request, url, runId: "" });
      if (!auth.allows(request.headers.get("authorization"))) {
        throw new HttpError("unauthorized", undefined, {}, { "WWW-Authenticate": "Bearer" });
      }
      const loaded = await routes.loaded;
      const fixed = Object.hasOwn(loaded.fixed, path) ? loaded.fixed[path] : undefined;
      if (fixed) return await pick(fixed, request)({ request, url, runId: "" });
      const [, id, rest = ""] = RUN_PATH.exec(path) ?? [];
      const run = Object.hasOwn(loaded.run, rest) ? loaded.run[rest] : undefined;
      if (id === undefined || !run) throw new HttpError("not_found");
      return await pick(run, request)({ request, url, runId: decode(id) });
    } catch (error) {
      if (!(error instanceof HttpError)) onFailed(error);
      const refused = error instanceof HttpError ? error : new HttpError("internal");
      onRefused(refused, path);
      return refusal(refused);
    }
  };
  return async (request) => {
    const response = await answer(request);
    response.headers.set("X-Boot-Id", bootId);
    return response;
  };
}

/** What is asked for, whatever the `Host` header says: a missing one or a broken one is no reason to fail. */
function targetOf(request: Request): URL {
  return new URL(`http://daemon${request.url.replace(/^https?:\/\/[^/?#]*/i, "")}`);
}

function stripPrefix(path: string): string {
  return path === PREFIX || path.startsWith(`${PREFIX}/`) ? path.slice(PREFIX.length) || "/" : path;
}

function pick(methods: Methods, request: Request): Handler {
  const handler = Object.hasOwn(methods, request.method) ? methods[request.method] : undefined;
  if (handler) return handler;
  const allow = Object.keys(methods).join(", ");
  throw new HttpError("method_not_allowed", `use ${allow}`, {}, { Allow: allow });
}

function decode(id: string): string {
  try {
    return decodeURIComponent(id);
  } catch {
    throw new HttpError("not_found", "the run id in the path is not well encoded");
  }
}
