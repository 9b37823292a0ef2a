/**
 * Who is whose child, from /proc/<pid>/stat. These reads never wait for the process that they are about, unlike
 * `environ` and `cmdline`, which wait for its memory map and so for a page fault on a mount that hangs.
 *
 * The kernel gives no snapshot of all processes, so one is pieced together: list, read, and list again as long as
 * something that was listed is gone or some parent is missing, because what is gone may have left a child behind.
 */
import { readdirSync, readFileSync } from "node:fs";
import { errnoOf } from "../errors.ts";
import { visitInSlices } from "./in-slices.ts";

export interface ProcEntry {
  readonly pid: number;
  readonly ppid: number;
  readonly pgrp: number;
  readonly session: number;
  /** Can run code: false for a zombie, true for one whose first thread alone has ended. */
  readonly alive: boolean;
  /** Clock ticks from the machine's start to this process's. With the pid it names a process for good. */
  readonly born: number;
}

export type ProcTable = ReadonlyMap<number, ProcEntry>;

/** Names one process among all that ever had its pid. */
export function identityOf(entry: Pick<ProcEntry, "pid" | "born">): string {
  return `${entry.pid}:${entry.born}`;
}

/** A machine on which processes come and go all the time never holds still; what is missed, the next table has. */
const MAX_ROUNDS = 6;

/** Undefined when there is no such process. Throws when it cannot be told (no file descriptor left, no /proc). */
export function readProcEntry(pid: number): ProcEntry | undefined {
  let text: string;
  try {
    text = readFileSync(`/proc/${pid}/stat`, "latin1");
  } catch (thrown) {
    // Gone before it was opened, or while it was read.
    const code = errnoOf(thrown);
    if (code === "ENOENT" || code === "ESRCH") return undefined;
    throw thrown;
  }
  return parseProcStat(pid, text);
}

/** `text` is `pid (name) state ppid pgrp session …`, where the name may hold anything, brackets and spaces too. */
export function parseProcStat(pid: number, text: string): ProcEntry | undefined {
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  const [state = "", ppid, pgrp, session] = fields;
  const threads = Number(fields[17]);
  const born = Number(fields[19]);
  if (!Number.isSafeInteger(born)) return undefined;
  const dead = state === "Z" || state === "X";
  const alive = !dead || threads > 1;
  return { pid, ppid: Number(ppid), pgrp: Number(pgrp), session: Number(session), alive, born };
}

export async function readProcTable(): Promise<ProcTable> {
  const table = new Map<number, ProcEntry>();
  for (let round = 0; round < MAX_ROUNDS; round++) {
    let gone = 0;
    const listed = listPids();
    for (const pid of table.keys()) if (!listed.has(pid) && table.delete(pid)) gone++;
    await visitInSlices(listed, (pid) => {
      const known = table.get(pid);
      if (known && (known.ppid === 0 || table.has(known.ppid))) return;
      const entry = readProcEntry(pid);
      if (entry) table.set(pid, entry);
      else gone++;
    });
    if (gone === 0 && isWhole(table)) break;
  }
  return table;
}

function isWhole(table: ProcTable): boolean {
  for (const entry of table.values()) if (entry.ppid !== 0 && !table.has(entry.ppid)) return false;
  return true;
}

function listPids(): Set<number> {
  return new Set(readdirSync("/proc").map(Number).filter(Number.isInteger));
}
