/** Somebody who reads an attempt's frames: the owner (its POST) or a reader by GET. */
import type { Attempt } from "./run.ts";

/** The two ends of the reader's connection, as the kernel names them. */
export interface Connection {
  readonly localPort: number;
  readonly remoteAddress: string;
  readonly remotePort: number;
}

export class Reader {
  /** How far in the log it was handed bytes, and how far whole frames. */
  offset: number;
  wholeOffset: number;
  /** All bytes of the body that the runtime has taken so far, keepalives included. */
  handedBytes = 0;
  #ended = false;
  #wake: () => void = () => {};
  #onLost: (why: string) => void = () => {};

  constructor(
    readonly attempt: Attempt,
    start: number,
    readonly connection: Connection | undefined,
  ) {
    this.offset = start;
    this.wholeOffset = start;
  }

  /** True when its body is to end after the line that it is in: a newer owner came. */
  get ended(): boolean {
    return this.#ended;
  }

  end(): void {
    this.#ended = true;
    this.#wake();
  }

  /** Nobody takes its bytes any more: the connection is closed as it is. */
  lose(why: string): void {
    this.#onLost(why);
  }

  /** Calls `wake` at `end()`. One waiter at a time: the pump. */
  onEnd(wake: () => void): void {
    this.#wake = wake;
  }

  /** Calls `close` at `lose()`. */
  onLost(close: (why: string) => void): void {
    this.#onLost = close;
  }
}
