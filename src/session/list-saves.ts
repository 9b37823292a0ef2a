import type { SaveSource } from "./read-save.ts";
import { isSaveName, placeOf, type SaveName } from "./save-name.ts";

export interface Listing {
  readonly names: readonly SaveName[];
  /** Names of a turn that no thread comes to: they count for nothing. */
  readonly madeUp: readonly SaveName[];
}

/**
 * More than the runs of any thread, and than those whose saves are deleted below the oldest that stays. Whoever can write
 * into the store can form a name that nothing could be saved above.
 */
const MAX_TURNS_BETWEEN = 1_000_000;

/** The names in a thread's folder that are those of saves. */
export async function listSaves({ folder }: SaveSource): Promise<Listing> {
  const all = (await folder.list()).filter(isSaveName);
  let highest = 0;
  for (const turn of all.map((name) => placeOf(name).turn).sort((a, b) => a - b)) {
    if (turn - highest > MAX_TURNS_BETWEEN) break;
    highest = turn;
  }
  const isMadeUp = (name: SaveName): boolean => placeOf(name).turn > highest;
  return { names: all.filter((name) => !isMadeUp(name)), madeUp: all.filter(isMadeUp) };
}
