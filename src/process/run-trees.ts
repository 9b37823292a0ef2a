/** Watches the trees of the live runs: finds what belongs to each, reaps what was adopted, ends them. */
import type { Clock } from "../clock/port.ts";
import { messageOf } from "../errors.ts";
import type { Log } from "../log/port.ts";
import { attribute, type Daemon, type Orphan, type RunTree } from "./attribution.ts";
import { visitInSlices } from "./in-slices.ts";
import { climbKillLadder, type Grace, sweep } from "./kill-ladder.ts";
import { createMarkerReader, type MarkerReader, type Markers } from "./markers.ts";
import { reap } from "./native.ts";
import type { EndReport } from "./port.ts";
import { identityOf, type ProcEntry, type ProcTable, readProcEntry, readProcTable } from "./proc-table.ts";

/** How often the daemon looks without being asked: to reap, to learn who is whose, to end what was left. */
const ROUND_MS = 30_000;
/** Orphans whose environment hangs, in one look. */
const MAX_HANGS = 2;

export interface RunTreesOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly nonce: string;
  readonly scannerArgv: readonly string[];
}

export class RunTrees {
  readonly #options: RunTreesOptions;
  readonly #daemon: Daemon;
  readonly #markers: MarkerReader;
  readonly #stopRounds: () => void;
  /** Runs that live, and ended ones of which something is left. */
  readonly #trees = new Set<RunTree>();
  readonly #unfinished = new Map<RunTree, () => void>();
  /** Children whose exit status Bun has still to take. */
  readonly #bunsOwn = new Set<number>();
  /** Orphans whose environment names no run. */
  readonly #unmarked = new Set<string>();
  #reading: Promise<unknown> = Promise.resolve();
  #waiting: Promise<ProcTable> | undefined;
  #inRound = false;

  constructor(options: RunTreesOptions) {
    this.#options = options;
    this.#daemon = { pid: process.pid, session: readProcEntry(process.pid)?.session ?? 0 };
    this.#markers = createMarkerReader(options);
    this.#stopRounds = options.clock.every(ROUND_MS, () => void this.#round());
  }

  stop(): void {
    this.#stopRounds();
  }

