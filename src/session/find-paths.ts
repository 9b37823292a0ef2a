/**
 * What is there of a session's files. The folders may belong to the agent's user, who may put anything in the way: a link
 * is never followed, since it may lead to the org volume, where a call need not return.
 */
import type { Stats } from "node:fs";
import { lstat, readdir } from "node:fs/promises";
import { join } from "node:path";
import { errnoOf } from "../errors.ts";

/** What stands in the way of a path means that nothing is there. */
const NOT_HERE: ReadonlySet<string | undefined> = new Set(["ENOENT", "ENOTDIR", "ELOOP", "EACCES", "ENAMETOOLONG"]);

export interface FoundPath {
  readonly path: string;
  /** Of the thing itself, whatever it is. */
  readonly facts: Stats;
}

/** What is there below `root` under a pattern: "*" stands for any one folder. All but the last are real folders. */
export async function findPaths(root: string, pattern: readonly string[]): Promise<FoundPath[]> {
  let folders = [root];
  const found: FoundPath[] = [];
  for (const [index, part] of pattern.entries()) {
    const next: string[] = [];
    for (const folder of folders) {
      if (!(await factsOf(folder))?.isDirectory()) continue;
      for (const name of part === "*" ? await foldersIn(folder) : [part]) {
        const path = join(folder, name);
        const facts = await factsOf(path);
        if (facts && index === pattern.length - 1) found.push({ path, facts });
        else if (facts?.isDirectory()) next.push(path);
      }
    }
    folders = next;
  }
  return found;
}

async function factsOf(path: string): Promise<Stats | undefined> {
  try {
    return await lstat(path);
  } catch (error) {
    if (NOT_HERE.has(errnoOf(error))) return undefined;
    throw error;
  }
}

async function foldersIn(path: string): Promise<string[]> {
  try {
    return (await readdir(path, { withFileTypes: true })).filter((each) => each.isDirectory()).map(({ name }) => name);
  } catch (error) {
    if (NOT_HERE.has(errnoOf(error))) return [];
    throw error;
  }
}
