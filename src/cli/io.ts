/** What a command may touch of the process that it runs in. */
import type { Clock } from "../clock/port.ts";

export interface CliIo {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly version: string;
  readonly stdin: AsyncIterable<Uint8Array>;
  readonly stdout: Output;
  readonly stderr: Output;
  /** Somebody who can be asked. Undefined where there is no terminal to type at, or none to read. */
  readonly person: Person | undefined;
  readonly clock: Clock;
  /** Throws when the file cannot be read. */
  readFile(path: string): AsyncIterable<Uint8Array>;
  /** Calls `handler` for every Ctrl-C, in place of the process's end; the returned function ends that. */
  onInterrupt(handler: () => void): () => void;
  /** Connections to `host` shall not go through a proxy that the environment names. */
  bypassProxy(host: string): void;
}

export interface Person {
  /**
   * What is typed behind `question`: a line, or more of them, where they come in one piece (pasted) or `isWhole` says of
   * those so far that they are not all. Undefined: they went away (Ctrl-C, end of input), or `signal` aborted.
   */
  read(question: string, isWhole: (text: string) => boolean, signal: AbortSignal): Promise<string | undefined>;
  /** What they typed up to now, before they could see what comes next, is no answer to it. */
  forgetTyped(): void;
}

export interface Output {
  readonly isTTY: boolean;
  /** Width of the terminal; undefined when it is none. */
  readonly columns: number | undefined;
  /** Aborts when nobody reads any more. */
  readonly closed: AbortSignal;
  /** Resolves when it is on its way; also when nobody reads. Bytes are written as they are. */
  write(piece: string | Uint8Array): Promise<void>;
}

/** One subcommand, loaded when it is called for. */
export interface CommandModule {
  /** Resolves with the exit code. Throws UsageError for what the caller got wrong. */
  main(argv: readonly string[], io: CliIo): Promise<number>;
}

/** For the person who typed it: says what is wrong and not where. */
export class UsageError extends Error {}

export async function readAll(source: AsyncIterable<Uint8Array>): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const piece of source) text += decoder.decode(piece, { stream: true });
  return text + decoder.decode();
}
