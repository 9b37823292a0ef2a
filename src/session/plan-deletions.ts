/**
 * Which saves a flight may delete. Deletes reach the backend at once and writes seconds later, so whatever could still
 * be the newest state that others can read stays:
 *
 * - the pod's newest `KEEP_OWN` files and its newest `KEEP_OWN` states (a state may be more files than that, and a volume
 *   that is full leaves names without a file), its proof (the newest unmarked save that it read back from the volume),
 *   and all that these refer to;
 * - of the others it deletes its own, and, below the proof, those of runs that the proof descends from;
 * - a blind run deletes only its own: it does not know what the rest is;
 * - runs that lost, which nobody descends from, when they are old.
 */
import { compareSaves, type RunKey, runKeyOf, type SaveName } from "./save-name.ts";
import type { OwnSave } from "./thread-state.ts";

export const KEEP_OWN = 100;
export const MAX_DELETIONS = 64;
export const LOST_AFTER_MS = 7 * 24 * 3_600_000;

export interface DeletionFacts {
  readonly names: readonly SaveName[];
  readonly own: readonly OwnSave[];
  readonly proof: OwnSave | undefined;
  readonly line: readonly RunKey[];
  readonly blind: boolean;
  /** The pod's own saves that are kept; `KEEP_OWN` but for tests. */
  readonly keepOwn?: number;
}

export interface DeletionPlan {
  readonly remove: readonly SaveName[];
  /** To be removed too if nobody wrote them for `LOST_AFTER_MS`. */
  readonly ifOld: readonly SaveName[];
}

export function planDeletions({ names, own, proof, line, blind, keepOwn = KEEP_OWN }: DeletionFacts): DeletionPlan {
  const kept = new Set<SaveName>();
  const states = own.filter(({ refs }) => refs.length > 0);
  for (const { name, refs } of [...own.slice(-keepOwn), ...states.slice(-keepOwn), ...(proof ? [proof] : [])]) {
    for (const each of [name, ...refs]) kept.add(each);
  }
  const mine = new Set(own.map(({ name }) => name));
  const ancestors = new Set(line);
  const others = [...names].sort(compareSaves).filter((name) => !kept.has(name));
  const belowProof = (name: SaveName): boolean => !blind && proof !== undefined && compareSaves(name, proof.name) < 0;
  const isSettled = (name: SaveName): boolean => mine.has(name) || (belowProof(name) && ancestors.has(runKeyOf(name)));
  const remove = others.filter(isSettled).slice(0, MAX_DELETIONS);
  const ifOld = others.filter((name) => !isSettled(name) && belowProof(name));
  return { remove, ifOld: ifOld.slice(0, MAX_DELETIONS - remove.length) };
}
