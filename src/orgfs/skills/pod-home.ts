/** The pod's copy of the org's own skills, which the agent may change at any time. */
import { join } from "node:path";
import type { Owner } from "../../agent-folder.ts";
import { enterFolder, lookAtSkill, type OpenFolder, type PodSkill, readPodSkill } from "./agent-tree.ts";
import { type FileSums, versionOf } from "./hash-file.ts";
import { isOddName, isSkillName } from "./limits.ts";
import { giveTree, newFolder, type PodFolders, publish, takeAway } from "./pod-folders.ts";
import type { SkillRecord } from "./records.ts";
import { writeCopy } from "./write-copy.ts";

/** A copy that nobody else can touch. */
export interface Snapshot {
  readonly dir: string;
  readonly files: FileSums;
  readonly version: string;
}

export interface PodHome {
  /** What is there, with its skills that can be looked at. */
  skills(): ReadonlyMap<string, PodSkill>;
  /** Skills whose names are none of a skill's. */
  oddNames(): readonly string[];
  look(name: string): PodSkill | undefined;
  /** The version of what is there, read only if it was touched since the record. Undefined: it cannot be read. */
  versionOf(name: string, found: PodSkill, record: SkillRecord | undefined): string | undefined;
  snapshot(name: string): Snapshot | undefined;
  /** Puts a staged folder in place, and gives it to the agent. */
  put(name: string, staged: string): void;
  remove(name: string): void;
}

export function podHome(folders: PodFolders, agent: Owner | null): PodHome {
  const { home, staging } = folders;
  const within = <T>(name: string, visit: (folder: OpenFolder) => T): T | undefined =>
    enterFolder(home, (all) => all.enter(name, visit));
  return {
    skills() {
      const found = new Map<string, PodSkill>();
      enterFolder(home, (all) => {
        for (const name of all.names.filter(isSkillName)) {
          const skill = all.enter(name, lookAtSkill);
          if (skill) found.set(name, skill);
        }
      });
      return found;
    },
    oddNames: () =>
      enterFolder(home, (all) => all.names.filter((name) => isOddName(name) && all.enter(name, lookAtSkill))) ?? [],
    look: (name) => within(name, lookAtSkill),
    versionOf(name, found, record) {
      if (record?.base != null && record.local === found.signature) return record.base;
      if (found.trouble !== undefined) return undefined;
      const files = within(name, (folder) => readPodSkill(folder));
      return files && versionOf(files);
    },
    snapshot: (name) => within(name, (folder) => takeSnapshot(folder, staging)),
    put(name, staged) {
      giveTree(staged, agent);
      publish(staged, join(home, name), staging);
    },
    remove: (name) => takeAway(join(home, name), staging),
  };
}

export function takeSnapshot(folder: OpenFolder, staging: string): Snapshot | undefined {
  const dir = newFolder(staging);
  const files = readPodSkill(folder, (path, bytes) => writeCopy(dir, path, bytes));
  return files && { dir, files, version: versionOf(files) };
}

/** Another name for a version of a skill: the same for the same content. */
export function nameAside(name: string, version: string): string {
  return `${name}-${version.slice(0, 8)}`;
}
