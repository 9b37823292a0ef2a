import { afterEach, expect, test } from "bun:test";
import { type ChildProcess, spawn } from "node:child_process";
import { systemClock } from "../../src/clock/system.ts";
import { createMarkerReader } from "../../src/process/markers.ts";
import { MARKER_ENV } from "../../src/process/port.ts";
import { identityOf, type ProcEntry, readProcEntry } from "../../src/process/proc-table.ts";
import { SCANNER_ARGV } from "./real-processes.ts";

const started: ChildProcess[] = [];
afterEach(() => {
  for (const child of started.splice(0)) child.kill("SIGKILL");
});

function start(env: Record<string, string>): ProcEntry {
  const child = spawn("sleep", ["600"], { env });
  started.push(child);
  const entry = readProcEntry(child.pid ?? 0);
  if (!entry) throw new Error("the process has not started");
  return entry;
}

const entryOf = (pid: number): ProcEntry => ({ pid, ppid: 1, pgrp: pid, session: pid, alive: true, born: 1 });

test("a marker is read whole, and told from its likes and from none", async () => {
  const marked = start({ A: "1", [MARKER_ENV]: "nonce:run/1 ü\n=x" });
  const other = start({ [`${MARKER_ENV}_2`]: "nonce:run/2", B: `${MARKER_ENV}=nonce:run/3` });
  const gone = { ...start({}), born: 1 };
  const reader = createMarkerReader({ clock: systemClock, scannerArgv: SCANNER_ARGV });
  const markers = await reader.read([marked, other, gone], 0);
  expect(markers.get(identityOf(marked))).toBe("nonce:run/1 ü\n=x");
  expect(markers.get(identityOf(other))).toBeNull();
  // It was asked about an earlier process of that id: what is read is not attributed to it.
  expect(markers.has(identityOf(gone))).toBe(false);
});

test("an environment that hangs is left out, and costs the others nothing but time", async () => {
  const scanner = `for pid; do [ $pid = 222 ] && exec sleep 600; echo "[$pid,1,\\"m$pid\\"]"; done`;
  const reader = createMarkerReader({ clock: systemClock, scannerArgv: ["/bin/sh", "-c", scanner, "scan"] });
  const entries = [111, 222, 333].map(entryOf);
  expect([...(await reader.read(entries, 1))]).toEqual([
    ["111:1", "m111"],
    ["333:1", "m333"],
  ]);
  expect([...(await reader.read(entries, 0))]).toEqual([["111:1", "m111"]]);
});

test("a scanner that cannot be started is an error, not an answer", async () => {
  const reader = createMarkerReader({ clock: systemClock, scannerArgv: ["/no/such/scanner"] });
  await expect(reader.read([entryOf(111)], 1)).rejects.toThrow("ENOENT");
  const failing = createMarkerReader({ clock: systemClock, scannerArgv: ["/bin/sh", "-c", "exit 3"] });
  await expect(failing.read([entryOf(111)], 1)).rejects.toThrow("ended with 3");
});
