import { type ChildProcess, spawn as spawnChild } from "node:child_process";
import { stat } from "node:fs/promises";
import type { Clock } from "../clock/port.ts";
import { errnoOf } from "../errors.ts";
import type { Log } from "../log/port.ts";
import { feedChild } from "./child-input.ts";
import { NO_OUTPUT, readChildOutput } from "./child-output.ts";
import { Grace } from "./kill-ladder.ts";
import { endLeftovers } from "./leftovers.ts";
import { createMarkerReader } from "./markers.ts";
import { becomeSubreaper } from "./native.ts";
import {
  type EndReport,
  type ExitStatus,
  MARKER_ENV,
  type Processes,
  type RunProcess,
  type SpawnSpec,
} from "./port.ts";
import { RunTrees } from "./run-trees.ts";

export interface ProcessesOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** Of this daemon alone; goes into every marker. Without ":". */
  readonly nonce: string;
  /** Starts `scanMarkers` with the arguments that follow; the program by its absolute path. */
  readonly scannerArgv: readonly string[];
}

/** After the kill ladder the child has ended; its exit status is there a turn of the event loop later. */
const STATUS_WAIT_MS = 1000;
/** Nothing of a run has its working directory on a mount that hangs; if it is on one, the reason stays vague. */
const CWD_LOOK_MS = 1000;

/** The processes of this daemon's runs, and `stop`, which ends the slow rounds and no process. */
export function createProcesses(options: ProcessesOptions): Processes & { stop(): void } {
  const { clock } = options;
  let trees: RunTrees | undefined;
  const openTrees = (): RunTrees => {
    // Not before it is needed: a daemon listens first.
    if (trees === undefined) {
      becomeSubreaper();
      trees = new RunTrees(options);
    }
    return trees;
  };
  return {
    spawn(spec) {
      const runTrees = openTrees();
      const child = start(spec, options.nonce);
      if (typeof child === "string") return unstarted(explain(child, spec.cwd, clock));
      const { pid } = child;
      if (pid !== undefined) return follow(child, pid, spec, runTrees, clock);
      return unstarted(failureOf(child).then((code) => explain(code, spec.cwd, clock)));
    },
    async endLeftovers(nonce) {
      if (nonce === options.nonce) throw new Error("the nonce is this daemon's own: its live runs are no leftovers");
      const markers = createMarkerReader(options);
      return await endLeftovers({ clock, nonce, markers, freshTable: () => openTrees().freshTable() });
    },
    stop() {
      trees?.stop();
    },
  };
}

/** The child, or why there is none: some failures are thrown, others are told by an event. */
function start(spec: SpawnSpec, nonce: string): ChildProcess | string {
  const [command = "", ...args] = spec.argv;
  try {
    return spawnChild(command, args, {
      cwd: spec.cwd,
      env: { ...spec.env, [MARKER_ENV]: `${nonce}:${spec.runName}` },
      stdio: ["pipe", "pipe", "pipe"],
      // A session of its own, and so a group of its own.
      detached: true,
      ...spec.user,
    });
  } catch (thrown) {
    // No errno: an empty program name, a NUL character.
    return errnoOf(thrown) ?? "EINVAL";
  }
}

function follow(child: ChildProcess, pid: number, spec: SpawnSpec, trees: RunTrees, clock: Clock): RunProcess {
  const exited = new Promise<ExitStatus>((resolve) => {
    child.on("exit", (code, signal) => {
      resolve(signal === null ? { type: "exit", code: code ?? 0 } : { type: "signal", signal });
    });
  });
  // Failures to send a signal come here too; the kill ladder sends its own and sees how they fare.
  child.on("error", () => {});
  const tree = trees.add(spec.runName, pid, exited);
  const stdout = child.stdout ? readChildOutput(child.stdout, clock) : NO_OUTPUT;
  const stderr = child.stderr ? readChildOutput(child.stderr, clock) : NO_OUTPUT;
  if (child.stdin) void feedChild(child.stdin, spec.stdin);

  const inert = Promise.withResolvers<void>();
  let grace: Grace | undefined;
  let ending: Promise<EndReport> | undefined;
  void exited.then(() => grace?.wake());

  const end = async (until: Grace): Promise<EndReport> => {
    const report = await trees.end(tree, until, inert.resolve);
    if (!report.left.includes(pid)) {
      const settled = new AbortController();
      await Promise.race([exited, clock.sleep(STATUS_WAIT_MS, settled.signal)]);
      settled.abort();
    }
    return report;
  };
  return {
    pid,
    stdout,
    stderr,
    exited,
    inert: inert.promise,
    closeOutput() {
      stdout.close();
      stderr.close();
    },
    end(graceMs) {
      if (ending === undefined) {
        grace = new Grace(clock, graceMs);
        ending = end(grace);
      } else grace?.shorten(graceMs);
      return ending;
    },
  };
}

function unstarted(reason: Promise<string>): RunProcess {
  return {
    pid: undefined,
    stdout: NO_OUTPUT,
    stderr: NO_OUTPUT,
    exited: reason.then((text) => ({ type: "unstarted", reason: text })),
    inert: Promise.resolve(),
    closeOutput() {},
    end: () => Promise.resolve({ strays: 0, left: [] }),
  };
}

function failureOf(child: ChildProcess): Promise<string> {
  return new Promise((resolve) => {
    child.on("error", (error) => resolve(errnoOf(error) ?? "EINVAL"));
  });
}

/** Some codes are the program's or the working directory's, and whoever reads one wants to know which. */
async function explain(code: string, cwd: string, clock: Clock): Promise<string> {
  if (code !== "ENOENT" && code !== "ENOTDIR") return code;
  const look = stat(cwd).then(
    (found) => found.isDirectory(),
    () => false,
  );
  const looked = new AbortController();
  const isThere = await Promise.race([look, clock.sleep(CWD_LOOK_MS, looked.signal).then(() => true)]);
  looked.abort();
  return isThere ? code : `${code} (working directory)`;
}
