/**
 * Job: read-only sets of skills, from a volume to the pod, each as a local plugin: a folder with a `skills` folder in it.
 * A set that changed is staged as a whole under a new name, and published by one rename; skills that did not change are
 * taken from the copy before. A skill that cannot be read keeps its earlier copy, or is left out. A volume that hangs
 * changes no set. Copies that no run uses any more are removed.
 *
 * Nothing but skills is copied: a plugin could bring hooks and servers of its own.
 */
import { cpSync, existsSync, mkdirSync, readdirSync, renameSync } from "node:fs";
import { basename, join } from "node:path";
import { fileNameOf } from "../../disk.ts";
import { errnoOf } from "../../errors.ts";
import { randomHex } from "../../random-hex.ts";
import { eachAtATime } from "./each-at-a-time.ts";
import type { BroughtSets, LeftOut, SetsInput } from "./jobs.ts";
import {
  isSkillName,
  MAX_VOLUME_BYTES,
  MAX_VOLUME_SKILLS,
  ODD_NAME,
  READS_AT_A_TIME,
  SKILL_FILE,
  tellableName,
} from "./limits.ts";
import { layOutPodFolders, newFolder, takeAway } from "./pod-folders.ts";
import { recordsIn, type SetRecord, type Suspicion } from "./records.ts";
import { suspectsIn } from "./suspects.ts";
import { diskFiles, limitCalls, type VolumeFiles, VolumeHangs } from "./volume-files.ts";
import { listOddSkills, listSkill, readSkill, SkillTrouble, troubleOf } from "./volume-skill.ts";
import { writeCopy } from "./write-copy.ts";

/** A name by which the agent calls a set's skills, `<plugin>:<skill>`. */
export function pluginName(set: string): string {
  const plain = set
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, "-")
    .replaceAll(/^-+|-+$/g, "");
  return plain === set ? plain : `${plain || "set"}-${fileNameOf(set).slice(0, 6)}`;
}

export async function bringSets(input: SetsInput, files: VolumeFiles = diskFiles): Promise<BroughtSets> {
  const folders = layOutPodFolders(input.stateDir, input.volume, input.agent);
  const volume = limitCalls(files, input.callMs);
  const records = recordsIn<SetRecord>(folders.sets);
  const suspicions = recordsIn<Suspicion>(folders.suspects);
  const changed: string[] = [];
  const leftOut: LeftOut[] = [];
  const odd: OddNames[] = [];
  let hung = false;
  let bytes = 0;
  let skills = 0;

  const keyOf = (set: string): string => `${input.volume}/${set}`;
  const currentOf = (set: string): SetRecord | undefined => {
    const record = records.read(keyOf(set));
    return record && existsSync(record.dir) ? record : undefined;
  };

  async function bringSet(set: string, place: SetPlace): Promise<void> {
    const { dir } = place;
    const { places, ...rest } = await troubleOf(skillPlaces(volume, set, place));
    if (rest.below) odd.push({ ...rest.below, prefix: `${set}/`, scope: keyOf(set) });
    const current = currentOf(set);
    const plugin = pluginName(set);
    const stagedRoot = newFolder(folders.staging);
    const staged = join(stagedRoot, plugin, "skills");
    mkdirSync(staged, { recursive: true, mode: 0o755 });
    const now = new Map<string, string>();
    const keep = (name: string): boolean => {
      if (!current || !Object.hasOwn(current.skills, name)) return false;
      cpSync(join(current.dir, "skills", name), join(staged, name), { recursive: true });
      return true;
    };
    const suspects = suspectsIn(suspicions, keyOf(set), input.nowMs);
    const names = [...places.keys()];
    const beyond = names.splice(MAX_VOLUME_SKILLS).length;
    const { tried, spared } = suspects.order(names);
    const without = (name: string, reason: string): void => {
      takeAway(join(staged, name), folders.staging);
      const kept = keep(name);
      // Read again the next time, whatever the listing says.
      if (kept) now.set(name, "");
      leftOut.push({ name: `${set}/${name}`, reason, kept });
    };
    const bringSkill = async (name: string, from: string): Promise<void> => {
      const listing = await listSkill(volume, from);
      if (!listing) return;
      if (skills === MAX_VOLUME_SKILLS) throw new SkillTrouble(`the volume has over ${MAX_VOLUME_SKILLS} skills`, true);
      // Only what fits counts: a large one holds up none behind it.
      if (bytes + listing.bytes > MAX_VOLUME_BYTES) {
        throw new SkillTrouble(`the volume's skills are over ${MAX_VOLUME_BYTES} bytes`, true);
      }
      bytes += listing.bytes;
      skills += 1;
      if (current?.skills[name] !== listing.signature || !keep(name)) {
        mkdirSync(join(staged, name), { mode: 0o755 });
        await readSkill(volume, from, listing, (path, content) => writeCopy(join(staged, name), path, content));
      }
      now.set(name, listing.signature);
    };
    for (const name of spared) without(name, "reading it took too long before");
    await eachAtATime(READS_AT_A_TIME, tried, async (name) => {
      try {
        if (hung) throw new VolumeHangs(false);
        const from = places.get(name) ?? join(dir, name);
        await suspects.watch(name, () => bringSkill(name, from));
      } catch (error) {
        if (error instanceof VolumeHangs) hung = true;
        else without(name, reasonOf(error));
      }
    });
    if (beyond > 0 && now.size > 0) {
      leftOut.push({ name: set, reason: `${beyond} folders beyond the first ${MAX_VOLUME_SKILLS}`, kept: false });
    }
    const skillsNow = Object.fromEntries(now);
    if (hung || (current && sameSkills(current.skills, skillsNow))) return;
    const copy = join(folders.setCopies, randomHex(8));
    renameSync(stagedRoot, copy);
    records.write(keyOf(set), { name: keyOf(set), dir: join(copy, plugin), skills: skillsNow });
    changed.push(set);
  }

  const listed = await listSets(volume, input, odd).catch((error: unknown) => {
    if (!(error instanceof VolumeHangs)) throw error;
    hung = true;
    return undefined;
  });
  for (const [set, place] of listed ?? []) {
    try {
      if (hung) break;
      await bringSet(set, place);
    } catch (error) {
      if (error instanceof VolumeHangs) hung = true;
      else leftOut.push({ name: set, reason: reasonOf(error), kept: currentOf(set) !== undefined });
    }
  }
  for (const { dir, names, prefix, scope, isMeant } of odd) {
    if (hung) break;
    const suspects = suspectsIn(suspicions, scope, input.nowMs);
    for (const name of await listOddSkills(volume, dir, names, suspects, isMeant)) {
      leftOut.push({ name: `${prefix}${tellableName(name)}`, reason: ODD_NAME, kept: false });
    }
  }

  if (listed) {
    for (const key of records.names()) {
      const set = key.startsWith(`${input.volume}/`) ? key.slice(input.volume.length + 1) : undefined;
      if (set !== undefined && !listed.has(set)) records.remove(key);
    }
  }
  const mine = records.names().filter((key) => key.startsWith(`${input.volume}/`));
  const sets = mine.flatMap((key) => {
    const record = currentOf(key.slice(input.volume.length + 1));
    const count = Object.keys(record?.skills ?? {}).length;
    return record && count > 0 ? [{ name: basename(record.dir), dir: record.dir, count }] : [];
  });
  const inUse = new Set([...sets.map(({ dir }) => dir), ...input.used].map((dir) => basename(join(dir, ".."))));
  for (const copy of readdirSync(folders.setCopies)) {
    if (!inUse.has(copy)) takeAway(join(folders.setCopies, copy), folders.staging);
  }
  return { hung, leftOut, sets: sets.sort((one, other) => (one.name < other.name ? -1 : 1)), changed };
}

