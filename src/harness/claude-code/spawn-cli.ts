/**
 * The Claude Code process. It is ended by us and never outlives us:
 *
 * - `end()` closes its stdin, on which an idle one exits and flushes its transcript; SIGTERM follows, then SIGKILL.
 * - If this process is killed, end of file on stdin does not end it: it goes on with the turn (seen). So a small shell
 *   waits on a pipe from us and ends it when the pipe breaks.
 */
import { type ChildProcess, spawn } from "node:child_process";
import type { SpawnedProcess, SpawnOptions } from "@anthropic-ai/claude-agent-sdk/core";

/** From SIGTERM to SIGKILL. Claude Code takes 20 ms, 160 ms with shells in the background, which it ends. */
const TERM_GRACE_MS = 2000;
const KILL_WAIT_MS = 500;
const STDERR_TAIL_CHARS = 4096;
/** `read` fails at end of file, that is when we died; the newline of `dismiss` lets the guard go. */
const GUARD = `read -r _ && exit
PATH=/usr/bin:/bin
kill -TERM "$1"
for _ in 1 2 3 4 5 6 7 8 9 10; do sleep 0.2; kill -0 "$1" || exit; done
kill -KILL "$1"`;

export interface CliProcess {
  /** What the SDK talks to. */
  readonly spawned: SpawnedProcess;
  /** Settles when the process is gone; never rejects. */
  readonly exited: Promise<void>;
  /** The end of what it wrote to stderr. */
  stderrTail(): string;
  /** Resolves when the process can run no more code: at the latest `quietMs` and 2.5 s after the call. */
  end(quietMs: number): Promise<void>;
  /** Ends it without a word: an end that it sees is something that it writes down. */
  kill(): Promise<void>;
}

export function spawnCli(options: SpawnOptions, log: (line: string) => void): CliProcess {
  const child = spawn(options.command, options.args, {
    cwd: options.cwd,
    env: options.env,
    stdio: ["pipe", "pipe", "pipe"],
  });
  const exited = new Promise<void>((resolve) => {
    child.once("exit", () => resolve());
    child.once("error", () => resolve());
  });
  let tail = "";
  child.stderr.setEncoding("utf8");
  child.stderr.on("data", (text: string) => {
    tail = (tail + text).slice(-STDERR_TAIL_CHARS);
    for (const line of text.split("\n")) if (line.trim()) log(`claude: ${line}`);
  });
  // A write to a process that has just ended is answered by its exit.
  child.stdin.on("error", () => undefined);
  const guard = child.pid === undefined ? undefined : startGuard(child.pid);
  void exited.then(() => guard?.stdin?.end("\n"));

  const kill = async (): Promise<void> => {
    child.kill("SIGKILL");
    // A process that reads from a mount that hangs cannot die, but it can run no more code either.
    await within(exited, KILL_WAIT_MS);
  };

  return {
    spawned: child,
    exited,
    stderrTail: () => tail,
    async end(quietMs) {
      if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return;
      child.stdin.end();
      if (await within(exited, quietMs)) return;
      child.kill("SIGTERM");
      if (await within(exited, TERM_GRACE_MS)) return;
      await kill();
    },
    kill,
  };
}

function startGuard(pid: number): ChildProcess {
  const guard = spawn("/bin/sh", ["-c", GUARD, "guard", String(pid)], {
    stdio: ["pipe", "ignore", "ignore"],
    env: {},
  });
  // Without a shell there is no guard; the daemon ends what a dead harness leaves in any case.
  guard.on("error", () => undefined);
  guard.stdin?.on("error", () => undefined);
  guard.unref();
  return guard;
}

async function within(promise: Promise<void>, ms: number): Promise<boolean> {
  if (ms <= 0) return false;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<false>((resolve) => {
    timer = setTimeout(resolve, ms, false);
  });
  const result = await Promise.race([promise.then(() => true), late]);
  clearTimeout(timer);
  return result;
}
