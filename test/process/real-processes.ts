/** Real processes for the tests of this folder: started, looked at, and ended by id. */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "../../src/clock/system.ts";
import type { Log } from "../../src/log/port.ts";
import type { Processes, RunProcess, SpawnSpec } from "../../src/process/port.ts";
import { readProcEntry } from "../../src/process/proc-table.ts";
import { createProcesses } from "../../src/process/run-processes.ts";

export const SCANNER_ARGV = [process.execPath, join(import.meta.dir, "scanner-program.ts")];

export const quietLog: Log = { debug() {}, info() {}, warn() {}, error() {}, child: () => quietLog };

let made = 0;

/** `Processes` with a nonce of its own, and a folder; both are given up by `close`. */
export function openProcesses({ scannerArgv = SCANNER_ARGV, clock = systemClock } = {}): {
  processes: Processes;
  nonce: string;
  dir: string;
  close(): Promise<void>;
} {
  const nonce = `test-${process.pid}-${++made}`;
  const processes = createProcesses({ clock, log: quietLog, nonce, scannerArgv });
  const dir = mkdtempSync(join(tmpdir(), "dispatchd-process-"));
  const runs: RunProcess[] = [];
  return {
    processes: {
      ...processes,
      spawn(spec) {
        const run = processes.spawn(spec);
        runs.push(run);
        return run;
      },
    },
    nonce,
    dir,
    async close() {
      await Promise.all(runs.map((run) => run.end(0)));
      processes.stop();
      rmSync(dir, { recursive: true });
    },
  };
}

/** A shell script as a run. */
export function script(text: string, more: Partial<SpawnSpec> = {}): SpawnSpec {
  const env = { PATH: "/usr/bin:/bin" };
  return { argv: ["/bin/sh", "-c", text], cwd: "/", env, stdin: "", runName: "run/1", ...more };
}

/** Waits for a condition, and says which one did not come about. */
export async function until<T>(what: string, look: () => T | undefined | false, forMs = 10_000): Promise<T> {
  const end = performance.now() + forMs;
  for (;;) {
    const found = look();
    if (found !== undefined && found !== false) return found;
    if (performance.now() > end) throw new Error(`did not come about: ${what}`);
    await Bun.sleep(2);
  }
}

/** The process id that a script writes into `file` (by name and rename, or in one short write). */
export function pidIn(file: string): Promise<number> {
  return until(`a process id in ${file}`, () => {
    try {
      return Number(readFileSync(file, "utf8").trim()) || undefined;
    } catch {
      return undefined;
    }
  });
}

export function isAlive(pid: number): boolean {
  return readProcEntry(pid)?.alive === true;
}

export function exists(pid: number): boolean {
  return readProcEntry(pid) !== undefined;
}

export async function readAll(output: AsyncIterable<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of output) chunks.push(chunk);
  return Buffer.concat(chunks).toString("utf8");
}
