/** `<configDir>/skills`: a link to the pod's copy of the org's own skills, unless the image has a folder of its own. */
import {
  lchownSync,
  lstatSync,
  mkdirSync,
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

/** A link to elsewhere is somebody's own, like a folder with something in it. */
export function linkSkills(configDir: string, home: string, agent: Owner | null): "linked" | "own-folder" {
  if (mkdirSync(configDir, { recursive: true, mode: 0o700 }) !== undefined && agent) {
    lchownSync(configDir, agent.uid, agent.gid);
  }
  const path = join(configDir, "skills");
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
