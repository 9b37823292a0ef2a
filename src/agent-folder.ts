/**
 * Opens, and makes, a folder on a path that the agent may have had its hands on, for a process that has more rights than
 * it. The path is gone name by name, each folder entered through the descriptor of the one above, so that it does not
 * matter what a name means a moment later. A link is followed only where the agent can neither have made it nor put it
 * there: the pod's owner may lay out a machine with links, the agent may not lead us about with them, nor onto a volume
 * that hangs.
 */
import { constants, type Stats } from "node:fs";
import { type FileHandle, lstat, mkdir, open, readlink } from "node:fs/promises";
import { errnoOf } from "./errors.ts";

const { O_DIRECTORY, O_NOFOLLOW, O_RDONLY } = constants;
/** As many as the kernel follows. */
const MAX_LINKS = 40;

export interface Owner {
  readonly uid: number;
  readonly gid: number;
}

/**
 * The folder, to be closed by the caller; with its parents made where there are none, for the agent. Undefined when the
 * agent can have laid a link on the way, or something on it is no folder: then nothing beyond was touched.
 */
export async function openAgentFolder(path: string, agent: Owner): Promise<FileHandle | undefined> {
  const opened: FileHandle[] = [await open("/", O_RDONLY | O_DIRECTORY)];
  const made: FileHandle[] = [];
  const names = path.split("/").filter(isName);
  let links = 0;
  /** Whether a name on the way was the agent's to change: what lies below it may have been brought from elsewhere. */
  let isAgents = false;
  try {
    for (let name = names.shift(); name !== undefined; name = names.shift()) {
      const folder = opened.at(-1);
      if (!folder) return undefined;
      const at = `/proc/self/fd/${folder.fd}/${name}`;
      const found = (await lookAt(at)) ?? (await makeAt(at));
      isAgents ||= mayReplace(await folder.stat(), found.stat, agent);
      if (found.stat.isSymbolicLink()) {
        if (isAgents || ++links > MAX_LINKS) return undefined;
        const target = await readlink(at);
        if (target.startsWith("/")) opened.push(await open("/", O_RDONLY | O_DIRECTORY));
        names.unshift(...target.split("/").filter(isName));
        continue;
      }
      const next = await enter(at);
      if (!next) return undefined;
      opened.push(next);
      if (found.isMade) made.push(next);
    }
    // From the innermost: those above are closed to the agent until then.
    for (const folder of made.reverse()) await give(folder, agent);
    return opened.pop();
  } finally {
    for (const folder of opened) await folder.close();
  }
}

/**
 * A folder below one that is open, to be closed by the caller; what is not there of the path is made, for the agent.
 * Undefined when a link, or something that is no folder, is in the way.
 */
export async function openBelow(root: FileHandle, path: string, agent: Owner): Promise<FileHandle | undefined> {
  let folder = await enter(`/proc/self/fd/${root.fd}/.`);
  for (const name of path.split("/").filter(isName)) {
    const above = folder;
    if (!above) return undefined;
    try {
      const at = `/proc/self/fd/${above.fd}/${name}`;
      const { isMade } = (await lookAt(at)) ?? (await makeAt(at));
      folder = await enter(at);
      if (isMade && folder) await give(folder, agent);
    } finally {
      await above.close();
    }
  }
  return folder;
}

/** Gives a folder that is ours to the agent. False: it is somebody else's. */
export async function give(folder: FileHandle, agent: Owner): Promise<boolean> {
  const { uid } = await folder.stat();
  if (uid === agent.uid) return true;
  if (uid !== process.getuid?.()) return false;
  await folder.chown(agent.uid, agent.gid);
  return true;
}

/** Could this user put something else in the place of `child`, which lies in the folder `parent`? */
export function mayReplace(parent: Stats, child: Stats, user: Owner): boolean {
  const { uid, gid, mode } = parent;
  const mayWrite = uid === user.uid || (mode & 0o002) !== 0 || (gid === user.gid && (mode & 0o020) !== 0);
  // As in /tmp: nobody takes away what is another's.
  const isSticky = (mode & 0o1000) !== 0 && uid !== user.uid && child.uid !== user.uid;
  return mayWrite && !isSticky;
}

function isName(name: string): boolean {
  return name !== "" && name !== ".";
}

interface Found {
  readonly stat: Stats;
  readonly isMade: boolean;
}

async function lookAt(path: string): Promise<Found | undefined> {
  try {
    return { stat: await lstat(path), isMade: false };
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return undefined;
    throw error;
  }
}

async function makeAt(path: string): Promise<Found> {
  let isMade = true;
  try {
    await mkdir(path, { mode: 0o700 });
  } catch (error) {
    if (errnoOf(error) !== "EEXIST") throw error;
    isMade = false;
  }
  return { stat: await lstat(path), isMade };
}

/** Undefined: by now it is a link, or no folder. */
async function enter(path: string): Promise<FileHandle | undefined> {
  try {
    return await open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  } catch (error) {
    if (["ELOOP", "ENOTDIR"].includes(errnoOf(error) ?? "")) return undefined;
    throw error;
  }
}
