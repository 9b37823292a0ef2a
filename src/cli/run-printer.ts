/** Where a run is printed: as lines of JSON, or for people; and the pauses in which a question has the terminal. */
import { type Frame, frameText, type Run, type RunResult } from "../client/index.ts";
import type { CliIo } from "./io.ts";
import { type Piece, PrettyFrames } from "./pretty-frames.ts";
import { type Style, styleOf } from "./style.ts";

export interface Printer {
  /** Resolves when the next frame may come. */
  frame(frame: Frame): Promise<void>;
  note(text: string): Promise<void>;
  finished(result: RunResult): Promise<void>;
  /** Resolves when all is written that came before. From then on what comes is kept, until `release`. */
  hold(): Promise<void>;
  release(): void;
}

const DEFAULT_COLUMNS = 100;
/** While a question has the terminal the run is read on, as its end may make the question void; but not without limit. */
const MAX_KEPT_CHARS = 1 << 20;

export function columnsOf(io: CliIo): number {
  return io.stderr.columns ?? DEFAULT_COLUMNS;
}

export function jsonPrinter(io: CliIo): Printer {
  return {
    frame: (frame) => io.stdout.write(`${frameText(frame)}\n`),
    note: (text) => io.stderr.write(`${text}\n`),
    async finished(result) {
      // The last frame has said it. What ended without one is told apart.
      if (result.complete) return;
      const { cause: _, ...facts } = result as RunResult & { cause?: unknown };
      await io.stderr.write(`${JSON.stringify(facts)}\n`);
    },
    hold: async () => {},
    release() {},
  };
}

export interface PrettyPrinterOptions {
  readonly threadId: string | undefined;
  /** The questions are put to whoever sits there: they need not be printed. */
  readonly asks: boolean;
}

export function prettyPrinter(run: Run, io: CliIo, { threadId, asks }: PrettyPrinterOptions): Printer {
  const began = io.clock.monotonic();
  const style: Style = styleOf(io.stderr, io.env);
  const elapsedMs = (): number => io.clock.monotonic() - began;
  const pretty = new PrettyFrames({ style, columns: columnsOf(io), elapsedMs, asks });
  let written = Promise.resolve();
  let held: { readonly promise: Promise<void>; readonly release: () => void } | undefined;
  let keptChars = 0;
  // One after the other, whoever asks: the pieces of two must not be mixed.
  const print = (pieces: readonly Piece[]): Promise<void> => {
    for (const { to, text } of pieces) written = written.then(() => io[to].write(text));
    if (!held) return written;
    for (const { text } of pieces) keptChars += text.length;
    return keptChars > MAX_KEPT_CHARS ? written : Promise.resolve();
  };
  run.started().then(
    ({ attempt }) => print(pretty.started(run.runId, attempt, threadId)),
    () => {}, // The result says why.
  );
  return {
    frame: (frame) => print(pretty.frame(frame)),
    note: (text) => print(pretty.note(text)),
    finished: (result) => print(pretty.finished(result)),
    hold() {
      const before = print(pretty.pause());
      let release = (): void => {};
      const promise = new Promise<void>((resolve) => {
        release = resolve;
      });
      held = { promise, release };
      written = before.then(() => promise);
      return before;
    },
    release() {
      held?.release();
      held = undefined;
      keptChars = 0;
    },
  };
}
