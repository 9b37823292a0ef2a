/**
 * The links of a run in `<APP_ROOT>/org`, on the pod's own disk, and the folders on the volumes that they lead to. Two
 * jobs: a volume that hangs keeps no link from being made, and no stale one in place.
 */
import { lchown, lstat, mkdir, readlink, rename, rm, symlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import { errnoOf } from "../../errors.ts";
import { randomHex } from "../../random-hex.ts";

export interface LinkWish {
  readonly path: string;
  /** Relative to the link's folder. Null: no link, and one of an earlier run is removed. */
  readonly target: string | null;
}

declare module "../port.ts" {
  interface OrgJobs {
    "links-set": {
      input: { readonly links: readonly LinkWish[] };
      /** Paths at which something else is, which stays. */
      output: { readonly taken: readonly string[] };
    };
    "folder-make": {
      input: { readonly path: string; readonly owner: { readonly uid: number; readonly gid: number } | null };
      output: null;
    };
  }
}

export async function setLinks({ links }: { readonly links: readonly LinkWish[] }): Promise<{ taken: string[] }> {
  const taken: string[] = [];
  for (const link of links) if (!(await setLink(link))) taken.push(link.path);
  return { taken };
}

/** False when there is something that is no link. */
async function setLink({ path, target }: LinkWish): Promise<boolean> {
  const found = await linkAt(path);
  if (found === "something else") return false;
  if (found === target) return true;
  if (target === null) {
    await rm(path, { force: true });
    return true;
  }
  await mkdir(dirname(path), { recursive: true });
  const temporary = join(dirname(path), `.link-${randomHex(6)}`);
  await symlink(target, temporary);
  await rename(temporary, path);
  return true;
}

/** The link's target, or null where nothing is. */
async function linkAt(path: string): Promise<string | null | "something else"> {
  try {
    return (await lstat(path)).isSymbolicLink() ? await readlink(path) : "something else";
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return null;
    throw error;
  }
}

export async function makeFolder({
  path,
  owner,
}: {
  readonly path: string;
  readonly owner: { readonly uid: number; readonly gid: number } | null;
}): Promise<null> {
  const made = await mkdir(path, { recursive: true });
  // A mount without owners refuses, and then its folders are open to whom its options say.
  if (made !== undefined && owner) await lchown(path, owner.uid, owner.gid).catch(() => {});
  return null;
}
