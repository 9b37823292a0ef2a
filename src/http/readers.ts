/** Readers of runs as the HTTP side knows them: one is made for every response that streams frames. */
import type { Clock } from "../clock/port.ts";
import type { Connection } from "../dispatch/reader.ts";
import { Reader } from "../dispatch/reader.ts";
import type { ReadFrom } from "../dispatch/registry.ts";
import type { Attempt } from "../dispatch/run.ts";
import { messageOf } from "../errors.ts";
import type { Log } from "../log/port.ts";
import type { Metrics } from "../metrics/port.ts";
import type { FrameEncoding } from "./stream-frames.ts";
import { streamFrames } from "./stream-frames.ts";

export interface StreamRequest {
  readonly request: Request;
  readonly attempt: Attempt;
  readonly from: ReadFrom;
  readonly encoding: FrameEncoding;
  /** True for the connection of a POST. */
  readonly owner: boolean;
}

export interface ReaderOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly keepaliveMs: number;
  readonly metrics: () => Metrics | undefined;
  readonly onActivity: () => void;
  readonly connectionOf: (request: Request) => Connection | undefined;
  /** Takes the runtime's own limit off the response. */
  readonly withoutTimeout: (request: Request) => void;
}

const CONTENT_TYPE = { ndjson: "application/x-ndjson", sse: "text/event-stream" } as const;

/** Starts the response that streams `attempt`, and registers its reader in the same step. */
export function respondWithFrames(asked: StreamRequest, options: ReaderOptions): Response {
  const { request, attempt, from, encoding } = asked;
  const { clock } = options;
  options.withoutTimeout(request);
  const start = "offset" in from ? from.offset : 0;
  const reader = new Reader(attempt, start, options.connectionOf(request));
  if (asked.owner) {
    // The older owner's body ends without `done`: whoever reads it learns that somebody else took up the run.
    attempt.owner?.end();
    attempt.owner = reader;
  }
  attempt.addReader(reader);
  const stream = streamFrames({
    reader,
    from,
    encoding,
    keepaliveMs: options.keepaliveMs,
    clock,
    onActivity: options.onActivity,
    onClose: () => attempt.removeReader(reader),
    onLost: (why) => options.metrics()?.readerLost(why),
    onFailed: (error) => options.log.error("run log not read", { run: attempt.run.id, reason: messageOf(error) }),
  });
  // The runtime's cancel of the stream comes with it, but not for a request that was gone before it was answered.
  if (request.signal.aborted) reader.lose("closed");
  else request.signal.addEventListener("abort", () => reader.lose("closed"), { once: true });
  return new Response(stream, {
    headers: {
      "Content-Type": CONTENT_TYPE[encoding],
      "X-Run-Attempt": String(attempt.number),
      "X-Accel-Buffering": "no",
      "Cache-Control": "no-store",
    },
  });
}
