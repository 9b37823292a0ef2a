/** What a flight that was to save a run's session came to. */
import type { Settled } from "../frames/frame.ts";
import type { FlightResult } from "../orgfs/port.ts";
import { runKeyOf, type SaveName } from "./save-name.ts";
import type { SaveReport } from "./save-session.ts";
import { keyOfRun, type StateFile } from "./thread-state.ts";

/** Where the run's saves are known on this pod. */
interface RunState {
  readonly state: StateFile;
  /** The run, as `SavingRun.id`. */
  readonly run: string;
}

export interface Saved {
  readonly settled: Settled;
  /** Another run has used the suspension that was to be claimed. */
  readonly usedBy?: string;
  /** `ends`: this run saves no more. `later`: the volume was at fault, and another time it may work. */
  readonly next: "goes on" | "later" | "ends";
}

export async function settleSave(
  result: FlightResult<SaveReport>,
  before: SaveName | undefined,
  store: RunState,
): Promise<Saved> {
  if (result.type === "done") return settleReport(result.output);
  // It may have been lost after it had written.
  const generation = await newestOf(store);
  if (generation !== undefined && generation !== before)
    return { settled: { saved: true, generation }, next: "goes on" };
  const settled = { saved: false, ...(generation ? { generation } : {}), reason: reasonOf(result) };
  return { settled, next: "later" };
}

export function notSaved(reason: string, next: Saved["next"]): Saved {
  return { settled: { saved: false, reason }, next };
}

function reasonOf(result: Exclude<FlightResult<unknown>, { type: "done" }>): string {
  switch (result.type) {
    case "failed":
      return `the save failed: ${result.code}`;
    case "overdue":
      return "the org volume did not take the save in time";
    case "refused":
      return "the org volume hangs";
    case "aborted":
      return "the save was called off";
  }
}

function settleReport(report: SaveReport): Saved {
  switch (report.type) {
    case "saved":
      return { settled: { saved: true, generation: report.name, bytes: report.bytes }, next: "goes on" };
    case "unchanged":
      return { settled: { saved: true, generation: report.name, bytes: 0 }, next: "goes on" };
    case "no-transcript":
      return notSaved("the session has no transcript", "goes on");
    case "passed":
      return notSaved("a later run has saved the thread", "ends");
    case "superseded":
      return notSaved("the thread's next run on this pod saves it", "ends");
    case "used":
      return { ...notSaved("another run has used the suspension", "ends"), usedBy: report.by };
  }
}

/** The newest save of this run that the pod knows of. */
export async function newestOf({ state, run }: RunState): Promise<SaveName | undefined> {
  const known = await state.read().catch(() => undefined);
  if (known?.run?.id !== run || !known.last) return undefined;
  return runKeyOf(known.last.name) === keyOfRun(known.run) ? known.last.name : undefined;
}
