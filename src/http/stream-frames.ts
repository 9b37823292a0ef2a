/**
 * The pump behind both routes that stream: an attempt's log, from a byte on, to one response.
 *
 * - It is pulled: a reader that does not read costs nothing but what the socket holds, and delays nobody.
 * - Whole lines are handed over; only a line longer than a block goes in pieces. A keepalive is sent when there is
 *   nothing to read, so it falls between frames by construction.
 * - The first bytes are a keepalive: the runtime holds the end of the headers back until a body begins.
 * - A reader that is ended (a newer owner, a loss) stops at the end of the line that it is in, without `done`.
 */
import type { Clock } from "../clock/port.ts";
import type { Reader } from "../dispatch/reader.ts";
import type { ReadFrom } from "../dispatch/registry.ts";
import { SSE_KEEPALIVE, SseEncoder } from "./sse.ts";

const NEWLINE = 0x0a;
const BLOCK_BYTES = 256 << 10;
const NDJSON_KEEPALIVE = Buffer.from("\n");

export type FrameEncoding = "ndjson" | "sse";

export interface StreamOptions {
  readonly reader: Reader;
  readonly from: ReadFrom;
  readonly encoding: FrameEncoding;
  readonly keepaliveMs: number;
  readonly clock: Clock;
  /** Called when something was handed over: the daemon is not idle. */
  readonly onActivity: () => void;
  /** Called when it is over because its reader is lost: before `onClose`. */
  readonly onLost: (why: string) => void;
  /** Called when the log cannot be read: the body breaks off. */
  readonly onFailed: (error: unknown) => void;
  /** Called once, when the stream is over in whatever way. */
  readonly onClose: () => void;
}

export function streamFrames(options: StreamOptions): ReadableStream<Uint8Array> {
  const { reader, encoding, keepaliveMs, clock } = options;
  const { log } = reader.attempt;
  const sse = encoding === "sse" ? new SseEncoder() : undefined;
  const keepalive = sse ? SSE_KEEPALIVE : NDJSON_KEEPALIVE;
  let midLine = false;
  let begun = false;
  let closed = false;
  log.retain();

  const close = (): void => {
    if (closed) return;
    closed = true;
    options.onClose();
    // A file that cannot be closed is no reader's problem; the descriptor goes with the process.
    log.release().catch(() => {});
  };
  const hand = (controller: ReadableStreamDefaultController<Uint8Array>, bytes: Uint8Array): void => {
    // The socket may have closed a moment ago; then the stream is cancelled, and enqueueing throws.
    if (closed) return;
    controller.enqueue(bytes);
    reader.handedBytes += bytes.length;
    options.onActivity();
  };

  /** The next piece of the log: whole lines where they fit. Undefined when there is nothing now. */
  const next = async (): Promise<Buffer | undefined> => {
    if (reader.offset >= log.end) return undefined;
    const block = await log.read(reader.offset, BLOCK_BYTES);
    const last = block.lastIndexOf(NEWLINE);
    const first = reader.ended ? block.indexOf(NEWLINE) : last;
    const piece = first < 0 ? block : block.subarray(0, first + 1);
    midLine = first < 0;
    reader.offset += piece.length;
    if (!midLine) reader.wholeOffset = reader.offset;
    return piece;
  };

  /** Waits for more, for the end, or for the next keepalive. True when the keepalive is due. */
  const wait = async (): Promise<boolean> => {
    const timer = new AbortController();
    const wake = (): void => timer.abort();
    const forget = log.onChange(wake);
    reader.onEnd(wake);
    if (reader.offset < log.end || log.finished || reader.ended) wake();
    await clock.sleep(keepaliveMs, timer.signal);
    forget();
    return !timer.signal.aborted;
  };

  return new ReadableStream<Uint8Array>(
    {
      start(controller) {
        reader.onLost((why) => {
          if (closed) return;
          options.onLost(why);
          close();
          controller.error(new Error(`the reader is lost: ${why}`));
        });
      },
      async pull(controller) {
        try {
          if (!begun) {
            begun = true;
            hand(controller, keepalive);
            if ("after" in options.from) {
              // Frames up to `after` may still be on their way to the disk.
              await log.flushed();
              reader.offset = await log.offsetAfter(options.from.after);
              reader.wholeOffset = reader.offset;
            }
            return;
          }
          for (;;) {
            if (closed) return;
            if (reader.ended && !midLine) break;
            const piece = await next();
            if (piece) return hand(controller, sse ? sse.encode(piece) : piece);
            if (log.finished && reader.offset >= log.end) break;
            if (await wait()) return hand(controller, keepalive);
          }
          close();
          controller.close();
        } catch (error) {
          options.onFailed(error);
          close();
          controller.error(error);
        }
      },
      cancel: () => reader.lose("closed"),
    },
    { highWaterMark: 0 },
  );
}
