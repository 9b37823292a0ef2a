import { expect, test } from "bun:test";
import { spawn } from "node:child_process";
import type { Clock } from "../../src/clock/port.ts";
import type { RunTree } from "../../src/process/attribution.ts";
import { climbKillLadder, Grace, signalExactly } from "../../src/process/kill-ladder.ts";
import type { ProcEntry } from "../../src/process/proc-table.ts";
import { readProcEntry } from "../../src/process/proc-table.ts";
import { isAlive } from "./real-processes.ts";

/** A clock on which every sleep is over at once, and has taken its time. */
function hastyClock(): Clock {
  let time = 0;
  return {
    now: () => time,
    monotonic: () => time,
    sleep: async (ms) => {
      time += ms;
    },
    after: () => () => {},
    every: () => () => {},
  };
}

/** Nobody has this process id: it is above the kernel's largest. */
const NOBODY = 2 ** 22 + 1;
const nobody: ProcEntry = { pid: NOBODY, ppid: 1, pgrp: NOBODY, session: NOBODY, alive: true, born: 1 };
const tree: RunTree = { name: "run/1", pid: NOBODY, born: 1, known: new Set(), sessions: new Set(), sweeping: false };

test("a process that does not end in spite of SIGKILL is reported, after a bounded time, and holds up nobody", async () => {
  const clock = hastyClock();
  let inertAt: number | undefined;
  const report = await climbKillLadder({
    tree,
    clock,
    grace: new Grace(clock, 5000),
    look: async () => [nobody],
    onInert: () => {
      inertAt ??= clock.monotonic();
    },
  });
  expect(report).toEqual({ strays: 0, left: [NOBODY] });
  expect(inertAt).toBeLessThan(5100);
  expect(clock.monotonic()).toBeLessThan(7200);
});

test("a tree that cannot be looked at is not called ended", async () => {
  const clock = hastyClock();
  let inert = false;
  const report = await climbKillLadder({
    tree,
    clock,
    grace: new Grace(clock, 0),
    look: async () => undefined,
    onInert: () => {
      inert = true;
    },
  });
  expect([report.left, inert]).toEqual([[NOBODY], false]);
});

test("a signal does not reach a later process with the same id", () => {
  const child = spawn("sleep", ["600"]);
  const entry = readProcEntry(child.pid ?? 0);
  if (!entry) throw new Error("the child has not started");
  expect(signalExactly({ ...entry, born: entry.born - 1 }, "SIGKILL")).toBe("gone");
  expect(isAlive(entry.pid)).toBe(true);
  expect(signalExactly(entry, "SIGKILL")).toBe("sent");
});
