/** What of a relay directory was not believed: counted, and logged without letting the agent write the log. */
import type { Clock } from "../../clock/port.ts";
import type { Log } from "../../log/port.ts";
import type { RequestFault } from "./read-requests.ts";

/** Lines of a run that name one file. */
const MAX_NAMED = 20;
const SUM_EVERY_MS = 10_000;

/** `not_ours`: an answer that this daemon did not write. The shim does not believe it either. */
export type IgnoredWhy = RequestFault | "not_ours";

export interface RelayMetrics {
  /** A file in a relay directory was not believed. */
  relayFileIgnored(why: IgnoredWhy): void;
}

export interface IgnoredFiles {
  ignore(file: string, why: IgnoredWhy): void;
  /** To be called now and then, and at the end. */
  tellRest(isEnd: boolean): void;
}

export function countIgnoredFiles(clock: Clock, log: Log, metrics: RelayMetrics): IgnoredFiles {
  let named = 0;
  let untold = 0;
  let toldAt = 0;
  return {
    ignore(file, why) {
      metrics.relayFileIgnored(why);
      if (++named <= MAX_NAMED) log.warn("relay file ignored", { file, reason: why });
      else untold++;
    },
    tellRest(isEnd) {
      if (untold === 0 || (!isEnd && clock.monotonic() - toldAt < SUM_EVERY_MS)) return;
      log.warn("relay files ignored", { files: untold });
      untold = 0;
      toldAt = clock.monotonic();
    },
  };
}
