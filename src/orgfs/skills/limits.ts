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

/** A name that can stand in a listing and in a path; names with a leading dot are tools' own. */
export function isSkillName(name: string): boolean {
  return name.length <= 128 && !name.startsWith(".") && !/[/\\\p{Cc}\uFFFD]/u.test(name);
}
