/** Somebody who reads an attempt's frames: the owner (its POST) or a reader by GET. */
import type { Attempt } from "./run.ts";

/** The two ends of the reader's connection, as the kernel names them. */
export interface Connection {
  readonly localPort: number;
  readonly remoteAddress: string;
  readonly remotePort: number;
}

export class Reader {
  /** How far it was handed bytes, and how far whole frames. */
  offset: number;
  wholeOffset: number;
  /** When bytes were last taken off our hands; a reader that is owed bytes and takes none is lost in the end. */
  tookAt: number;
  /** True while bytes that it was handed wait in the socket, or more wait in the log. */
  blocked = false;
  #ended = false;
  #wake: () => void = () => {};

  constructor(
    readonly attempt: Attempt,
    start: number,
    now: number,
    readonly connection: Connection | undefined,
  ) {
    this.offset = start;
    this.wholeOffset = start;
    this.tookAt = now;
  }

  /** True when its body is to end after the line that it is in: a newer owner came, or it was lost. */
  get ended(): boolean {
    return this.#ended;
  }

  end(): void {
    this.#ended = true;
    this.#wake();
  }

  /** Calls `wake` at `end()`. One waiter at a time: the pump. */
  onEnd(wake: () => void): void {
    this.#wake = wake;
  }
}
