/** What a thread's state becomes when a run begins: its place in the order, and what it goes on from. Pure. */
import type { RestoreReport } from "./restore-session.ts";
import { LINE_RUNS } from "./save-head.ts";
import { isMarked, placeOf, type SaveName, turnAfter } from "./save-name.ts";
import { keyOfRun, type LastSave, type SavingRun, type StoredFile, type ThreadState } from "./thread-state.ts";

export interface RunToBegin {
  /** 16 random digits and lower-case letters. */
  readonly id: string;
  /** `input.fence`. */
  readonly fence?: number;
  /** The newest save that the caller knows of: seen, even if it never reached the volume. */
  readonly hint?: SaveName;
}

export type Start =
  /** This pod's own session. */
  | { readonly source: "local"; readonly report?: RestoreReport }
  /** What the report restored, with the inodes that the files have now. */
  | { readonly source: "stored"; readonly report: RestoreReport; readonly files: readonly StoredFile[] }
  /** Nothing: a new conversation. */
  | { readonly source: "none"; readonly report?: RestoreReport };

/** Without a report nothing is known of the store: the run is blind. */
export function stateOfRun(state: ThreadState, { id, fence, hint }: RunToBegin, start: Start): ThreadState {
  const { report } = start;
  const blind = report === undefined || report.choice.blind;
  const pick = start.source === "local" ? state.last : report?.choice.pick;
  const place = pick && placeOf(pick.name);
  const before = state.run;
  const hinted = hint && placeOf(hint);
  const highest = Math.max(report?.fence ?? 0, before?.fence ?? 0, hinted?.fence ?? 0);
  const known = Math.max(place?.fence ?? 0, fence === undefined ? highest : 0);
  const parent = parentAfter(pick);
  const run: SavingRun = {
    id,
    fence: Math.max(fence ?? 0, known),
    // The pod's own earlier run counts as seen: a save of it may be on its way that nobody can see yet.
    turn: Math.max(report?.turn ?? 1, turnAfter(Math.max(place?.turn ?? 0, before?.turn ?? 0, hinted?.turn ?? 0))),
    number: 0,
    marked: blind,
    ...(report ? {} : { unlisted: { fenced: fence !== undefined } }),
    ...(parent ? { parent } : {}),
    ...(report?.choice.passedOver ? { passedOver: report.choice.passedOver } : {}),
  };
  const restored = start.source === "stored" ? start.report.restored : undefined;
  const ancestors = start.source === "local" ? state.line : (restored?.line ?? []);
  const line = [keyOfRun(run), ...ancestors].slice(0, LINE_RUNS);
  const own = { own: state.own, ...(state.proof ? { proof: state.proof } : {}) };
  if (start.source === "local") return { ...state, run, line };
  if (start.source === "none") return { ...own, run, line, files: [], saves: {}, ...(pick ? { last: pick } : {}) };
  const isProof = pick !== undefined && !isMarked(pick.name) && start.files.length > 0;
  return {
    ...own,
    ...(isProof ? { proof: { name: pick.name, refs: refsIn(restored?.saves) } } : {}),
    ...(pick ? { last: pick } : {}),
    ...(restored ? { session: { id: restored.session, harness: restored.harness } } : {}),
    run,
    line,
    files: start.files,
    saves: restored?.saves ?? {},
    ...(restored?.used ? { used: restored.used } : {}),
  };
}

function parentAfter(pick: LastSave | undefined): LastSave["parent"] {
  if (!pick) return undefined;
  return isMarked(pick.name) ? pick.parent : pick.name;
}

function refsIn(saves: Readonly<Record<string, number>> = {}): NonNullable<ThreadState["proof"]>["refs"] {
  return Object.keys(saves) as (keyof typeof saves & LastSave["name"])[];
}
