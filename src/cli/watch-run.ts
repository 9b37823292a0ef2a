/** Prints a run until it ends, or until whoever watches has enough. */
import { DispatchdError, type Frame, type Run, type RunResult } from "../client/index.ts";
import { EXIT, EXIT_OF_ENDING } from "./exit-codes.ts";
import type { CliIo } from "./io.ts";
import { type Piece, PrettyFrames } from "./pretty-frames.ts";
import { styleOf } from "./style.ts";

export interface WatchOptions {
  /** Frames as lines of JSON, in place of the pretty form. */
  readonly json: boolean;
  readonly threadId?: string;
  /** What the first Ctrl-C does. The second one always leaves. */
  readonly onInterrupt: "cancel" | "leave";
}

const DEFAULT_COLUMNS = 100;

/** Resolves with the exit code. */
export async function watchRun(run: Run, io: CliIo, options: WatchOptions): Promise<number> {
  const printer = options.json ? jsonPrinter(io) : prettyPrinter(run, io, options.threadId);
  const left = new AbortController();
  const leave = (): void => {
    left.abort();
    run.detach();
  };
  let interrupts = 0;
  const stopListening = io.onInterrupt(() => {
    if (++interrupts > 1 || options.onInterrupt === "leave") return leave();
    void printer.note("cancelling (Ctrl-C again leaves at once)");
    run.cancel().catch((thrown: unknown) => {
      void printer.note(`not cancelled: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
    });
  });
  io.stdout.closed.addEventListener("abort", leave, { once: true });
  // A terminal that takes nothing must not keep the one who wants to leave.
  const gone = new Promise<void>((resolve) => left.signal.addEventListener("abort", () => resolve(), { once: true }));
  try {
    await Promise.race([printFrames(run, printer), gone]);
    if (io.stdout.closed.aborted) return EXIT.brokenPipe;
    const result = await run.result();
    const printed = printer.finished(result);
    if (!left.signal.aborted) await Promise.race([printed, gone]);
    return left.signal.aborted ? EXIT.interrupted : EXIT_OF_ENDING[result.type];
  } finally {
    stopListening();
    io.stdout.closed.removeEventListener("abort", leave);
  }
}

interface Printer {
  frame(frame: Frame): Promise<void>;
  note(text: string): Promise<void>;
  finished(result: RunResult): Promise<void>;
}

async function printFrames(run: Run, printer: Printer): Promise<void> {
  try {
    for await (const frame of run.frames()) await printer.frame(frame);
  } catch (thrown) {
    // The result says it too, and has an exit code.
    if (!(thrown instanceof DispatchdError)) throw thrown;
  }
}

function jsonPrinter(io: CliIo): Printer {
  return {
    frame: (frame) => io.stdout.write(`${JSON.stringify(frame)}\n`),
    note: (text) => io.stderr.write(`${text}\n`),
    async finished(result) {
      // The last frame has said it. What ended without one is told apart.
      if (result.complete) return;
      const { cause: _, ...facts } = result as RunResult & { cause?: unknown };
      await io.stderr.write(`${JSON.stringify(facts)}\n`);
    },
  };
}

function prettyPrinter(run: Run, io: CliIo, threadId: string | undefined): Printer {
  const began = io.clock.monotonic();
  const pretty = new PrettyFrames({
    style: styleOf(io.stderr, io.env),
    columns: io.stderr.columns ?? DEFAULT_COLUMNS,
    elapsedMs: () => io.clock.monotonic() - began,
  });
  let written = Promise.resolve();
  // One after the other, whoever asks: the pieces of two must not be mixed.
  const print = (pieces: readonly Piece[]): Promise<void> => {
    for (const { to, text } of pieces) written = written.then(() => io[to].write(text));
    return written;
  };
  run.started().then(
    ({ attempt }) => print(pretty.started(run.runId, attempt, threadId)),
    () => {}, // The result says why.
  );
  return {
    frame: (frame) => print(pretty.frame(frame)),
    note: (text) => print(pretty.note(text)),
    finished: (result) => print(pretty.finished(result)),
  };
}
