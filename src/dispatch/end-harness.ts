/** How a harness ends: by its outcome, by its exit, by a stop; and how what it left behind is ended. */
import type { Clock } from "../clock/port.ts";
import type { Config } from "../config.ts";
import type { Outcome } from "../frames/frame.ts";
import type { EndReport, ExitStatus, RunProcess } from "../process/port.ts";
import type { FrameForwarder } from "./forward-frames.ts";
import type { Attempt } from "./run.ts";

const STALL_CHECK_MS = 250;
/** From SIGTERM to SIGKILL when the daemon is to end: the pod does not wait for a longer grace. */
const SHUTDOWN_GRACE_MS = 5000;
/** What a harness needs to leave after its outcome: writing a transcript takes one up to 0.3 s (measured). */
const LEAVE_MS = 1000;

type Limits = Pick<Config, "harnessStallMs" | "runMaxMs" | "eofGraceMs" | "exitGraceMs" | "killGraceMs">;

/** Forwards until the attempt has its outcome. */
export async function watchHarness(
  attempt: Attempt,
  process: RunProcess,
  forwarder: FrameForwarder,
  limits: Limits,
  clock: Clock,
): Promise<void> {
  // Goes on after this function, until stdout ends, so that a harness with something left to print can leave.
  const forwarded = forwarder.run(process.stdout).catch((error: unknown) => {
    forwarder.reportFailure(error);
    attempt.stop({ code: "internal", message: "the daemon failed to read the harness's output" });
    throw error;
  });
  const stopClocks = watchClocks(attempt, forwarder, limits, clock);
  try {
    const exit = await Promise.race([process.exited, attempt.concluded]);
    if (exit) await readToEnd(attempt, process, forwarded, limits, clock);
    if (exit) await forwarder.conclude(outcomeOfExit(exit));
  } finally {
    stopClocks();
    forwarded.catch(() => {}); // Reported above.
  }
}

/**
 * After the exit stdout may stay open in a descendant's hands: it is read for `eofGraceMs`, however busy that keeps us.
 * What had arrived by then is still worked on.
 */
async function readToEnd(
  attempt: Attempt,
  process: RunProcess,
  forwarded: Promise<void>,
  limits: Limits,
  clock: Clock,
): Promise<void> {
  const timer = new AbortController();
  await Promise.race([forwarded, attempt.concluded, clock.sleep(limits.eofGraceMs, timer.signal)]);
  timer.abort();
  process.closeOutput();
  await Promise.race([forwarded, attempt.concluded]);
}

/** The stall of a silent harness and the longest turn, where they are set. */
function watchClocks(attempt: Attempt, forwarder: FrameForwarder, limits: Limits, clock: Clock): () => void {
  const stops: (() => void)[] = [];
  const { harnessStallMs, runMaxMs } = limits;
  if (harnessStallMs > 0) {
    stops.push(
      clock.every(Math.min(STALL_CHECK_MS, harnessStallMs), () => {
        // While it is held back by a slow disk, its silence is ours.
        if (forwarder.busy || clock.monotonic() - forwarder.activeAt < harnessStallMs) return;
        attempt.stopOrPark({
          code: "harness_stalled",
          message: `the harness printed nothing for ${harnessStallMs} ms`,
        });
      }),
    );
  }
  if (runMaxMs > 0) {
    stops.push(
      clock.after(runMaxMs, () =>
        attempt.stopOrPark({ code: "turn_failed", message: `the turn took longer than ${runMaxMs} ms` }),
      ),
    );
  }
  return () => {
    for (const stop of stops) stop();
  };
}

function outcomeOfExit(exit: ExitStatus): Outcome {
  const crashed = (message: string): Outcome => ({ type: "failed", error: { code: "harness_crashed", message } });
  switch (exit.type) {
    case "exit":
      return exit.code === 0 ? { type: "finished" } : crashed(`the harness exited with code ${exit.code}`);
    case "signal":
      return crashed(`the harness was ended by ${exit.signal}`);
    case "unstarted":
      return crashed(`the harness could not be started: ${exit.reason}`);
  }
}

/**
 * Ends what is left. A harness that gave its outcome may leave by itself; one that was stopped is ended at once.
 * `onInert` is called, and awaited, when nothing of it can run code any more.
 */
export async function stopHarness(
  attempt: Attempt,
  process: RunProcess,
  limits: Limits,
  clock: Clock,
  shutdown: AbortSignal,
  onInert: () => Promise<void>,
): Promise<EndReport> {
  if (!attempt.stopped) await waitForExit(attempt.signal, process, limits.exitGraceMs, clock);
  const ended = process.end(limits.killGraceMs);
  const hurry = (): void => void process.end(SHUTDOWN_GRACE_MS);
  if (shutdown.aborted) hurry();
  shutdown.addEventListener("abort", hurry, { once: true });
  // The end is bounded, and says what is left: the thread is not held up for longer than that.
  await Promise.race([process.inert, ended]);
  await onInert();
  const report = await ended;
  shutdown.removeEventListener("abort", hurry);
  process.closeOutput();
  return report;
}

/**
 * Waits up to `graceMs` for the harness to leave. A stop shortens that, but not to nothing: the harness may be writing
 * the end of the transcript, and the next turn often comes as soon as the outcome is read.
 */
async function waitForExit(stop: AbortSignal, process: RunProcess, graceMs: number, clock: Clock): Promise<void> {
  const exited = new AbortController();
  void process.exited.then(() => exited.abort());
  await clock.sleep(graceMs, AbortSignal.any([stop, exited.signal]));
  if (stop.aborted) await clock.sleep(Math.min(graceMs, LEAVE_MS), exited.signal);
}
