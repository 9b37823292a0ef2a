/** The harness as a process: stdin, stdout, stderr and signals of whoever started it. */
import type { Readable, Writable } from "node:stream";
import { runClaudeCodeHarness } from "./main.ts";

export interface HarnessProgramIo {
  readonly stdin: Readable;
  readonly stdout: Writable;
  readonly stderr: Writable;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly onSignal: (listener: () => void) => void;
}

/** Resolves with the exit code, when everything is written and Claude Code is gone. */
export async function runHarnessProgram(io: HarnessProgramIo): Promise<number> {
  const stopped = new AbortController();
  io.onSignal(() => stopped.abort());
  // Who reads us is gone: nobody is left to work for.
  io.stdout.on("error", () => stopped.abort());
  const chunks: Buffer[] = [];
  for await (const chunk of io.stdin) chunks.push(chunk);
  return runClaudeCodeHarness({
    stdin: Buffer.concat(chunks).toString(),
    env: io.env,
    write: (line) => writeThrough(io.stdout, line),
    log: (line) => void io.stderr.write(`${line}\n`),
    signal: stopped.signal,
  });
}

/** Resolves when the line has left this process, so that a reader that waits holds the turn back. */
function writeThrough(stdout: Writable, line: string): Promise<void> {
  return new Promise((resolve) => {
    // An error is reported by the event, and ends the harness there.
    stdout.write(line, () => resolve());
  });
}
