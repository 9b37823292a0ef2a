/** Prints a run until it ends, or until whoever watches has enough; with somebody to ask, what it asks is put to them. */
import { DispatchdError, type Frame, type Run, type RunResult, type Suspended } from "../client/index.ts";
import { EXIT, EXIT_OF_ENDING, type ExitCode } from "./exit-codes.ts";
import type { CliIo } from "./io.ts";
import { type Answers, LiveQuestions } from "./live-questions.ts";
import { resumableOf } from "./lost-waiting.ts";
import { jsonPrinter, type Printer, prettyPrinter } from "./run-printer.ts";

export interface WatchOptions {
  /** Frames as lines of JSON, in place of the pretty form. */
  readonly json: boolean;
  readonly threadId?: string;
  /** What the first Ctrl-C does. The second one always leaves. */
  readonly onInterrupt: "cancel" | "leave";
  /** Asks for what is open, and gives the answers that are there. Absent: the questions are only shown. */
  readonly questions?: {
    readonly answers: Answers;
    /** Somebody sits there. */
    readonly asks: boolean;
  };
}

export interface Watched {
  readonly code: ExitCode;
  /** Absent: it was left. */
  readonly result?: RunResult;
  /** True when it was left at a question. */
  readonly leftAsking: boolean;
  /** What it waited for, when its pod was lost. */
  readonly lost?: Suspended;
}

export async function watchRun(run: Run, io: CliIo, options: WatchOptions): Promise<Watched> {
  const asks = options.questions?.asks ?? false;
  const printer = options.json ? jsonPrinter(io) : prettyPrinter(run, io, { threadId: options.threadId, asks });
  const left = new AbortController();
  const leave = (): void => {
    left.abort();
    run.detach();
  };
  const questions = options.questions && new LiveQuestions({ run, io, printer, ...options.questions, onLeft: leave });
  let interrupts = 0;
  const stopListening = io.onInterrupt(() => {
    if (questions?.asking) return questions.leave();
    if (++interrupts > 1 || options.onInterrupt === "leave") return leave();
    void printer.note("cancelling (Ctrl-C again leaves at once)");
    run.cancel().catch((thrown: unknown) => {
      void printer.note(`not cancelled: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
    });
  });
  io.stdout.closed.addEventListener("abort", leave, { once: true });
  // A terminal that takes nothing must not keep the one who wants to leave.
  const gone = new Promise<void>((resolve) => left.signal.addEventListener("abort", () => resolve(), { once: true }));
  const leftAs = (code: ExitCode): Watched => ({ code, leftAsking: questions?.left ?? false });
  try {
    let waited: Suspended | undefined;
    let ended = false;
    const look = (frame: Frame): void => {
      ended ||= frame.outcome !== undefined;
      if (frame.waiting) waited = resumableOf(frame.waiting);
      // What closes a question before the outcome is its answer.
      else if (!ended && !run.waiting) waited = undefined;
      questions?.look();
    };
    await Promise.race([printFrames(run, printer, look, questions), gone]);
    if (io.stdout.closed.aborted) return leftAs(EXIT.brokenPipe);
    if (questions?.left) return leftAs(EXIT.waiting);
    const result = await run.result();
    const printed = printer.finished(result);
    if (!left.signal.aborted) await Promise.race([printed, gone]);
    return left.signal.aborted
      ? leftAs(EXIT.interrupted)
      : { code: EXIT_OF_ENDING[result.type], result, leftAsking: false, ...lostBy(result, waited) };
  } finally {
    stopListening();
    io.stdout.closed.removeEventListener("abort", leave);
  }
}

function lostBy({ type }: RunResult, waited: Suspended | undefined): Pick<Watched, "lost"> {
  return waited && (type === "gone" || type === "unreachable") ? { lost: waited } : {};
}

async function printFrames(
  run: Run,
  printer: Printer,
  look: (frame: Frame) => void,
  questions: LiveQuestions | undefined,
): Promise<void> {
  try {
    for await (const frame of run.frames()) {
      await printer.frame(frame);
      look(frame);
    }
  } catch (thrown) {
    // The result says it too, and has an exit code.
    if (!(thrown instanceof DispatchdError)) throw thrown;
  }
  questions?.look();
  await questions?.idle();
}
