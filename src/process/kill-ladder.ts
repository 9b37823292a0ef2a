/**
 * Ends everything of one run:
 *
 *     look → SIGTERM to the group → grace → SIGKILL to the group → look and SIGKILL, until a look finds nothing
 *
 * - It looks before the first signal, while the tree hangs together: what becomes an orphan later is known by then.
 * - A process that got SIGKILL cannot fork any more. So a look that begins after the last SIGKILL, and finds nobody
 *   who did not get one, proves that the run can run no more code: `inert`.
 * - Whoever forks faster than we look is met again at the next look. All of it ends after SWEEP_MS, in spite of
 *   processes that do not die; those are reported, and looked after by the slow sweep of `run-processes.ts`.
 */
import type { Clock } from "../clock/port.ts";
import { errnoOf } from "../errors.ts";
import type { RunTree } from "./attribution.ts";
import { visitInSlices } from "./in-slices.ts";
import type { EndReport } from "./port.ts";
import type { ProcEntry } from "./proc-table.ts";
import { identityOf, readProcEntry } from "./proc-table.ts";

const SWEEP_MS = 2000;
/** A killed process is gone within a millisecond or two, a large one within some tens. */
const FIRST_PAUSE_MS = 1;
const LONGEST_PAUSE_MS = 100;

/** Every process that is alive and the run's now, as far as can be told; undefined when nobody could look. */
export type Look = () => Promise<readonly ProcEntry[] | undefined>;

/** How long the group may still take. `shorten` is the only way to change it. */
export class Grace {
  readonly #clock: Clock;
  #until: number;
  #wake = new AbortController();

  constructor(clock: Clock, graceMs: number) {
    this.#clock = clock;
    this.#until = clock.monotonic() + graceMs;
  }

  shorten(graceMs: number): void {
    const until = this.#clock.monotonic() + graceMs;
    if (until >= this.#until) return;
    this.#until = until;
    this.wake();
  }

  /** Makes a pause end now. */
  wake(): void {
    this.#wake.abort();
    this.#wake = new AbortController();
  }

  get leftMs(): number {
    return Math.max(0, this.#until - this.#clock.monotonic());
  }

  pause(ms: number): Promise<void> {
    return this.#clock.sleep(Math.min(ms, this.leftMs), this.#wake.signal);
  }
}

export interface Ladder {
  readonly tree: RunTree;
  readonly clock: Clock;
  readonly grace: Grace;
  readonly look: Look;
  /** Called at the first look that proves that the run can run no more code. */
  readonly onInert: () => void;
}

export async function climbKillLadder(ladder: Ladder): Promise<EndReport> {
  const { tree, grace, look } = ladder;
  let entries = await look();
  if (grace.leftMs > 0) {
    signalGroup(tree, entries, "SIGTERM");
    await waitForGroup(ladder);
    entries = await look();
  }
  tree.sweeping = true;
  signalGroup(tree, entries, "SIGKILL");
  return await sweep(ladder);
}

/** Until the group is gone or the grace is over. Who left the group got no SIGTERM and is not waited for. */
async function waitForGroup({ tree, grace, look }: Ladder): Promise<void> {
  for (let pauseMs = FIRST_PAUSE_MS; grace.leftMs > 0; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
    const entries = await look();
    if (entries && !entries.some((entry) => entry.pgrp === tree.pid)) return;
    await grace.pause(pauseMs);
  }
}

/** Kills until a look finds nobody, for at most SWEEP_MS. May be called again for what is left. */
export async function sweep({ tree, clock, look, onInert }: Omit<Ladder, "grace">): Promise<EndReport> {
  const killed = new Set<string>();
  const strays = new Set<string>();
  let left = [tree.pid];
  const until = clock.monotonic() + SWEEP_MS;
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
    const entries = await look();
    if (entries) {
      const fresh = entries.filter((entry) => !killed.has(identityOf(entry)));
      await visitInSlices(fresh, (entry) => {
        const result = signalExactly(entry, "SIGKILL");
        if (result !== "refused") killed.add(identityOf(entry));
        if (result === "sent" && entry.pgrp !== tree.pid) strays.add(identityOf(entry));
      });
      if (fresh.length === 0) onInert();
      else pauseMs = FIRST_PAUSE_MS;
      left = entries.map((entry) => entry.pid);
    }
    if (left.length === 0 || clock.monotonic() >= until) return { strays: strays.size, left };
    await clock.sleep(pauseMs);
  }
}

function signalGroup(tree: RunTree, entries: readonly ProcEntry[] | undefined, signal: NodeJS.Signals): void {
  // As long as the run's own child is there, even as a zombie, nobody else can have its number.
  if (isStill(tree)) send(-tree.pid, signal);
  else for (const entry of entries ?? []) if (entry.pgrp === tree.pid) signalExactly(entry, signal);
}

export type Sent = "sent" | "gone" | "refused";

/** Sends to the process that `entry` describes, and not to a later one with its pid. */
export function signalExactly(entry: ProcEntry, signal: NodeJS.Signals): Sent {
  const still = isStill(entry);
  if (still === undefined) return "refused";
  return still ? send(entry.pid, signal) : "gone";
}

function isStill({ pid, born }: { readonly pid: number; readonly born: number }): boolean | undefined {
  try {
    return readProcEntry(pid)?.born === born;
  } catch {
    // No file descriptor left: nothing can be told, so nothing is done.
    return undefined;
  }
}

function send(pid: number, signal: NodeJS.Signals): Sent {
  try {
    process.kill(pid, signal);
    return "sent";
  } catch (thrown) {
    // ESRCH: it has just ended. EPERM: it runs as somebody else, through a set-user-id program.
    return errnoOf(thrown) === "ESRCH" ? "gone" : "refused";
  }
}
