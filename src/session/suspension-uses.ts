/** Suspensions of a thread that runs have used: each is good for one run. Pure. */

export interface SuspensionUse {
  /** The suspension's. */
  readonly id: string;
  /** The run that used it; it alone may go on with it. */
  readonly run: string;
  /** When the suspension expires, in seconds since the epoch: from then on nobody has to know. */
  readonly exp: number;
}

/** Of a thread. Those that expire first go first: a suspension lives a day, and a thread has few at a time. */
export const MAX_USES = 1000;
const MAX_ID_CHARS = 64;
const MAX_RUN_CHARS = 256;
/** Clocks of pods differ. */
const KEPT_AFTER_EXPIRY_S = 3600;

/** What of a list is a use; the rest is nobody's. */
export function parseUses(value: unknown): SuspensionUse[] {
  if (!Array.isArray(value)) return [];
  return value.slice(0, MAX_USES).flatMap((each: unknown) => {
    if (typeof each !== "object" || each === null) return [];
    const { id, run, exp } = each as Record<string, unknown>;
    if (!isText(id, MAX_ID_CHARS) || !isText(run, MAX_RUN_CHARS)) return [];
    return typeof exp === "number" && Number.isSafeInteger(exp) ? [{ id, run, exp }] : [];
  });
}

/** Without those that have long expired. */
export function liveUses(uses: readonly SuspensionUse[], now: number): SuspensionUse[] {
  return uses.filter(({ exp }) => exp + KEPT_AFTER_EXPIRY_S > now / 1000);
}

/** Each once, and no more than are kept. */
export function mergeUses(...lists: readonly (readonly SuspensionUse[])[]): SuspensionUse[] {
  const distinct = [...new Map(lists.flat().map((use) => [keyOf(use), use])).values()];
  if (distinct.length <= MAX_USES) return distinct;
  return distinct.sort((a, b) => b.exp - a.exp).slice(0, MAX_USES);
}

/** Another run that used what this one is about to use. */
export function otherUser(uses: readonly SuspensionUse[], { id, run }: SuspensionUse): string | undefined {
  return uses.find((use) => use.id === id && use.run !== run)?.run;
}

export function holdsAll(uses: readonly SuspensionUse[], wanted: readonly SuspensionUse[]): boolean {
  const known = new Set(uses.map(keyOf));
  return wanted.every((use) => known.has(keyOf(use)));
}

function keyOf({ id, run }: SuspensionUse): string {
  return JSON.stringify([id, run]);
}

function isText(value: unknown, maxChars: number): value is string {
  return typeof value === "string" && value !== "" && value.length <= maxChars;
}
