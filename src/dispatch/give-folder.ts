/**
 * Folders that belong to the harness's user. What the agent may have put in the way is not followed: giving away what a
 * link points to would hand it the machine.
 */
import { mkdir } from "node:fs/promises";
import { give, type Owner, openAgentFolder } from "../agent-folder.ts";
import { isThere } from "../disk.ts";

/**
 * Makes the folder, its parents included. What is there already, folder or not, is left as it is; and where the agent laid
 * a link on the way, nothing is made: it sees to that path itself.
 */
export async function giveFolder(path: string, owner: Owner | null): Promise<void> {
  // Not looked at first: what the agent links to may be a volume that hangs.
  if (owner) await (await openAgentFolder(path, owner))?.close();
  else if (!(await isThere(path))) await mkdir(path, { recursive: true, mode: 0o700 });
}

/**
 * Makes the folder, or gives one that is there and belongs to us. Only while nothing of the agent is running. False when
 * the folder is somebody else's, or is reached over a link that the agent can have made: then it stays as it is.
 */
export async function takeOverFolder(path: string, owner: Owner): Promise<boolean> {
  const folder = await openAgentFolder(path, owner);
  if (!folder) return false;
  try {
    return await give(folder, owner);
  } finally {
    await folder.close();
  }
}
