/**
 * Reads the marker in other processes' environments. Such a read waits while the process holds its memory map, for
 * ever when that is for a page of a file on a mount that hangs. So a helper process does it, one process at a time,
 * and is killed when it takes too long; the one that it hung at is left out and the next helper asks for the rest.
 *
 * The helper is our own binary with the process ids as arguments. It answers one JSON line a process:
 * `[pid, born, marker]`, with null where there is none, or where the environment cannot be read.
 */
import { spawn } from "node:child_process";
import { readFileSync, writeSync } from "node:fs";
import type { Clock } from "../clock/port.ts";
import { setParentDeathSignal } from "./native.ts";
import { MARKER_ENV } from "./port.ts";
import type { ProcEntry } from "./proc-table.ts";
import { identityOf, readProcEntry } from "./proc-table.ts";

const SIGKILL = 9;
/** A start of the helper takes 5 to 30 ms, on a busy machine some times that. A read takes microseconds. */
const DEADLINE_MS = 1000;
/** Far below what a command line may hold. */
const MAX_ASKED = 4096;

/** The helper's whole work. Runs in a process of its own. */
export function scanMarkers(args: readonly string[]): void {
  setParentDeathSignal(SIGKILL);
  for (const arg of args) {
    const pid = Number(arg);
    const before = readProcEntry(pid);
    const marker = before ? readMarker(pid) : null;
    // The same process before and after: so the environment was its own.
    const after = readProcEntry(pid);
    const born = before && after?.born === before.born ? before.born : -1;
    writeSync(1, `${JSON.stringify([pid, born, born < 0 ? null : marker])}\n`);
  }
}

function readMarker(pid: number): string | null {
  let text: string;
  try {
    text = readFileSync(`/proc/${pid}/environ`, "utf8");
  } catch {
    // EACCES, EPERM, ESRCH: another user's, made unreadable, or gone. It says nothing, and that is an answer.
    return null;
  }
  const entry = text.split("\0").find((part) => part.startsWith(`${MARKER_ENV}=`));
  return entry === undefined ? null : entry.slice(MARKER_ENV.length + 1);
}

/** By identity; a process is missing when the helper could not tell in time. */
export type Markers = ReadonlyMap<string, string | null>;

export interface MarkerReader {
  /** Up to `hangs` processes whose environment hangs are left out; past that, all of the rest. */
  read(entries: readonly ProcEntry[], hangs: number): Promise<Markers>;
}

export function createMarkerReader(options: { clock: Clock; scannerArgv: readonly string[] }): MarkerReader {
  return {
    async read(entries, hangs) {
      const markers = new Map<string, string | null>();
      let rest = entries.slice();
      for (let hung = 0; rest.length > 0 && hung <= hangs; ) {
        const asked = rest.slice(0, MAX_ASKED);
        const answered = await ask(options.scannerArgv, asked, options.clock);
        for (const [identity, marker] of answered.markers) markers.set(identity, marker);
        if (answered.count < asked.length) hung++;
        // In order: the first without an answer is the one that it hung at.
        rest = rest.slice(Math.min(answered.count + 1, asked.length));
      }
      return markers;
    },
  };
}

async function ask(
  argv: readonly string[],
  entries: readonly ProcEntry[],
  clock: Clock,
): Promise<{ count: number; markers: Map<string, string | null> }> {
  const output = await runHelper([...argv, ...entries.map((entry) => String(entry.pid))], clock);
  const markers = new Map<string, string | null>();
  const lines = output.split("\n").slice(0, -1);
  for (const line of lines) {
    const [pid, born, marker] = JSON.parse(line) as [number, number, string | null];
    markers.set(identityOf({ pid, born }), marker);
  }
  return { count: lines.length, markers };
}

/** What the helper printed until it ended, or until it was killed for taking too long. Rejects if it cannot do its work. */
function runHelper([command = "", ...args]: readonly string[], clock: Clock): Promise<string> {
  return new Promise((resolve, reject) => {
    // Not detached: what is in the daemon's own session is no run's.
    const child = spawn(command, args, { stdio: ["ignore", "pipe", "ignore"], env: {}, cwd: "/" });
    child.unref();
    let output = "";
    const cancelDeadline = clock.after(DEADLINE_MS, () => {
      child.kill("SIGKILL");
      child.stdout.destroy();
      resolve(output);
    });
    child.stdout.setEncoding("utf8");
    child.stdout.on("data", (text: string) => {
      output += text;
    });
    child.on("close", (code) => {
      cancelDeadline();
      if (code === 0) resolve(output);
      else reject(new Error(`the process scanner ended with ${code}`));
    });
    child.on("error", (error) => {
      cancelDeadline();
      reject(error);
    });
  });
}
