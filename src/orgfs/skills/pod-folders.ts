/**
 * Where skills live on the pod's own disk, below the state folder:
 *
 *     own/skills/records/     what the pod and the volume agreed on, one file a skill      the daemon's alone
 *     own/skills/suspects/    skills that were being read when a flight was lost
 *     own/skills/sets/        which copy of a set is the newest, one file a set
 *     own/skills/strays/      skills of checkouts that were adopted, one file each
 *     own/skills/staging/     copies being made, and what they replace
 *     own/skills/pod          a name that this pod alone has, for its claims on the volume
 *     agent/skills/home/      the org's own skills, linked as <configDir>/skills           the agent's
 *     agent/skills/sets/      read-only sets: <volume>/<random>/<set>/skills/<skill>       to be read by the agent
 *
 * All of it is on one filesystem, so that a copy is put in place by one rename. Folders that the agent owns lie in
 * folders that it does not own: it cannot put a link in their place.
 *
 * Synchronous throughout: it runs in workers, where the threads of asynchronous work may all hang at the volume.
 */
import {
  chmodSync,
  existsSync,
  lchownSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import type { Owner } from "../../agent-folder.ts";
import { fileNameOf } from "../../disk.ts";
import { errnoOf } from "../../errors.ts";
import { randomHex } from "../../random-hex.ts";

export interface PodFolders {
  readonly records: string;
  readonly suspects: string;
  readonly sets: string;
  readonly home: string;
  /** Which skills of checkouts were adopted. */
  readonly strays: string;
  /** The copies of this volume's sets. */
  readonly setCopies: string;
  /** The file with the pod's name. */
  readonly pod: string;
  /** This flight's alone, empty. */
  readonly staging: string;
}

/** Makes what is missing, and removes what a lost flight of the same volume left in `staging`. */
export function layOutPodFolders(stateDir: string, volume: string, agent: Owner | null): PodFolders {
  const dir = (mode: number, ...parts: string[]): string => {
    const path = join(stateDir, ...parts);
    mkdirSync(path, { recursive: true, mode });
    chmodSync(path, mode);
    return path;
  };
  dir(0o700, "own");
  dir(0o711, "agent");
  dir(0o755, "agent", "skills");
  dir(0o755, "agent", "skills", "sets");
  const key = fileNameOf(volume);
  const staging = dir(0o700, "own", "skills", "staging", key);
  for (const left of readdirSync(staging)) rmSync(join(staging, left), { recursive: true, force: true });
  const home = join(stateDir, "agent", "skills", "home");
  // The flights of two volumes may begin at once: one of them has made it, and given it away.
  if (madeFolder(home) && agent) lchownSync(home, agent.uid, agent.gid);
  return {
    records: dir(0o700, "own", "skills", "records"),
    suspects: dir(0o700, "own", "skills", "suspects"),
    sets: dir(0o700, "own", "skills", "sets"),
    strays: dir(0o700, "own", "skills", "strays"),
    pod: join(stateDir, "own", "skills", "pod"),
    home,
    setCopies: dir(0o755, "agent", "skills", "sets", key),
    staging: dir(0o700, "own", "skills", "staging", key, randomHex(8)),
  };
}

/** False: it was there. */
function madeFolder(path: string): boolean {
  try {
    mkdirSync(path, { mode: 0o700 });
    return true;
  } catch (error) {
    if (errnoOf(error) !== "EEXIST") throw error;
    return false;
  }
}

/** A name that no other pod has, the same in all flights. One flight at a time. */
export function podNameIn({ pod }: PodFolders): string {
  const known = existsSync(pod) ? readFileSync(pod, "utf8") : "";
  if (/^[0-9a-f]{16}$/.test(known)) return known;
  const name = randomHex(8);
  writeFileSync(pod, name, { mode: 0o600 });
  return name;
}

export function newFolder(parent: string): string {
  const path = join(parent, randomHex(8));
  mkdirSync(path, { mode: 0o755 });
  return path;
}

/** Puts a whole folder in place of what is there, or where nothing is. */
export function publish(staged: string, target: string, staging: string): void {
  takeAway(target, staging);
  renameSync(staged, target);
}

/** Removes whatever has this name, a link included and never followed. */
export function takeAway(target: string, staging: string): void {
  const aside = join(staging, randomHex(8));
  try {
    renameSync(target, aside);
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return;
    throw error;
  }
  rmSync(aside, { recursive: true, force: true });
}

/** Gives a staged tree to the agent, before it is put where the agent can reach it. */
export function giveTree(path: string, agent: Owner | null): void {
  if (!agent) return;
  lchownSync(path, agent.uid, agent.gid);
  for (const entry of readdirSync(path, { withFileTypes: true })) {
    const child = join(path, entry.name);
    if (entry.isDirectory()) giveTree(child, agent);
    else lchownSync(child, agent.uid, agent.gid);
  }
}
