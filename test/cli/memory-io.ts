/** A CliIo in memory: what was written to which stream, Ctrl-C on call, a clock that goes a second at a look. */

import type { CliIo, Output } from "../../src/cli/io.ts";
import { systemClock } from "../../src/clock/system.ts";

export interface MemoryIoOptions {
  readonly env?: Record<string, string>;
  readonly stdin?: string | readonly Uint8Array[];
  readonly files?: Readonly<Record<string, string>>;
  readonly isTTY?: boolean;
}

export class MemoryIo implements CliIo {
  readonly env: Record<string, string>;
  readonly version = "1.2.3";
  readonly stdin: AsyncIterable<Uint8Array>;
  readonly stdout: Output;
  readonly stderr: Output;
  readonly clock: CliIo["clock"];
  readonly bypassed: string[] = [];
  readonly stdoutClosed = new AbortController();
  /** Both streams, as one terminal shows them. */
  terminal = "";
  out = "";
  err = "";
  /** While set, no write to stdout resolves. */
  stuck = false;
  #interrupt: (() => void) | undefined;
  readonly #files: Readonly<Record<string, string>>;

  constructor({ env = {}, stdin = "", files = {}, isTTY = false }: MemoryIoOptions = {}) {
    this.env = env;
    this.#files = files;
    this.stdin = pieces(stdin);
    let looks = 0;
    this.clock = { ...systemClock, monotonic: () => 1000 * looks++ };
    const output = (add: (text: string) => void, closed: AbortSignal): Output => ({
      isTTY,
      columns: isTTY ? 80 : undefined,
      closed,
      write: (text) => {
        this.terminal += text;
        add(text);
        return this.stuck ? new Promise(() => {}) : Promise.resolve();
      },
    });
    this.stdout = output((text) => {
      this.out += text;
    }, this.stdoutClosed.signal);
    this.stderr = output((text) => {
      this.err += text;
    }, new AbortController().signal);
  }

  readFile(path: string): AsyncIterable<Uint8Array> {
    const text = this.#files[path];
    if (text === undefined) throw new Error(`no such file: ${path}`);
    return pieces(text);
  }

  onInterrupt(handler: () => void): () => void {
    this.#interrupt = handler;
    return () => {
      this.#interrupt = undefined;
    };
  }

  bypassProxy(host: string): void {
    this.bypassed.push(host);
  }

  /** True when somebody listens for Ctrl-C. */
  get interruptible(): boolean {
    return this.#interrupt !== undefined;
  }

  ctrlC(): void {
    if (!this.#interrupt) throw new Error("nobody listens for Ctrl-C: the process would end");
    this.#interrupt();
  }
}

async function* pieces(source: string | readonly Uint8Array[]): AsyncGenerator<Uint8Array, void> {
  yield* typeof source === "string" ? [Buffer.from(source)] : source;
}
