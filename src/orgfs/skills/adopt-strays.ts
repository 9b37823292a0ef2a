/**
 * Skills that the agent left in its checkout, in the `skills` folder of a hidden folder there, where it looks for a
 * project's own: copied among the org's own skills, so that they outlive the pod. What the repository tracks is a
 * project's own and stays out; where that cannot be told, all stay out. All of it is the pod's own disk, and the agent's: nothing is followed or waited for.
 */
import { existsSync, lstatSync, realpathSync } from "node:fs";
import { join } from "node:path";
import { errnoOf } from "../../errors.ts";
import { enterFolder, lookAtSkill, type OpenFolder, readPodSkill } from "./agent-tree.ts";
import { versionOf } from "./hash-file.ts";
import type { Conflict, LeftOut, ReturnInput } from "./jobs.ts";
import { isOddName, isSkillName, ODD_NAME, tellableName } from "./limits.ts";
import type { PodFolders } from "./pod-folders.ts";
import { nameAside, type PodHome, takeSnapshot } from "./pod-home.ts";
import { recordsIn } from "./records.ts";

const MAX_INDEX_BYTES = 64 << 20;
const UNTOLD = "it may be the project's own: what git tracks there cannot be told";

export interface Adoption {
  readonly adopted: readonly string[];
  readonly conflicts: readonly Conflict[];
  readonly leftOut: readonly LeftOut[];
}

/** Which version of a stray was adopted, under which name. */
interface AdoptionRecord {
  /** Where the stray is. */
  readonly name: string;
  readonly as: string;
  readonly version: string;
}

export function adoptStrays(
  { checkouts, agent, quietMs, nowMs }: Pick<ReturnInput, "checkouts" | "agent" | "quietMs" | "nowMs">,
  folders: PodFolders,
  home: PodHome,
): Adoption {
  const records = recordsIn<AdoptionRecord>(folders.strays);
  const adopted: string[] = [];
  const conflicts: Conflict[] = [];
  const leftOut: LeftOut[] = [];

  function adopt(folder: OpenFolder, name: string, place: string): void {
    const found = lookAtSkill(folder);
    // One that is still being written waits for the next time.
    if (!found || (quietMs > 0 && nowMs - found.changedMs < quietMs)) return;
    const files = found.trouble === undefined ? readPodSkill(folder) : undefined;
    if (!files) {
      leftOut.push({ name, reason: found.trouble ?? "it changes while it is read", kept: false });
      return;
    }
    const before = records.read(place);
    const version = versionOf(files);
    if (before?.version === version) return;
    const as = nameFor(name, version, before);
    const snapshot = as.put ? takeSnapshot(folder, folders.staging) : undefined;
    if (as.put && snapshot?.version !== version) return;
    if (snapshot) home.put(as.name, snapshot.dir);
    records.write(place, { name: place, as: as.name, version });
    if (!as.put) return;
    adopted.push(as.name);
    if (as.name !== name) conflicts.push({ name, keptAs: as.name });
  }

  /** One that this disk does not take holds up none. */
  function tryToAdopt(folder: OpenFolder, name: string, place: string): void {
    try {
      adopt(folder, name, place);
    } catch (error) {
      const code = errnoOf(error);
      if (code === undefined) throw error;
      leftOut.push({ name, reason: `it cannot be adopted: ${code}`, kept: false });
    }
  }

  function leaveOut(skills: OpenFolder, name: string, reason: string): void {
    if (!skills.enter(name, lookAtSkill)) return;
    leftOut.push({ name: tellableName(name), reason, kept: false });
  }

  /** Under which name a stray is taken in; not put there when it is there already. */
  function nameFor(name: string, version: string, before: AdoptionRecord | undefined): { name: string; put: boolean } {
    const versionAt = (at: string): string | undefined => {
      const found = home.look(at);
      return found && home.versionOf(at, found, undefined);
    };
    // The one that was adopted before and that nobody changed since is brought up to date.
    if (before && versionAt(before.as) === before.version) return { name: before.as, put: true };
    const there = home.look(name) ? versionAt(name) : null;
    if (there === null) return { name, put: true };
    if (there === version) return { name, put: false };
    const aside = nameAside(name, version);
    return { name: aside, put: home.look(aside) === undefined };
  }

  for (const checkout of checkouts) {
    enterFolder(realPlace(checkout, agent), (root) => {
      const tracks = trackedIn(root);
      for (const hidden of root.names.filter((name) => name.startsWith(".") && name !== ".git")) {
        root.enter(hidden, (inner) =>
          inner.enter("skills", (skills) => {
            for (const name of skills.names.filter(isOddName)) {
              if (!tracks?.(`${hidden}/skills/${name}`)) leaveOut(skills, name, ODD_NAME);
            }
            for (const name of skills.names.filter(isSkillName)) {
              const path = `${hidden}/skills/${name}`;
              if (tracks === undefined) leaveOut(skills, name, UNTOLD);
              else if (!tracks(path)) skills.enter(name, (folder) => tryToAdopt(folder, name, join(checkout, path)));
            }
          }),
        );
      }
    });
  }
  return { adopted, conflicts, leftOut };
}

/**
 * Does git track something in this folder of the checkout? Undefined: it cannot be told. Its index holds the paths as they
 * are in versions 2 and 3; in version 4 they are cut, and a split one holds a part of them.
 */
function trackedIn(root: OpenFolder): ((path: string) => boolean) | undefined {
  if (!root.look(".git")) return () => false;
  // Undefined for what is no folder: a work tree whose repository is elsewhere.
  return root.enter(".git", (git) => {
    if (!git.look("index")) return { tracks: () => false };
    if (git.names.some((name) => name.startsWith("sharedindex."))) return undefined;
    const index = git.read("index", MAX_INDEX_BYTES);
    const head = index?.toString("latin1", 0, 8) ?? "";
    return index && ["DIRC\0\0\0\x02", "DIRC\0\0\0\x03"].includes(head)
      ? { tracks: (path: string) => index.includes(`${path}/`) }
      : undefined;
  })?.tracks;
}

/** A checkout may be a link that the pod's owner made; one that the agent may have made is not followed. */
function realPlace(checkout: string, agent: ReturnInput["agent"]): string {
  const found = lstatSync(checkout, { throwIfNoEntry: false });
  const isTrusted = found?.isSymbolicLink() && (agent === null || found.uid !== agent.uid);
  return isTrusted && existsSync(checkout) ? realpathSync(checkout) : checkout;
}
