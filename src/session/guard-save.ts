/** What a save flight decides by the listing, before it writes anything: its place, and whether somebody is ahead of it. */
import { readHead, type SaveSource } from "./read-save.ts";
import { compareSaves, isMarked, nextTurn, placeOf, runKeyOf, type SaveName } from "./save-name.ts";
import { otherUser, type SuspensionUse } from "./suspension-uses.ts";
import { keyOfRun, nextName, type SavingRun, type ThreadState } from "./thread-state.ts";

/** Runs whose heads are looked at before a suspension is used, and names before a run gives way. */
const MAX_OTHERS = 8;

export type WritingState = ThreadState & { readonly run: SavingRun };

/** A run that began without a listing comes above what the first one shows, as it would have. Its saves stay marked. */
export function inPlace(state: WritingState, names: readonly SaveName[]): WritingState {
  const { unlisted, ...run } = state.run;
  const highest = names.reduce((max, name) => Math.max(max, placeOf(name).fence), 0);
  const fence = unlisted?.fenced ? run.fence : Math.max(run.fence, highest);
  const placed = { ...run, fence, turn: Math.max(run.turn, nextTurn(names)) };
  const [before, after] = [keyOfRun(run), keyOfRun(placed)];
  return { ...state, run: placed, line: state.line.map((key) => (key === before ? after : key)) };
}

/**
 * True when another run's save is above. A marked one ends no unmarked run: it may be of a run that began before and saw
 * the store later. Which of the two a reader takes is decided by what the marked one descends from, and not here.
 */
function passes(name: SaveName, next: SaveName): boolean {
  if (runKeyOf(name) === runKeyOf(next) || compareSaves(name, next) < 0) return false;
  return !isMarked(name) || isMarked(next);
}

/**
 * The newest save above, and names there that are nobody's for good. A name alone ends no run: whoever can write into the
 * store can form one. What is cut or cannot be read may be a save that is on its way: a later flight looks again, and what
 * is saved meanwhile has its place below.
 */
export async function whoPassed(
  source: SaveSource,
  { run }: WritingState,
  names: readonly SaveName[],
): Promise<{ readonly by?: SaveName; readonly nobodys: readonly SaveName[] }> {
  const next = nextName(run);
  const above = names.filter((name) => passes(name, next) && !run.passedOver?.includes(name));
  const looked = above.sort(compareSaves).reverse().slice(0, MAX_OTHERS);
  const heads = await Promise.all(looked.map((name) => readHead(source, name)));
  const by = looked.find((_, index) => heads[index]?.type === "head");
  const nobodys = looked.filter((_, index) => {
    const result = heads[index];
    return result?.type === "no-file" || (result?.type === "bad" && !result.cut);
  });
  return { ...(by === undefined ? {} : { by }), nobodys };
}

/** Of two pods that were given one suspension, the later to list sees what the earlier wrote: as far as a volume tells. */
export async function whoUsed(
  source: SaveSource,
  claim: SuspensionUse,
  names: readonly SaveName[],
  next: SaveName,
): Promise<string | undefined> {
  const heads = await Promise.all(others(names, next).map((name) => readHead(source, name)));
  const uses = heads.flatMap((result) => (result.type === "head" ? (result.head.used ?? []) : []));
  return otherUser(uses, claim);
}

/** The newest save of each other run, the newest run first: those that may have begun meanwhile. */
function others(names: readonly SaveName[], next: SaveName): SaveName[] {
  const newest = new Map<string, SaveName>();
  for (const name of [...names].sort(compareSaves)) newest.set(runKeyOf(name), name);
  newest.delete(runKeyOf(next));
  return [...newest.values()].reverse().slice(0, MAX_OTHERS);
}
