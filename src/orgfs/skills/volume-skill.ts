/** A skill as it lies on a volume: what its listing says, and its content, checked against its file of hashes. */
import { join } from "node:path";
import { errnoOf } from "../../errors.ts";
import { eachAtATime } from "./each-at-a-time.ts";
import { type FileSums, HASH_FILE, type Hashes, parseHashFile, sumOf } from "./hash-file.ts";
import {
  IGNORED_NAMES,
  isOddName,
  MAX_SKILL_BYTES,
  MAX_SKILL_DEPTH,
  MAX_SKILL_FILES,
  READS_AT_A_TIME,
  SKILL_FILE,
} from "./limits.ts";
import type { Suspects } from "./suspects.ts";
import { type VolumeFile, type VolumeFiles, VolumeHangs } from "./volume-files.ts";

export interface SkillListing {
  readonly files: ReadonlyMap<string, VolumeFile>;
  /** What lies between and beside them; "other" are links and pipes. */
  readonly rest: ReadonlyMap<string, "folder" | "other">;
  readonly bytes: number;
  /** Alike as long as no file of it changed in name, size or time. */
  readonly signature: string;
}

/** Why a skill is left out; the others are not concerned. `lasting`: it stays so until its listing changes. */
export class SkillTrouble extends Error {
  constructor(
    readonly reason: string,
    readonly lasting: boolean,
  ) {
    super(reason);
  }
}

/** Undefined: nothing there is a skill. Throws SkillTrouble, or VolumeHangs. */
export async function listSkill(volume: VolumeFiles, dir: string): Promise<SkillListing | undefined> {
  const files = new Map<string, VolumeFile>();
  const rest = new Map<string, "folder" | "other">();
  let bytes = 0;
  async function visit(names: readonly string[], below: string, depth: number): Promise<void> {
    for (const name of [...names].sort()) {
      if (IGNORED_NAMES.has(name)) continue;
      const path = below === "" ? name : `${below}/${name}`;
      const found = await volume.look(join(dir, path));
      if (typeof found === "string") {
        if (path === SKILL_FILE || path === HASH_FILE) throw new SkillTrouble(`${path} is no file`, true);
        rest.set(path, found);
      }
      if (found === "folder") {
        if (depth >= MAX_SKILL_DEPTH) throw new SkillTrouble("its folders are too deep", true);
        await visit((await volume.list(join(dir, path))) ?? [], path, depth + 1);
      } else if (found !== undefined && found !== "other") {
        files.set(path, found);
        bytes += found.size;
        if (files.size > MAX_SKILL_FILES || bytes > MAX_SKILL_BYTES) throw new SkillTrouble("it is too large", true);
      }
    }
  }
  const names = await troubleOf(volume.list(dir));
  // A volume may hold anything: what is no skill costs one listing.
  if (!names?.includes(SKILL_FILE)) return undefined;
  await troubleOf(visit(names, "", 0));
  // An empty one is on its way, or was cut.
  if (!files.get(SKILL_FILE)?.size) return undefined;
  const lines = [...files].map(([path, { size, mtimeMs }]) => `${path}\0${size}\0${mtimeMs}\n`);
  const signature = new Bun.CryptoHasher("sha256").update(lines.join("")).digest("hex");
  return { files, rest, bytes, signature };
}

/** So many are looked at. */
const MAX_ODD = 100;

/**
 * Of the names in a folder, those that are no skill's and are of a folder with a skill in it. They are left out whatever
 * they hold: so they are looked at when all else was brought, one that hangs condemns nothing, and is not looked at again.
 */
export async function listOddSkills(
  volume: VolumeFiles,
  dir: string,
  names: readonly string[],
  suspects: Suspects,
  isMeant = (inside: readonly string[]): boolean => inside.includes(SKILL_FILE),
): Promise<readonly string[]> {
  const found: string[] = [];
  await eachAtATime(READS_AT_A_TIME, names.filter(isOddName).sort().slice(0, MAX_ODD), async (name) => {
    if (suspects.has(name)) return void found.push(name);
    try {
      await suspects.watch(name, async () => {
        const inside = await troubleOf(volume.list(join(dir, name))).catch(asNothing);
        if (inside && isMeant(inside)) found.push(name);
      });
    } catch (error) {
      if (!(error instanceof VolumeHangs)) throw error;
      if (error.waited) found.push(name);
    }
  });
  return found.sort();
}

/** Whatever it is, it would be left out. */
function asNothing(error: unknown): undefined {
  if (!(error instanceof SkillTrouble)) throw error;
  return undefined;
}

export interface SkillContent {
  readonly files: FileSums;
  /** Undefined: there is no file of hashes. */
  readonly ancestors: readonly string[] | undefined;
}

/** The whole content, but the file of hashes. Throws SkillTrouble when it is not what that says, or VolumeHangs. */
export async function readSkill(
  volume: VolumeFiles,
  dir: string,
  listing: SkillListing,
  take: (path: string, bytes: Buffer) => void,
): Promise<SkillContent> {
  const said = await readHashFile(volume, dir, listing);
  // A file may be called `__proto__`.
  const sums = new Map<string, FileSums[string]>();
  for (const [path, { size }] of listing.files) {
    if (path === HASH_FILE) continue;
    const stated = said && Object.hasOwn(said.files, path) ? said.files[path] : undefined;
    // Known without reading: a file that is still being written, or was cut.
    if (stated && stated.size !== size) throw differs(path);
    const bytes = await troubleOf(volume.read(join(dir, path), MAX_SKILL_BYTES));
    const sum = sumOf(bytes);
    if (stated && stated.sha256 !== sum.sha256) throw differs(path);
    if (bytes.length !== size) throw new SkillTrouble(`${path} changes while it is read`, false);
    sums.set(path, sum);
    take(path, bytes);
  }
  const missing = Object.keys(said?.files ?? {}).find((path) => !sums.has(path));
  if (missing !== undefined) throw differs(missing);
  return { files: Object.fromEntries(sums), ancestors: said?.ancestors };
}

async function readHashFile(volume: VolumeFiles, dir: string, listing: SkillListing): Promise<Hashes | undefined> {
  if (!listing.files.has(HASH_FILE)) return undefined;
  const bytes = await troubleOf(volume.read(join(dir, HASH_FILE), MAX_SKILL_BYTES));
  const said = parseHashFile(bytes.toString("utf8"));
  if (!said) throw new SkillTrouble(`${HASH_FILE} cannot be understood`, true);
  return said;
}

function differs(path: string): SkillTrouble {
  return new SkillTrouble(`${path} is not what ${HASH_FILE} says: written in part, or edited`, true);
}

/** An error of the volume becomes the skill's trouble, so that one skill does not take the others. */
export async function troubleOf<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    if (error instanceof VolumeHangs || error instanceof SkillTrouble) throw error;
    if (errnoOf(error) === "ELOOP") throw new SkillTrouble("it is a link", true);
    throw new SkillTrouble(`it cannot be read: ${errnoOf(error) ?? "error"}`, false);
  }
}
