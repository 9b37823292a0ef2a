/**
 * Ends what an earlier daemon left: every process whose environment carries a marker with its nonce, and what
 * descends from such a process. What has neither is nobody's that we know, and is not touched.
 */
import type { Clock } from "../clock/port.ts";
import { signalExactly } from "./kill-ladder.ts";
import type { MarkerReader } from "./markers.ts";
import { identityOf, type ProcEntry, type ProcTable } from "./proc-table.ts";

const SWEEP_MS = 5000;
const PAUSE_MS = 10;
/** Processes whose environment hangs are few: each is a process of an agent that hangs at a mount. */
const MAX_HANGS = 8;

export interface LeftoverSweep {
  readonly clock: Clock;
  readonly nonce: string;
  readonly markers: MarkerReader;
  readonly freshTable: () => Promise<ProcTable>;
}

/** Looks and kills until a look finds nobody. Resolves with how many were killed. */
export async function endLeftovers({ clock, nonce, markers, freshTable }: LeftoverSweep): Promise<number> {
  const marked = new Set<string>();
  const asked = new Set<string>();
  const killed = new Set<string>();
  const until = clock.monotonic() + SWEEP_MS;
  for (;;) {
    const table = await freshTable();
    const ours = lineOfDescent(table);
    const strangers = [...table.values()].filter((entry) => entry.alive && !ours.has(entry.pid));
    const unknown = strangers.filter((entry) => !asked.has(identityOf(entry)));
    for (const [identity, marker] of await markers.read(unknown, MAX_HANGS)) {
      if (marker?.startsWith(`${nonce}:`)) marked.add(identity);
    }
    for (const entry of unknown) asked.add(identityOf(entry));
    const leftovers = strangers.filter((entry) => descendsFrom(table, entry, marked));
    for (const entry of leftovers) {
      // What descends from a marked process stays one of ours when its parent is gone.
      marked.add(identityOf(entry));
      if (signalExactly(entry, "SIGKILL") === "sent") killed.add(identityOf(entry));
    }
    if (leftovers.length === 0 || clock.monotonic() >= until) return killed.size;
    await clock.sleep(PAUSE_MS);
  }
}

/** This process and those it descends from: a daemon may have been started out of a run, of this one's predecessor even. */
function lineOfDescent(table: ProcTable): ReadonlySet<number> {
  const pids = new Set([process.pid]);
  for (let at = table.get(process.pid); at; at = table.get(at.ppid)) pids.add(at.pid);
  return pids;
}

/** Descent does not go through this process, for the same reason. */
function descendsFrom(table: ProcTable, entry: ProcEntry, marked: ReadonlySet<string>): boolean {
  for (let at: ProcEntry | undefined = entry; at && at.pid !== process.pid; at = table.get(at.ppid)) {
    if (marked.has(identityOf(at))) return true;
  }
  return false;
}
