/**
 * `<configDir>/skills`: a link to the pod's copy of the org's own skills, unless the image has a folder of its own.
 *
 * The agent can put a link in place of its config folder, and this may run with more rights than it: the folder is opened
 * without following one, and all that is done happens in what was opened, whatever the name means by then.
 */
import {
  closeSync,
  constants,
  fchownSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readlinkSync,
  renameSync,
  rmdirSync,
  symlinkSync,
} from "node:fs";
import { join } from "node:path";
import { errnoOf } from "../../errors.ts";
import { randomHex } from "../../random-hex.ts";
import type { Owner } from "./pod-folders.ts";

const { O_DIRECTORY, O_NOFOLLOW, O_RDONLY } = constants;

/** `no-folder`: the config folder is a link, or no folder at all. */
export type SkillsLink = "linked" | "own-folder" | "no-folder";

export function linkSkills(configDir: string, home: string, agent: Owner | null): SkillsLink {
  const isThere = lstatSync(configDir, { throwIfNoEntry: false }) !== undefined;
  const isMade = !isThere && mkdirSync(configDir, { recursive: true, mode: 0o700 }) !== undefined;
  const fd = openFolder(configDir);
  if (fd === undefined) return "no-folder";
  try {
    if (isMade && agent) fchownSync(fd, agent.uid, agent.gid);
    return linkIn(`/proc/self/fd/${fd}`, home);
  } finally {
    closeSync(fd);
  }
}

/** Undefined: a link, or no folder. */
function openFolder(path: string): number | undefined {
  try {
    return openSync(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  } catch (error) {
    if (["ELOOP", "ENOTDIR"].includes(errnoOf(error) ?? "")) return undefined;
    throw error;
  }
}

/** A link to elsewhere is somebody's own, like a folder with something in it. */
function linkIn(folder: string, home: string): SkillsLink {
  const path = join(folder, "skills");
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found?.isSymbolicLink()) return readlinkSync(path) === home || relink(path, home) ? "linked" : "own-folder";
  if (found && !removeEmpty(path)) return "own-folder";
  makeLink(path, home);
  return "linked";
}

/** A link of an earlier state folder leads nowhere by now; one that leads somewhere is left. */
function relink(path: string, home: string): boolean {
  try {
    readdirSync(path);
    return false;
  } catch (error) {
    if (errnoOf(error) !== "ENOENT") return false;
  }
  makeLink(path, home);
  return true;
}

function makeLink(path: string, home: string): void {
  const temporary = `${path}.${randomHex(6)}`;
  symlinkSync(home, temporary);
  renameSync(temporary, path);
}

/** False: there is something in it, or it is no folder. */
function removeEmpty(path: string): boolean {
  try {
    rmdirSync(path);
    return true;
  } catch (error) {
    if (["ENOTEMPTY", "EEXIST", "ENOTDIR"].includes(errnoOf(error) ?? "")) return false;
    throw error;
  }
}
