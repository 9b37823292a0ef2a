/**
 * What all benches share: repeated measurements of the product and of its floor, taken in turns so that whatever drifts
 * on the machine hits both, and the rows that come out of them.
 */

/** Of several measurements of one thing. */
export interface Spread {
  readonly median: number;
  readonly min: number;
  readonly max: number;
  readonly count: number;
}

export type Unit = "ms" | "MB/s" | "MiB" | "frames/s" | "x";

/** One line of the table. Without a bar it is shown for what it explains. */
export interface Row {
  readonly bench: string;
  readonly name: string;
  readonly unit: Unit;
  readonly product: Spread;
  readonly floor?: Spread;
  readonly verdict?: Verdict;
}

export interface Verdict {
  /** `product` against `floor` by its medians, or the product alone. */
  readonly compare: "ratio" | "difference" | "alone";
  readonly value: number;
  readonly bar: string;
  readonly met: boolean;
}

export interface Bench {
  readonly name: string;
  readonly about: string;
  /** Says how far it is through `progress`. */
  run(progress: (text: string) => void): Promise<BenchResult>;
}

export interface BenchResult {
  readonly rows: readonly Row[];
  /** What a reader of the numbers has to know. */
  readonly notes?: readonly string[];
}

export function spreadOf(values: readonly number[]): Spread {
  if (values.length === 0) throw new Error("nothing was measured");
  const sorted = [...values].sort((one, other) => one - other);
  return { median: quantile(sorted, 0.5), min: sorted[0] ?? 0, max: sorted.at(-1) ?? 0, count: sorted.length };
}

/** Of ascending values; between two of them it is their weighted mean. */
export function quantile(sorted: readonly number[], q: number): number {
  const at = (sorted.length - 1) * q;
  const below = sorted[Math.floor(at)] ?? Number.NaN;
  const above = sorted[Math.ceil(at)] ?? below;
  return below + (above - below) * (at - Math.floor(at));
}

export function atMost(compare: Verdict["compare"], limit: number, product: Spread, floor?: Spread): Verdict {
  const value = compareBy(compare, product, floor);
  return { compare, value, bar: `${signOf(compare, "≤")} ${limit}`, met: value <= limit };
}

export function atLeast(compare: Verdict["compare"], limit: number, product: Spread, floor?: Spread): Verdict {
  const value = compareBy(compare, product, floor);
  return { compare, value, bar: `${signOf(compare, "≥")} ${limit}`, met: value >= limit };
}

function compareBy(compare: Verdict["compare"], product: Spread, floor: Spread | undefined): number {
  if (compare === "alone") return product.median;
  if (!floor) throw new Error(`a ${compare} needs a floor`);
  return compare === "ratio" ? product.median / floor.median : product.median - floor.median;
}

function signOf(compare: Verdict["compare"], sign: string): string {
  return { ratio: `× ${sign}`, difference: `+ ${sign}`, alone: sign }[compare];
}

/** Each of `sides` once a round, in turns, after `warmups` rounds that do not count. */
export async function inTurns<Side extends string, T>(
  rounds: number,
  sides: Readonly<Record<Side, () => Promise<T>>>,
  warmups = 1,
): Promise<Record<Side, T[]>> {
  const names = Object.keys(sides) as Side[];
  const results = Object.fromEntries(names.map((name) => [name, []])) as unknown as Record<Side, T[]>;
  for (let round = -warmups; round < rounds; round++) {
    // Who goes first changes: the second of a pair finds warmer caches.
    for (const name of round % 2 === 0 ? names : [...names].reverse()) {
      const result = await sides[name]();
      if (round >= 0) results[name].push(result);
    }
  }
  return results;
}
