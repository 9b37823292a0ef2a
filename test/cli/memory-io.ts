/**
 * A CliIo in memory: what was written to which stream, what a person types, Ctrl-C on call, a clock that goes a second at
 * a look.
 */

import type { CliIo, Output, Person } from "../../src/cli/io.ts";
import { systemClock } from "../../src/clock/system.ts";

export interface MemoryIoOptions {
  readonly env?: Record<string, string>;
  readonly stdin?: string | readonly Uint8Array[];
  readonly files?: Readonly<Record<string, string>>;
  readonly isTTY?: boolean;
  /** Somebody sits there, and answers with `type`. */
  readonly person?: boolean;
}

export class MemoryIo implements CliIo {
  readonly env: Record<string, string>;
  readonly version = "1.2.3";
  readonly stdin: AsyncIterable<Uint8Array>;
  readonly stdout: Output;
  readonly stderr: Output;
  readonly person: Person | undefined;
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
  #prompt: { question: string; readonly take: (line: string | undefined) => boolean } | undefined;
  readonly #files: Readonly<Record<string, string>>;

  constructor({ env = {}, stdin = "", files = {}, isTTY = false, person = false }: MemoryIoOptions = {}) {
    this.env = env;
    this.#files = files;
    this.stdin = pieces(stdin);
    this.person = person ? { read: (...asked) => this.#read(...asked), forgetTyped() {} } : undefined;
    let looks = 0;
    this.clock = { ...systemClock, monotonic: () => 1000 * looks++ };
    const decoder = new TextDecoder();
    const output = (add: (text: string) => void, closed: AbortSignal): Output => ({
      isTTY,
      columns: isTTY ? 80 : undefined,
      closed,
      write: (piece) => {
        const text = typeof piece === "string" ? piece : decoder.decode(piece, { stream: true });
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

  #read(question: string, isWhole: (text: string) => boolean, signal: AbortSignal): Promise<string | undefined> {
    if (this.#prompt) throw new Error("two prompts at a time");
    this.terminal += question;
    const lines: string[] = [];
    return new Promise((resolve) => {
      const prompt = {
        question,
        take(text: string | undefined): boolean {
          if (text !== undefined) lines.push(text);
          const typed = text === undefined ? undefined : lines.join("\n");
          if (typed !== undefined && !isWhole(typed)) return false;
          resolve(typed);
          return true;
        },
      };
      this.#prompt = prompt;
      signal.addEventListener("abort", () => this.#prompt === prompt && this.type(undefined), { once: true });
    });
  }

  bypassProxy(host: string): void {
    this.bypassed.push(host);
  }

  /** True when somebody listens for Ctrl-C. */
  get interruptible(): boolean {
    return this.#interrupt !== undefined;
  }

  /** The prompt that a person sees. */
  get prompt(): string | undefined {
    return this.#prompt?.question;
  }

  /** Types a line, or pastes some; undefined is the end of the input. */
  type(text: string | undefined): void {
    const prompt = this.#prompt;
    if (!prompt) throw new Error(`nobody reads what is typed: ${text}`);
    this.terminal += `${text ?? ""}\n`;
    if (prompt.take(text)) this.#prompt = undefined;
    else prompt.question = "… ";
  }

  ctrlC(): void {
    // At a prompt it is a key like any other.
    if (this.#prompt) this.type(undefined);
    else if (this.#interrupt) this.#interrupt();
    else throw new Error("nobody listens for Ctrl-C: the process would end");
  }
}

async function* pieces(source: string | readonly Uint8Array[]): AsyncGenerator<Uint8Array, void> {
  yield* typeof source === "string" ? [Buffer.from(source)] : source;
}
