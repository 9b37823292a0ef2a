/**
 * One open body of frames. Every wait on it is bounded: a connection can die without an event, and then only the
 * keepalives that do not come tell of it.
 */
import type { Clock } from "../clock/port.ts";
import { LineSplitter } from "../frames/split-lines.ts";
import { ProtocolError } from "./errors.ts";
import { parseObject } from "./transport.ts";
import type { Frame } from "./wire.ts";

const NEWLINE = 0x0a;
/** Above the daemon's longest frame (16 MiB of a harness, and what it adds). */
const MAX_LINE_BYTES = 64 << 20;

/** Not a byte for as long as was allowed. */
export class SilenceError extends Error {
  override name = "SilenceError";
}

/** Bounds waits on one connection, and ends all of them together. */
export class Connection {
  readonly #controller = new AbortController();
  #stop: () => void;

  constructor(
    private readonly clock: Clock,
    stop: AbortSignal,
  ) {
    const close = (): void => this.close();
    stop.addEventListener("abort", close, { once: true });
    this.#stop = () => stop.removeEventListener("abort", close);
    if (stop.aborted) close();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** `work`, or a rejection when the connection is closed or `ms` have passed. */
  within<T>(ms: number, work: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const { signal } = this;
      const closed = (): void => settle(() => reject(signal.reason));
      const cancel = this.clock.after(ms, () => {
        settle(() => reject(new SilenceError(`not a byte for ${Math.round(ms)} ms`)));
        this.close();
      });
      const settle = (finish: () => void): void => {
        cancel();
        signal.removeEventListener("abort", closed);
        finish();
      };
      if (signal.aborted) closed();
      else signal.addEventListener("abort", closed, { once: true });
      work.then(
        (value) => settle(() => resolve(value)),
        (thrown: unknown) => settle(() => reject(thrown)),
      );
    });
  }

  /** Gives the socket up. */
  close(): void {
    this.#stop();
    this.#controller.abort(new Error("connection closed"));
  }
}

export interface BodyWatch {
  /** Bounds a wait for bytes. */
  within<T>(work: Promise<T>): Promise<T>;
  /** Called for bytes that say more than the headers did. */
  alive(): void;
}

/**
 * Whole frames of a body, as they come; blank keepalive lines and a last line that was cut are dropped. Ends when the
 * body ends in an orderly way, throws when it breaks.
 */
export async function* framesOf(body: ReadableStream<Uint8Array>, watch: BodyWatch): AsyncGenerator<Frame, void> {
  const reader = body.getReader();
  const splitter = new LineSplitter(MAX_LINE_BYTES, MAX_LINE_BYTES);
  let opening = true;
  for (;;) {
    const piece = await watch.within(reader.read());
    if (piece.done) return;
    // The daemon opens each body with a keepalive to send its headers off: that one is a part of them.
    const keepaliveOnly = piece.value.length === 1 && piece.value[0] === NEWLINE;
    if (!(opening && keepaliveOnly)) watch.alive();
    opening = false;
    for (const item of splitter.push(piece.value)) {
      if (item.type !== "lines") throw new ProtocolError(`a line of more than ${MAX_LINE_BYTES} bytes`);
      for (const line of item.lines) if (line !== "") yield parseFrame(line);
    }
  }
}

const texts = new WeakMap<Frame, string>();

/** The line that a frame was read from: numbers in it are as they were written, which a parsed frame cannot say. */
export function frameText(frame: Frame): string {
  return texts.get(frame) ?? JSON.stringify(frame);
}

function parseFrame(line: string): Frame {
  const value = parseObject(line);
  if (!Number.isSafeInteger(value?.seq) || !Array.isArray(value?.chunks)) throw new ProtocolError("a line is no frame");
  const frame = value as unknown as Frame;
  texts.set(frame, line);
  return frame;
}
