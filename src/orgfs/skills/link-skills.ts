/**
 * `<configDir>/skills`: a link to the pod's copy of the org's own skills, unless the image has a folder of its own.
 *
 * The agent can lay a link on the way to its config folder, and this may run with more rights than it: then none is
 * followed that it can have made, and all that is done happens in what was opened, whatever the name means by then.
 */
import { constants, lstatSync, readdirSync, readlinkSync, renameSync, rmdirSync, symlinkSync } from "node:fs";
import { type FileHandle, mkdir, open } from "node:fs/promises";
import { join } from "node:path";
import type { Owner } from "../../agent-folder.ts";
import { openAgentFolder } from "../../agent-folder.ts";
import { errnoOf } from "../../errors.ts";
import { randomHex } from "../../random-hex.ts";

/**
 * `no-folder`: the config folder is no folder, or is reached over a link that the agent can have made. `unwritable`: this
 * disk does not let us.
 */
export type SkillsLink = "linked" | "own-folder" | "no-folder" | "unwritable";

/** Never fails: the skills are brought all the same. */
export async function linkSkills(configDir: string, home: string, agent: Owner | null): Promise<SkillsLink> {
  try {
    const folder = await (agent ? openAgentFolder(configDir, agent) : openOwnFolder(configDir));
    if (!folder) return "no-folder";
    try {
      return linkIn(`/proc/self/fd/${folder.fd}`, home);
    } finally {
      await folder.close();
    }
  } catch (error) {
    if (errnoOf(error) === undefined) throw error;
    return "unwritable";
  }
}

/** Where the agent is the daemon's user, a link leads nowhere where it could not write itself. */
async function openOwnFolder(path: string): Promise<FileHandle | undefined> {
  try {
    await mkdir(path, { recursive: true, mode: 0o700 });
    return await open(path, constants.O_RDONLY | constants.O_DIRECTORY);
  } catch (error) {
    // A file, or a link to nothing.
    if (["ENOENT", "EEXIST", "ENOTDIR", "ELOOP"].includes(errnoOf(error) ?? "")) return undefined;
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
