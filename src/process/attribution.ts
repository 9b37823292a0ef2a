/**
 * Which process belongs to which run. Certain is, in this order:
 *
 * 1. the run's own child, and what was seen to be the run's before (a process keeps its owner when it is orphaned);
 * 2. whoever is in a session of such a process: a session is entered by birth alone;
 * 3. a descendant of one of these.
 *
 * What is left below the daemon are orphans that it adopted, in a session that nobody knows. Such an orphan belongs to
 * one of the runs that lived when it was born; which one, its marker may tell. Children of the daemon in the daemon's
 * own session are its helpers and belong to no run: nothing that a run starts can get into that session.
 */
import type { ProcEntry, ProcTable } from "./proc-table.ts";
import { identityOf } from "./proc-table.ts";

/** What is known of one run's processes. Kept from the start of its child to the sweep that finds nothing left. */
export interface RunTree {
  readonly name: string;
  readonly pid: number;
  readonly born: number;
  /** Identities of processes that are the run's. */
  readonly known: Set<string>;
  /** Sessions that are the run's. */
  readonly sessions: Set<number>;
  /** Past the grace of its end: it no longer speaks for orphans that may be another run's. */
  sweeping: boolean;
}

export interface Daemon {
  readonly pid: number;
  readonly session: number;
}

export interface Attribution {
  readonly owned: ReadonlyMap<RunTree, readonly ProcEntry[]>;
  /** Orphans of unknown owner with all that descends from them, and the runs that lived when the orphan was born. */
  readonly orphans: readonly Orphan[];
}

export interface Orphan {
  readonly top: ProcEntry;
  readonly tree: readonly ProcEntry[];
  readonly candidates: readonly RunTree[];
}

/** Sorts everything below the daemon, and notes in the trees what is certain now. */
export function attribute(table: ProcTable, daemon: Daemon, trees: readonly RunTree[]): Attribution {
  const owners = new Owners(table, trees);
  const owned = new Map<RunTree, ProcEntry[]>(trees.map((tree) => [tree, []]));
  const orphanTrees = new Map<ProcEntry, ProcEntry[]>();
  for (const entry of table.values()) {
    const line = lineToDaemon(table, daemon, entry);
    const top = line?.at(-1);
    if (!line || !top) continue;
    const owner = owners.ofLine(line);
    if (owner) owned.get(owner)?.push(entry);
    else if (top.session !== daemon.session) {
      const members = orphanTrees.get(top);
      if (members) members.push(entry);
      else orphanTrees.set(top, [entry]);
    }
  }
  const inUse = new Set([...table.values()].map((entry) => entry.session));
  for (const [tree, entries] of owned) remember(tree, entries, inUse);
  const orphans = [...orphanTrees].map(([top, tree]) => ({
    top,
    tree,
    candidates: trees.filter((run) => run.born <= top.born),
  }));
  return { owned, orphans };
}

/** `entry` and its ancestors up to the daemon's own child; undefined for what is not below the daemon. */
export function lineToDaemon(
  table: ProcTable,
  daemon: { readonly pid: number },
  entry: ProcEntry,
): ProcEntry[] | undefined {
  const line: ProcEntry[] = [];
  for (let at: ProcEntry | undefined = entry; at && line.length <= table.size; at = table.get(at.ppid)) {
    if (at.pid === daemon.pid) return undefined;
    line.push(at);
    if (at.ppid === daemon.pid) return line;
  }
  return undefined;
}

class Owners {
  readonly #byIdentity = new Map<string, RunTree>();
  readonly #bySession = new Map<number, RunTree>();

  constructor(table: ProcTable, trees: readonly RunTree[]) {
    for (const tree of trees) {
      for (const identity of tree.known) this.#byIdentity.set(identity, tree);
      for (const session of tree.sessions) {
        // The number of a session that has ended may lead another one by now.
        const leader = table.get(session);
        if (!leader || tree.known.has(identityOf(leader))) this.#bySession.set(session, tree);
      }
    }
  }

  ofLine(line: readonly ProcEntry[]): RunTree | undefined {
    for (const entry of line) {
      const owner = this.#byIdentity.get(identityOf(entry)) ?? this.#bySession.get(entry.session);
      if (owner) return owner;
    }
    return undefined;
  }
}

/** Replaces what is known of a run by what there is of it, so that it does not grow with a long turn. */
function remember(tree: RunTree, entries: readonly ProcEntry[], inUse: ReadonlySet<number>): void {
  tree.known.clear();
  // Its child stays known until the run is over: a number of a session is checked against it.
  tree.known.add(`${tree.pid}:${tree.born}`);
  for (const entry of entries) {
    tree.known.add(identityOf(entry));
    tree.sessions.add(entry.session);
  }
  for (const session of tree.sessions) if (!inUse.has(session)) tree.sessions.delete(session);
}
