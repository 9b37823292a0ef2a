/** What of a relay directory was not believed: counted, and logged without letting the agent write the log. */
import type { Clock } from "../../clock/port.ts";
import type { Log } from "../../log/port.ts";
import { FewNamed } from "../few-named.ts";
import type { RequestFault } from "./read-requests.ts";

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
  const few = new FewNamed();
  let toldAt = 0;
  return {
    ignore(file, why) {
      metrics.relayFileIgnored(why);
      if (few.next()) log.warn("relay file ignored", { file, reason: why });
    },
    tellRest(isEnd) {
      if (!isEnd && clock.monotonic() - toldAt < SUM_EVERY_MS) return;
      const files = few.takeRest();
      if (files === 0) return;
      log.warn("relay files ignored", { files });
      toldAt = clock.monotonic();
    },
  };
}