interface SetPlace {
  readonly dir: string;
  /** What is in it, if that is known already. */
  readonly names?: readonly string[];
}

/** Where names that are no skill's may be of folders with skills in them. */
interface OddNames {
  readonly dir: string;
  readonly names: readonly string[];
  /** Of the name by which one is told. */
  readonly prefix: string;
  readonly scope: string;
  readonly isMeant?: () => boolean;
}

/** Throws when the volume itself cannot be listed. */
async function listSets(
  volume: VolumeFiles,
  input: SetsInput,
  odd: OddNames[],
): Promise<ReadonlyMap<string, SetPlace>> {
  // With the dot, the mount itself may be reached over a link: the pod's owner made it.
  const dir = `${input.mountPath}/.`;
  const names = (await volume.list(dir)) ?? [];
  if (input.layout === "one") return new Map([[input.volume, { dir, names }]]);
  odd.push({ dir, names, prefix: "", scope: input.volume, isMeant: () => true });
  return new Map(
    names
      .filter(isSkillName)
      .sort()
      .map((name) => [name, { dir: join(input.mountPath, name) }]),
  );
}

/** The folders of a set that may be skills: below its `skills` folder, itself, or those in it. */
async function skillPlaces(
  volume: VolumeFiles,
  set: string,
  place: SetPlace,
): Promise<{ places: ReadonlyMap<string, string>; below?: { dir: string; names: readonly string[] } }> {
  const { dir } = place;
  const names = place.names ?? (await volume.list(dir)) ?? [];
  if (names.includes(SKILL_FILE)) return { places: new Map([[set, dir]]) };
  const inner = names.includes("skills") ? await volume.list(join(dir, "skills")) : undefined;
  const isSet = inner !== undefined && !inner.includes(SKILL_FILE);
  const below = isSet ? join(dir, "skills") : dir;
  const all = isSet ? inner : names;
  const skills = all.filter(isSkillName).sort();
  return {
    places: new Map(skills.map((name) => [name, join(below, name)])),
    below: { dir: below, names: all },
  };
}

function reasonOf(error: unknown): string {
  if (error instanceof SkillTrouble) return error.reason;
  const code = errnoOf(error);
  if (code === undefined) throw error;
  return `it cannot be put in place: ${code}`;
}

function sameSkills(one: Readonly<Record<string, string>>, other: Readonly<Record<string, string>>): boolean {
  const names = Object.keys(one);
  return names.length === Object.keys(other).length && names.every((name) => one[name] === other[name]);
}
