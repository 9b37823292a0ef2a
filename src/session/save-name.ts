/**
 * The name of a save is its place in the order of a thread's saves, and its generation on the wire:
 *
 *     <fence 16>-<turn 8>-<run 16>-<number 6>-<s|b>
 *
 * Fixed width, digits and lower case, so that the order of the texts is the order of the saves. `turn` is one above the
 * highest that the run saw when it began, and stays: no number of checkpoints lifts a run that everybody gave up over
 * its successor. `run` is random: of two that began alike one wins, for every reader. `b` marks the saves of a run that
 * began without knowing what the store holds.
 */

export type SaveName = string & { readonly __brand: "SaveName" };
/** Fence, turn and run: what the saves of one run have in common. */
export type RunKey = string & { readonly __brand: "RunKey" };

export interface SavePlace {
  readonly fence: number;
  readonly turn: number;
  /** 16 random digits and lower-case letters. */
  readonly run: string;
  readonly number: number;
  readonly marked: boolean;
}

const SHAPE = /^(\d{16})-(\d{8})-([0-9a-z]{16})-(\d{6})-([sb])$/;
const RUN_KEY_CHARS = 16 + 1 + 8 + 1 + 16;
/** Far above what any thread comes to. A name with a higher one is none of ours: nothing could be saved above it. */
const MAX_TURN = 89_999_999;
const MAX_NUMBER = 999_999;

/** Throws when a part does not fit: a name of another width would be out of order. */
export function formatSaveName({ fence, turn, run, number, marked }: SavePlace): SaveName {
  const digits = (value: number, width: number): string => String(value).padStart(width, "0");
  const name = `${digits(fence, 16)}-${digits(turn, 8)}-${run}-${digits(number, 6)}-${marked ? "b" : "s"}`;
  if (!isSaveName(name)) throw new Error(`no name for a save: ${name}`);
  return name;
}

export function isSaveName(text: string): text is SaveName {
  const match = SHAPE.exec(text);
  return match !== null && Number.isSafeInteger(Number(match[1])) && Number(match[2]) <= MAX_TURN;
}

export function placeOf(name: SaveName): SavePlace {
  const [, fence, turn, run = "", number, mark] = SHAPE.exec(name) ?? [];
  return { fence: Number(fence), turn: Number(turn), run, number: Number(number), marked: mark === "b" };
}

export function runKeyOf(name: SaveName): RunKey {
  return name.slice(0, RUN_KEY_CHARS) as RunKey;
}

export function isMarked(name: SaveName): boolean {
  return name.endsWith("b");
}

/** Negative when `a` is the older one. */
export function compareSaves(a: SaveName, b: SaveName): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** As `compareSaves`, but all saves of one run are equal. */
export function compareRuns(a: SaveName, b: SaveName): number {
  const [one, other] = [runKeyOf(a), runKeyOf(b)];
  return one < other ? -1 : one > other ? 1 : 0;
}

/** The turn of a run that begins while these are there. */
export function nextTurn(names: readonly SaveName[]): number {
  return turnAfter(names.reduce((max, name) => Math.max(max, placeOf(name).turn), 0));
}

/** One above, where there is one above: a run is never refused for want of a number. */
export function turnAfter(turn: number): number {
  return Math.min(turn + 1, MAX_TURN);
}

/** False when a run has used up its numbers. */
export function hasNumber(number: number): boolean {
  return number <= MAX_NUMBER;
}
