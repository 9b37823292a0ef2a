/** Sizes beyond which skills are left out, and what a skill is. */

export const SKILL_FILE = "SKILL.md";

/** What tools leave behind in a skill's folder: no part of it, or it would change with every use. */
export const IGNORED_NAMES: ReadonlySet<string> = new Set([".git", ".DS_Store", "node_modules", "__pycache__"]);

export const MAX_SKILL_BYTES = 16 << 20;
export const MAX_SKILL_FILES = 1000;
export const MAX_SKILL_DEPTH = 8;
/** Of one volume, together. */
export const MAX_VOLUME_BYTES = 128 << 20;
export const MAX_VOLUME_SKILLS = 1000;

/** Files on their way at a time: a mount answers several requests in the time of one. */
export const READS_AT_A_TIME = 32;

/** One call on the volume; a skill that took longer is tried again last, and after a pause. */
export const CALL_MS = 5000;

const MAX_NAME_LENGTH = 128;
const NOT_IN_NAMES = /[/\\\p{Cc}\uFFFD]/gu;

/** A name that can stand in a listing and in a path; names with a leading dot are tools' own. */
export function isSkillName(name: string): boolean {
  return name.length <= MAX_NAME_LENGTH && !name.startsWith(".") && name.search(NOT_IN_NAMES) < 0;
}

/** Why a skill is left out that has a name, and not one of `isSkillName`. */
export const ODD_NAME = `its name has over ${MAX_NAME_LENGTH} characters, or one that cannot stand in a listing`;

export function isOddName(name: string): boolean {
  return !name.startsWith(".") && !isSkillName(name);
}

/** As it can be told, to the model too. */
export function tellableName(name: string): string {
  return name.replaceAll(NOT_IN_NAMES, "?").slice(0, MAX_NAME_LENGTH);
}
