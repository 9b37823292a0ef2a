/**
 * What the daemon needs of the kernel and Bun has no call for, or only one that costs too much before it listens
 * (docs/adr/0006). Linux only. The C library is opened at the first use (0.2 ms), so that a start which needs none of
 * this does not pay for it.
 */
import { dlopen, read } from "bun:ffi";
import { messageOf } from "../errors.ts";

const PR_SET_PDEATHSIG = 1;
const PR_SET_DUMPABLE = 4;
const PR_SET_CHILD_SUBREAPER = 36;
const LOCK_EX = 2;
const LOCK_NB = 4;
const WNOHANG = 1;
const EEXIST = 17;
const EAGAIN = 11;
const F_OK = 0;
const TCIFLUSH = 0;
/** The same on x86-64 and arm64; O_NOFOLLOW is not. */
const O_RDWR = 0o2;
const O_CREAT = 0o100;
const O_CLOEXEC = 0o2000000;
const O_NOFOLLOW = process.arch === "arm64" ? 0o100000 : 0o400000;

const SYMBOLS = {
  prctl: { args: ["i32", "u64", "u64", "u64", "u64"], returns: "i32" },
  waitpid: { args: ["i32", "ptr", "i32"], returns: "i32" },
  flock: { args: ["i32", "i32"], returns: "i32" },
  access: { args: ["ptr", "i32"], returns: "i32" },
  mkdir: { args: ["ptr", "u32"], returns: "i32" },
  open: { args: ["ptr", "i32", "u32"], returns: "i32" },
  close: { args: ["i32"], returns: "i32" },
  tcflush: { args: ["i32", "i32"], returns: "i32" },
  dup: { args: ["i32"], returns: "i32" },
  dup2: { args: ["i32", "i32"], returns: "i32" },
  getenv: { args: ["ptr"], returns: "ptr" },
  strlen: { args: ["ptr"], returns: "u64" },
  memset: { args: ["ptr", "i32", "u64"], returns: "ptr" },
  __errno_location: { args: [], returns: "ptr" },
} as const;

/** glibc's name first, then those of musl. */
const LIBRARIES = ["libc.so.6", "libc.musl-x86_64.so.1", "libc.musl-aarch64.so.1"];

type Libc = ReturnType<typeof dlopen<typeof SYMBOLS>>["symbols"];
let opened: Libc | undefined;

function libc(): Libc {
  if (opened) return opened;
  if (process.platform !== "linux") throw new Error(`only Linux is supported, not ${process.platform}`);
  const failures: string[] = [];
  for (const name of LIBRARIES) {
    try {
      opened = dlopen(name, SYMBOLS).symbols;
      return opened;
    } catch (thrown) {
      failures.push(`${name}: ${messageOf(thrown)}`);
    }
  }
  throw new Error(`the C library cannot be opened (${failures.join("; ")})`);
}

/** The number that the last call left. Anything that runs in between may change it. */
function errno(): number {
  const location = libc().__errno_location();
  return location === null ? 0 : read.i32(location, 0);
}

function setOption(option: number, value: number, name: string): void {
  if (libc().prctl(option, BigInt(value), 0n, 0n, 0n) !== 0) throw new Error(`prctl ${name} failed: errno ${errno()}`);
}

/** From now on a descendant whose parent dies becomes this process's child. Not inherited by children. */
export function becomeSubreaper(): void {
  setOption(PR_SET_CHILD_SUBREAPER, 1, "PR_SET_CHILD_SUBREAPER");
}

/** Closes this process's memory and environment to other processes of its user. Undone by exec. */
export function makeNonDumpable(): void {
  setOption(PR_SET_DUMPABLE, 0, "PR_SET_DUMPABLE");
}

/**
 * This process gets `signal` (a number) when its parent dies. For a parent that has died before the call nothing comes:
 * who needs certainty compares `process.ppid` before and after. The parent is the thread that spawned.
 */
export function setParentDeathSignal(signal: number): void {
  setOption(PR_SET_PDEATHSIG, signal, "PR_SET_PDEATHSIG");
}

/**
 * The descriptor returned leads to what stdout led to. From now on whatever is written to stdout, by this program or a
 * library, goes to stderr.
 */
export function setStdoutAside(): number {
  const descriptor = libc().dup(1);
  if (descriptor < 0) throw new Error(`dup failed: errno ${errno()}`);
  if (libc().dup2(2, 1) < 0) throw new Error(`dup2 failed: errno ${errno()}`);
  return descriptor;
}

/** What was typed at the terminal `fd` and not read yet is forgotten; of what is no terminal nothing is. */
export function forgetTyped(fd: number): void {
  libc().tcflush(fd, TCIFLUSH);
}

export interface FileLock {
  release(): void;
}

/**
 * An exclusive lock on `path`, which is created if need be, or `"held"` when another process has it. The kernel gives
 * it up when this process dies, however it dies; children do not inherit it. Throws when the file cannot be opened.
 */
export function lockFile(path: string): FileLock | "held" {
  const flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
  let fd = libc().open(cString(path), flags, 0o600);
  // Tried again by who can say what is wrong.
  if (fd < 0) fd = nodeFs().openSync(path, flags, 0o600);
  if (libc().flock(fd, LOCK_EX | LOCK_NB) === 0) {
    let open = true;
    return {
      release() {
        if (open) libc().close(fd);
        open = false;
      },
    };
  }
  const code = errno();
  libc().close(fd);
  if (code === EAGAIN) return "held";
  throw new Error(`flock failed: errno ${code}`);
}

/** True when there is something at `path`. */
export function isThere(path: string): boolean {
  return libc().access(cString(path), F_OK) === 0;
}

/** The folder `path`, with its parents, if there is nothing yet. Throws an error of node:fs when it cannot be made. */
export function makeFolder(path: string, mode: number): void {
  if (libc().mkdir(cString(path), mode) === 0 || errno() === EEXIST) return;
  nodeFs().mkdirSync(path, { recursive: true, mode });
}

/** Loading it takes 1 ms, a quarter of a bare server's start: only where it is needed. */
function nodeFs(): typeof import("node:fs") {
  return require("node:fs");
}

function cString(text: string): Uint8Array {
  return new TextEncoder().encode(`${text}\0`);
}

/**
 * Takes the exit status of a dead child, which frees its process id. Only for adopted children: the status of those
 * that Bun started is Bun's to take. True when there was one.
 */
export function reap(pid: number): boolean {
  return libc().waitpid(pid, null, WNOHANG) === pid;
}

/**
 * Overwrites values in this process's initial environment block, which `/proc/<pid>/environ` shows for as long as it
 * lives, to root even of a non-dumpable process; deleting them from `process.env` changes nothing there.
 */
export function eraseFromEnvironment(names: readonly string[]): void {
  const { getenv, strlen, memset } = libc();
  for (const name of names) {
    const value = getenv(cString(name));
    if (value !== null) memset(value, 0, strlen(value));
  }
}
