import { describe, expect, test } from "bun:test";
import { attribute, type RunTree } from "../../src/process/attribution.ts";
import { type ProcEntry, parseProcStat } from "../../src/process/proc-table.ts";

const DAEMON = { pid: 10, session: 10 };

function entry(pid: number, ppid: number, more: Partial<ProcEntry> = {}): ProcEntry {
  return { pid, ppid, pgrp: pid, session: pid, alive: true, born: pid, ...more };
}

function table(...entries: ProcEntry[]): Map<number, ProcEntry> {
  const all = [entry(1, 0), entry(10, 1), ...entries];
  return new Map(all.map((one) => [one.pid, one]));
}

function tree(name: string, pid: number): RunTree {
  return { name, pid, born: pid, known: new Set([`${pid}:${pid}`]), sessions: new Set([pid]), sweeping: false };
}

const pids = (entries: readonly ProcEntry[] | undefined) => entries?.map(({ pid }) => pid);

describe("a process is the run's", () => {
  test("when it descends from the run's child, in whatever session", () => {
    const run = tree("a", 20);
    const { owned, orphans } = attribute(table(entry(20, 10), entry(21, 20), entry(22, 21)), DAEMON, [run]);
    expect(pids(owned.get(run))).toEqual([20, 21, 22]);
    expect(orphans).toEqual([]);
  });

  test("when it was seen as such before its parent died", () => {
    const run = tree("a", 20);
    attribute(table(entry(20, 10), entry(21, 20)), DAEMON, [run]);
    const { owned } = attribute(table(entry(21, 10)), DAEMON, [run]);
    expect(pids(owned.get(run))).toEqual([21]);
  });

  test("when it is in a session that was, though everybody who was seen in it has died", () => {
    const run = tree("a", 20);
    attribute(table(entry(20, 10), entry(21, 20)), DAEMON, [run]);
    const { owned } = attribute(table(entry(25, 10, { session: 21 })), DAEMON, [run]);
    expect(pids(owned.get(run))).toEqual([25]);
  });

  test("not when somebody else leads a session of that number now", () => {
    const run = tree("a", 20);
    const later = tree("b", 30);
    attribute(table(entry(20, 10), entry(21, 20), entry(30, 10)), DAEMON, [run, later]);
    const recycled = entry(21, 30, { born: 99 });
    const { owned } = attribute(table(entry(20, 10), entry(30, 10), recycled), DAEMON, [run, later]);
    expect([pids(owned.get(run)), pids(owned.get(later))]).toEqual([[20], [30, 21]]);
  });
});

test("an orphan that nobody has seen may be of every run that lived when it was born", () => {
  const [first, second, late] = [tree("a", 20), tree("b", 22), tree("c", 40)];
  const entries = table(entry(20, 10), entry(22, 10), entry(40, 10), entry(30, 10), entry(31, 30));
  const { orphans } = attribute(entries, DAEMON, [first, second, late]);
  expect(orphans.map(({ tree: members, candidates }) => [pids(members), candidates])).toEqual([
    [
      [30, 31],
      [first, second],
    ],
  ]);
});

test("neither the daemon, its parents, its helpers nor strangers are anybody's", () => {
  const helper = entry(50, 10, { session: 10, pgrp: 10 });
  const entries = table(entry(20, 10), helper, entry(51, 50), entry(60, 1), entry(61, 60));
  const { owned, orphans } = attribute(entries, DAEMON, [tree("a", 20)]);
  expect([...owned.values()].map(pids)).toEqual([[20]]);
  expect(orphans).toEqual([]);
});

test("what is known of a run does not grow with the processes that it had", () => {
  const run = tree("a", 20);
  for (let pid = 100; pid < 200; pid++) attribute(table(entry(20, 10), entry(pid, 20)), DAEMON, [run]);
  expect([run.known.size, run.sessions.size]).toEqual([2, 2]);
});

describe("/proc/<pid>/stat", () => {
  const line = (name: string, state: string, threads: number) =>
    `77 (${name}) ${state} 10 20 30 0 -1 4194304 56 0 0 0 1 2 3 4 20 0 ${threads} 0 153564 2703360 309`;

  test("is read past a name that looks like the fields behind it", () => {
    const expected = { pid: 77, ppid: 10, pgrp: 20, session: 30, alive: true, born: 153_564 };
    for (const name of ["sh", "a b", ") R 1 1 1", "((", "x) S 1 (y"]) {
      expect(parseProcStat(77, line(name, "S", 1))).toEqual(expected);
    }
  });

  test("tells a zombie from a process whose first thread alone has ended", () => {
    expect(parseProcStat(77, line("sh", "Z", 1))?.alive).toBe(false);
    expect(parseProcStat(77, line("sh", "Z", 2))?.alive).toBe(true);
  });

  test("that is empty is no process", () => {
    expect(parseProcStat(77, "")).toBeUndefined();
  });
});
