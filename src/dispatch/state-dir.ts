/**
 * The state folder. Two halves:
 *
 *     lock                 one daemon at a time
 *     own/                 the daemon's alone (0700): nonces, runs/, threads/, tombstones/, ended.ndjson
 *     agent/               may be passed through, not listed (0711): runs/<name>/, threads/<name>/, each the agent's
 *
 * Laid out once, when the daemon has the lock.
 */
import {
  appendFileSync,
  chmodSync,
  closeSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readFileSync,
  realpathSync,
  statSync,
  writeSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { mayReplace, type Owner } from "../agent-folder.ts";
import { errnoOf } from "../errors.ts";

export interface StateDir {
  readonly root: string;
  readonly runs: string;
  readonly threads: string;
  readonly tombstones: string;
  readonly endedFile: string;
  readonly agentRuns: string;
  readonly agentThreads: string;
}

export function layOutStateDir(root: string): StateDir {
  const dir = (mode: number, ...parts: string[]): string => {
    const path = join(root, ...parts);
    mkdirSync(path, { recursive: true, mode });
    // An existing folder keeps its old mode, and the umask may have narrowed a new one.
    chmodSync(path, mode);
    return path;
  };
  dir(0o711);
  dir(0o700, "own");
  dir(0o711, "agent");
  return {
    root,
    runs: dir(0o700, "own", "runs"),
    threads: dir(0o700, "own", "threads"),
    tombstones: dir(0o700, "own", "tombstones"),
    endedFile: join(root, "own", "ended.ndjson"),
    agentRuns: dir(0o711, "agent", "runs"),
    agentThreads: dir(0o711, "agent", "threads"),
  };
}

/**
 * The folder in which `user` could put another one in the place of the state folder, and so have the daemon write where
 * it likes; undefined when there is none.
 */
export function replaceableIn(root: string, user: Owner): string | undefined {
  // By its name, and by where links in it lead.
  for (const path of new Set([root, realpathSync(root)])) {
    if (statSync(path).uid === user.uid) return path;
    for (let child = path; child !== dirname(child); child = dirname(child)) {
      if (mayReplace(statSync(dirname(child)), statSync(child), user)) return dirname(child);
    }
  }
  return undefined;
}

/*
 * The file of the nonces is added to, and written over, but never emptied first: on a full disk it would stay empty,
 * and the processes of earlier daemons would be nobody's. A line begins with its newline, so that none runs into one
 * that a crash cut.
 */

/**
 * Nonces mark the processes of a daemon's runs. Adds this daemon's to the state folder, before it starts any, and
 * returns those of earlier daemons whose leftovers nobody has ended yet.
 */
export function addNonce(state: StateDir, nonce: string): string[] {
  const earlier = readNonces(noncePath(state));
  appendFileSync(noncePath(state), `\n${nonce}`, { mode: 0o600 });
  return earlier;
}

/** The leftovers of all earlier daemons were ended. */
export function keepOnlyNonce(state: StateDir, nonce: string): void {
  const file = openSync(noncePath(state), "r+");
  try {
    ftruncateSync(file, writeSync(file, `\n${nonce}`, 0));
  } finally {
    closeSync(file);
  }
}

function noncePath(state: StateDir): string {
  return join(state.root, "own", "nonces");
}

function readNonces(path: string): string[] {
  try {
    return readFileSync(path, "utf8")
      .split("\n")
      .filter((line) => /^[0-9a-f]{32}$/.test(line));
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return [];
    throw error;
  }
}