  /** A run that has just started. `exited` settles when Bun has taken the exit status. */
  add(name: string, pid: number, exited: Promise<unknown>): RunTree {
    // Nobody has reaped it yet, so it is there, if only as a zombie.
    const born = readProcEntry(pid)?.born ?? 0;
    const known = new Set([identityOf({ pid, born })]);
    const tree: RunTree = { name, pid, born, known, sessions: new Set([pid]), sweeping: false };
    this.#trees.add(tree);
    this.#bunsOwn.add(pid);
    void exited.then(() => this.#bunsOwn.delete(pid));
    return tree;
  }

  /** Ends the run's tree. What is left after it is tried again in every round. */
  async end(tree: RunTree, grace: Grace, onInert: () => void): Promise<EndReport> {
    const { clock, log } = this.#options;
    const look = () => this.#look(tree);
    const report = await climbKillLadder({ tree, clock, grace, look, onInert });
    if (report.strays > 0) log.info("strays killed", { run: tree.name, strays: report.strays });
    if (report.left.length > 0) {
      log.warn("processes left", { run: tree.name, pids: report.left });
      this.#unfinished.set(tree, onInert);
    } else this.#trees.delete(tree);
    return report;
  }

  /** A table whose reading begins after this call. Callers that come while one is being read share the next. */
  freshTable(): Promise<ProcTable> {
    this.#waiting ??= this.#reading.then(() => {
      this.#waiting = undefined;
      const table = readProcTable();
      // A failure is for those who wait for this table; the next one is read all the same.
      this.#reading = table.catch(() => {});
      return table;
    });
    return this.#waiting;
  }

  async #look(tree: RunTree): Promise<readonly ProcEntry[] | undefined> {
    try {
      const table = await this.freshTable();
      await this.#reapAdopted(table);
      const { owned, orphans } = attribute(table, this.#daemon, [...this.#trees]);
      const found = [...(owned.get(tree) ?? [])];
      if (tree.sweeping) found.push(...(await this.#adoptedBy(tree, orphans)));
      return found.filter((entry) => entry.alive);
    } catch (thrown) {
      this.#options.log.error("processes unreadable", { run: tree.name, message: messageOf(thrown) });
      return undefined;
    }
  }

  /** Of the orphans, those that are `tree`'s: no other run can have them, or their marker says so. */
  async #adoptedBy(tree: RunTree, orphans: readonly Orphan[]): Promise<ProcEntry[]> {
    const possible = orphans.filter((orphan) => orphan.candidates.includes(tree));
    const isDoubtful = ({ candidates }: Orphan) => candidates.some((other) => other !== tree && !other.sweeping);
    const doubtful = possible.filter(isDoubtful);
    const mine = possible.filter((orphan) => !doubtful.includes(orphan));
    const unread = doubtful.map(({ top }) => top).filter((top) => top.alive && !this.#unmarked.has(identityOf(top)));
    if (unread.length > 0) {
      const markers = await this.#readMarkers(unread);
      for (const orphan of doubtful) {
        const marker = markers.get(identityOf(orphan.top));
        if (marker === undefined) continue;
        const owner = this.#ownerByMarker(marker, tree);
        if (owner === undefined) this.#unmarked.add(identityOf(orphan.top));
        else owner.known.add(identityOf(orphan.top));
        if (owner === tree) mine.push(orphan);
      }
    }
    return mine.flatMap((orphan) => orphan.tree);
  }

  /** Without a scanner what cannot be told apart is left to the last run; what is certain is still ended. */
  async #readMarkers(entries: readonly ProcEntry[]): Promise<Markers> {
    try {
      return await this.#markers.read(entries, MAX_HANGS);
    } catch (thrown) {
      this.#options.log.error("markers unreadable", { message: messageOf(thrown) });
      return new Map();
    }
  }

  #ownerByMarker(marker: string | null, asking: RunTree): RunTree | undefined {
    const prefix = `${this.#options.nonce}:`;
    if (!marker?.startsWith(prefix)) return undefined;
    const name = marker.slice(prefix.length);
    // A run of ours that is over: whoever comes across what it left ends it.
    return [...this.#trees].find((tree) => tree.name === name) ?? asking;
  }

  /** Frees the process ids of adopted children that have ended. */
  async #reapAdopted(table: ProcTable): Promise<void> {
    const entries = [...table.values()];
    // Asked right before, not of all in advance: a run that starts meanwhile may get an id that has just been freed.
    await visitInSlices(entries, (entry) => this.#mayBeReaped(entry) && reap(entry.pid));
    const present = new Set(entries.map(identityOf));
    for (const identity of this.#unmarked) if (!present.has(identity)) this.#unmarked.delete(identity);
  }

  #mayBeReaped(entry: ProcEntry): boolean {
    if (entry.alive || entry.ppid !== this.#daemon.pid) return false;
    // Bun takes the exit status of what it started: the runs' children, and helpers in the daemon's own session.
    return entry.session !== this.#daemon.session && !this.#bunsOwn.has(entry.pid);
  }

  async #round(): Promise<void> {
    if (this.#inRound) return;
    this.#inRound = true;
    try {
      const table = await this.freshTable();
      await this.#reapAdopted(table);
      attribute(table, this.#daemon, [...this.#trees]);
      for (const [tree, onInert] of this.#unfinished) {
        const look = () => this.#look(tree);
        const { left } = await sweep({ tree, clock: this.#options.clock, look, onInert });
        if (left.length > 0) continue;
        this.#unfinished.delete(tree);
        this.#trees.delete(tree);
        this.#options.log.info("processes gone at last", { run: tree.name });
      }
    } catch (thrown) {
      this.#options.log.error("processes unreadable", { message: messageOf(thrown) });
    } finally {
      this.#inRound = false;
    }
  }
}
