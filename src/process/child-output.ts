/**
 * One output of a child, as chunks that are read only when somebody asks for the next: a reader that waits lets the
 * socket to the child fill up, and so holds the child back. About 0.5 MB are read ahead.
 */
import type { Readable } from "node:stream";
import type { Clock } from "../clock/port.ts";

/** At least what a socket and the read-ahead can hold: nothing that had arrived before the close is beyond it. */
const MAX_AFTER_CLOSE = 1 << 20;
/** What has arrived shows within a turn of the event loop. */
const QUIET_MS = 20;

export interface ChildOutput extends AsyncIterable<Uint8Array> {
  /** Ends the output after what has already arrived. */
  close(): void;
}

export function readChildOutput(stream: Readable, clock: Clock): ChildOutput {
  let ended = false;
  let closed = false;
  let wake = (): void => {};
  const end = (): void => {
    ended = true;
    wake();
  };
  // Listening from the first moment on: a stream that nobody listens to is emptied when the child exits.
  stream.on("readable", () => wake());
  stream.on("end", end);
  stream.on("close", end);
  stream.on("error", end);

  async function* chunks(): AsyncGenerator<Uint8Array, void, undefined> {
    let afterClose = 0;
    try {
      while (afterClose < MAX_AFTER_CLOSE) {
        const chunk = stream.read() as Uint8Array | null;
        if (chunk !== null) {
          if (closed) afterClose += chunk.byteLength;
          yield chunk;
          // A child that prints without a pause is read on and on within one turn of the event loop.
          await new Promise((resolve) => setImmediate(resolve));
        } else if (ended) {
          return;
        } else if (await nothingMore()) {
          return;
        }
      }
    } finally {
      stream.destroy();
    }
  }

  /** Waits until there is something to look at. True when the output is closed and nothing has come for a while. */
  async function nothingMore(): Promise<boolean> {
    const news = new Promise<"news">((resolve) => {
      wake = () => resolve("news");
    });
    if (!closed) {
      await news;
      return false;
    }
    const stop = new AbortController();
    const first = await Promise.race([news, clock.sleep(QUIET_MS, stop.signal)]);
    stop.abort();
    if (first === "news") return false;
    // Timers come before input: after a busy moment the time can be up while input waits to be seen.
    for (let turn = 0; turn < 2; turn++) await new Promise((resolve) => setImmediate(resolve));
    return stream.readableLength === 0;
  }

  return {
    [Symbol.asyncIterator]: chunks,
    close() {
      closed = true;
      wake();
    },
  };
}

export const NO_OUTPUT: ChildOutput = {
  async *[Symbol.asyncIterator]() {},
  close() {},
};
