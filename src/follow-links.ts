/**
 * Where a path leads, its links resolved once, so that all code means the same folder by it and need follow none later.
 * Nothing is opened: the agent's rights to what is on the way are looked at, and the walk ends before the first name that
 * it could have put there.
 */
import { lstat, readlink, realpath } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { mayReplace, type Owner } from "./agent-folder.ts";
import { errnoOf } from "./errors.ts";

/** As many as the kernel follows. */
const MAX_LINKS = 40;

export interface FollowRules {
  /** Another user's, whose links are not followed; null: there is none. */
  readonly agent: Owner | null;
  /** A folder below which not even a look may be taken. It is in one that is there. */
  readonly closed: string;
}

export type Followed =
  /** What is not there, or cannot be looked at, stays as it was written. */
  | { readonly type: "path"; readonly path: string }
  /** The agent can have made a link on the way, and so all that comes after it stays as it was written. */
  | { readonly type: "agents-link"; readonly path: string }
  | { readonly type: "closed"; readonly path: string };

/** `path` is absolute. */
export async function followLinks(path: string, { agent, closed }: FollowRules): Promise<Followed> {
  const roots = await namesOf(closed);
  const isClosed = (at: string): boolean => roots.some((root) => `${at}/`.startsWith(`${root}/`));
  const names = path.split("/").filter(isName);
  let at = "/";
  let links = 0;
  for (let name = names.shift(); name !== undefined; name = names.shift()) {
    if (name === "..") {
      at = dirname(at);
      continue;
    }
    const next = join(at, name);
    const rest = join(next, ...names);
    if (isClosed(next)) return { type: "closed", path: rest };
    const found = await lookAt(next);
    if (!found) return { type: isClosed(rest) ? "closed" : "path", path: rest };
    if (agent && mayReplace(await lstat(at), found, agent)) {
      return { type: found.isSymbolicLink() ? "agents-link" : "path", path: rest };
    }
    if (!found.isSymbolicLink()) at = next;
    else {
      if (++links > MAX_LINKS) return { type: "path", path };
      const target = await readlink(next);
      if (target.startsWith("/")) at = "/";
      names.unshift(...target.split("/").filter(isName));
    }
  }
  return { type: "path", path: at };
}

/** Under which a walk may come to a folder; what lies in it is not looked at. */
async function namesOf(folder: string): Promise<string[]> {
  const real = join(await realpath(dirname(folder)), basename(folder));
  const found = await lookAt(real);
  const target = found?.isSymbolicLink() ? [resolve(dirname(real), await readlink(real))] : [];
  return [folder, real, ...target];
}

function isName(name: string): boolean {
  return name !== "" && name !== ".";
}

async function lookAt(path: string) {
  try {
    return await lstat(path);
  } catch (error) {
    // Closed to us, or under something that is no folder: whoever needs it says so.
    if (errnoOf(error) === undefined) throw error;
    return undefined;
  }
}
