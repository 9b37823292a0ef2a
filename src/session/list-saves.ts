import type { SaveSource } from "./read-save.ts";
import { isSaveName, type SaveName } from "./save-name.ts";

/** The names in a thread's folder that are those of saves. */
export async function listSaves({ folder }: SaveSource): Promise<SaveName[]> {
  return (await folder.list()).filter(isSaveName);
}
