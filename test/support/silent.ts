/** Where a test does not care what is logged or counted, and where it does. */
import type { Log, LogFields } from "../../src/log/port.ts";
import type { Metrics } from "../../src/metrics/port.ts";

export interface Said {
  readonly level: string;
  readonly event: string;
  readonly fields: LogFields;
}

export function recordingLog(said: Said[] = []): Log & { readonly said: Said[] } {
  const at =
    (level: string) =>
    (event: string, fields: LogFields = {}): void =>
      void said.push({ level, event, fields });
  const log = { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error"), said };
  return { ...log, child: () => recordingLog(said) };
}

/** Takes every count. */
export function silentMetrics(): Metrics {
  const take = (): void => {};
  return new Proxy({} as Metrics, { get: () => take });
}
