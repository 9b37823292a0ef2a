/** `GET /runs`, `GET /runs/:id`, `GET /runs/:id/frames`, `DELETE /runs/:id`. */
import type { RunRegistry } from "../dispatch/registry.ts";
import type { Tombstones } from "../dispatch/tombstones.ts";
import { HttpError, messageOf } from "../errors.ts";
import type { Log } from "../log/port.ts";
import { empty, json } from "./answer.ts";
import type { ReaderOptions } from "./readers.ts";
import { respondWithFrames } from "./readers.ts";
import type { RouteRequest } from "./router.ts";

export interface RunRoutes {
  readonly registry: RunRegistry;
  readonly tombstones: Tombstones;
  readonly readers: ReaderOptions;
  readonly maxReaders: number;
  readonly ready: Promise<unknown>;
  readonly log: Log;
}

export async function listRuns(routes: RunRoutes): Promise<Response> {
  await routes.ready;
  return json({ runs: routes.registry.attempts().map((attempt) => attempt.summary()) });
}

export async function showRun({ runId }: RouteRequest, routes: RunRoutes): Promise<Response> {
  await routes.ready;
  return json(routes.registry.summary(runId));
}

export async function readFrames({ request, url, runId }: RouteRequest, routes: RunRoutes): Promise<Response> {
  await routes.ready;
  const lastEventId = request.headers.get("last-event-id");
  const after =
    lastEventId === null || lastEventId === ""
      ? (wholeNumber(url.searchParams.get("after"), "after") ?? 0)
      : (wholeNumber(lastEventId, "Last-Event-ID") ?? 0);
  const found = routes.registry.read(runId, after, wholeNumber(url.searchParams.get("attempt"), "attempt"));
  if (!found) return empty();
  const { readers, owner } = found.attempt;
  // Of readers by GET: the owner takes none of their places.
  if (readers.size - (owner ? 1 : 0) >= routes.maxReaders) {
    throw new HttpError("too_many_readers", `${routes.maxReaders} readers are attached`);
  }
  const encoding = wantsEvents(request.headers.get("accept")) ? "sse" : "ndjson";
  return respondWithFrames({ request, ...found, encoding, owner: false }, routes.readers);
}

/** Cancels, in every state. Answers at once; with `?wait=1` when the process tree is gone. */
export async function cancelRun({ request, url, runId }: RouteRequest, routes: RunRoutes): Promise<Response> {
  await routes.ready;
  const attempt = routes.registry.get(runId);
  attempt?.stop({ code: "cancelled", message: "the run was cancelled" });
  routes.log.info("cancel received", { run: runId, known: attempt !== undefined });
  try {
    await routes.tombstones.add(runId);
  } catch (error) {
    // In force all the same until the daemon is restarted.
    routes.log.error("tombstone not stored", { run: runId, reason: messageOf(error) });
  }
  const wait = url.searchParams.get("wait");
  if (attempt && wait !== null && wait !== "0" && wait !== "false") {
    routes.readers.withoutTimeout(request);
    await attempt.ended;
  }
  return empty();
}

function wholeNumber(text: string | null, name: string): number | undefined {
  if (text === null || text === "") return undefined;
  if (/^\d{1,15}$/.test(text)) return Number(text);
  throw new HttpError("bad_input", `${name} must be a whole number`);
}

function wantsEvents(accept: string | null): boolean {
  return (accept ?? "").split(",").some((type) => type.split(";")[0]?.trim().toLowerCase() === "text/event-stream");
}
