/** A CliIo on a process's own streams. */
import { createReadStream } from "node:fs";
import type { WriteStream } from "node:tty";
import { systemClock } from "../clock/system.ts";
import type { CliIo, Output, Person } from "./io.ts";

export interface ProcessIoOptions {
  /** The process's own environment: a proxy is bypassed by writing to it. */
  readonly env: Record<string, string | undefined>;
  readonly version: string;
  readonly process: Pick<NodeJS.Process, "stdin" | "stdout" | "stderr" | "on" | "off">;
  /** Of a terminal, by its descriptor. */
  readonly forgetTyped: (fd: number) => void;
}

export function createProcessIo(options: ProcessIoOptions): CliIo {
  const { env, version, process } = options;
  return {
    env,
    version,
    stdin: { [Symbol.asyncIterator]: () => process.stdin[Symbol.asyncIterator]() as AsyncIterator<Uint8Array> },
    stdout: outputOf(process.stdout),
    stderr: outputOf(process.stderr),
    person: process.stdin.isTTY && process.stderr.isTTY ? personAt(options, env.TERM !== "dumb") : undefined,
    clock: systemClock,
    readFile: (path) => createReadStream(path),
    onInterrupt(handler) {
      process.on("SIGINT", handler);
      return () => void process.off("SIGINT", handler);
    },
    bypassProxy(host) {
      // The platform reads the variable at every request, under either name.
      for (const name of ["NO_PROXY", "no_proxy"]) env[name] = env[name] ? `${env[name]},${host}` : host;
    },
  };
}

function personAt({ process: { stdin, stderr }, forgetTyped }: ProcessIoOptions, editing: boolean): Person {
  return {
    forgetTyped: () => forgetTyped(stdin.fd),
    async read(question, isWhole, signal) {
      const { readTyped } = await import("./read-typed.ts");
      return readTyped({ input: stdin, output: stderr, question, isWhole, editing, signal });
    },
  };
}

function outputOf(stream: WriteStream): Output {
  const closed = new AbortController();
  stream.on("error", () => closed.abort());
  return {
    isTTY: stream.isTTY === true,
    columns: stream.columns,
    closed: closed.signal,
    write(piece) {
      if (piece.length === 0 || closed.signal.aborted) return Promise.resolve();
      return new Promise((resolve) => {
        stream.write(piece, (error) => {
          if (error) closed.abort();
          resolve();
        });
      });
    },
  };
}
