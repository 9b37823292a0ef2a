/**
 * Skills whose reading hung. They come last from then on, and not before a pause has passed: one bad file does not cost
 * every run its patience.
 */
import type { Records, Suspicion } from "./records.ts";
import { VolumeHangs } from "./volume-files.ts";

const PAUSE_MS = 15_000;
const MAX_PAUSE_MS = 600_000;

export interface Suspects {
  /** Those that are to be tried, the suspects among them last; and those that are not tried yet. */
  order(names: readonly string[]): { readonly tried: readonly string[]; readonly spared: readonly string[] };
  /** Its reading hung, and did not come back since. */
  has(name: string): boolean;
  /** Does the work, and remembers the name if it was its own call that hung. */
  watch(name: string, work: () => Promise<void>): Promise<void>;
}

/** `scope` keeps apart the suspects of volumes and sets. */
export function suspectsIn(records: Records<Suspicion>, scope: string, nowMs: number): Suspects {
  const keyOf = (name: string): string => `${scope}/${name}`;
  const pauseOf = ({ times }: Suspicion): number => Math.min(PAUSE_MS * 2 ** (times - 1), MAX_PAUSE_MS);
  return {
    order(names) {
      const known = new Map(names.map((name) => [name, records.read(keyOf(name))] as const));
      const isDue = (name: string): boolean => {
        const found = known.get(name);
        return !found || found.sinceMs > nowMs || nowMs - found.sinceMs >= pauseOf(found);
      };
      const suspected = names.filter((name) => known.get(name));
      return {
        tried: [...names.filter((name) => !known.get(name)), ...suspected.filter(isDue)],
        spared: suspected.filter((name) => !isDue(name)),
      };
    },
    has: (name) => records.read(keyOf(name)) !== undefined,
    async watch(name, work) {
      const before = records.read(keyOf(name));
      try {
        await work();
      } catch (error) {
        const hung = error instanceof VolumeHangs;
        if (hung && error.waited) {
          records.write(keyOf(name), { name: keyOf(name), times: (before?.times ?? 0) + 1, sinceMs: nowMs });
        }
        if (!hung && before) records.remove(keyOf(name));
        throw error;
      }
      if (before) records.remove(keyOf(name));
    },
  };
}
