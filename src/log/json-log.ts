import type { Clock } from "../clock/port.ts";
import type { Log, LogFields, LogLevel } from "./port.ts";
import { LOG_LEVELS } from "./port.ts";
import type { Redactor } from "./redact.ts";

/** A line longer than this is cut: one event must not fill an operator's screen, or the pipe it goes through. */
const MAX_LINE_CHARS = 8192;

export interface JsonLogOptions {
  readonly clock: Clock;
  readonly redactor: Redactor;
  readonly level: LogLevel;
  readonly write: (line: string) => void;
}

/** A log that writes JSON lines: `{"time","level","event",…fields}`. */
export function createJsonLog(options: JsonLogOptions, base: LogFields = {}): Log {
  const { clock, redactor, write } = options;
  const threshold = LOG_LEVELS.indexOf(options.level);
  // Within the values: a secret that reads like a name of ours must not change an event, or break the line.
  const toJson = (fields: LogFields): string =>
    JSON.stringify(fields, (_key, value) => (typeof value === "string" ? redactor.clean(value) : value)).slice(1, -1);
  const emit = (level: LogLevel, event: string, fields?: LogFields): void => {
    if (LOG_LEVELS.indexOf(level) < threshold) return;
    const head = JSON.stringify({ time: new Date(clock.now()).toISOString(), level, event }).slice(1, -1);
    const rest = toJson({ ...base, ...fields });
    const shown = rest.length <= MAX_LINE_CHARS ? rest : toJson({ ...base, cut: rest.slice(0, MAX_LINE_CHARS / 2) });
    write(`{${head}${shown === "" ? "" : `,${shown}`}}\n`);
  };
  return {
    debug: (event, fields) => emit("debug", event, fields),
    info: (event, fields) => emit("info", event, fields),
    warn: (event, fields) => emit("warn", event, fields),
    error: (event, fields) => emit("error", event, fields),
    child: (fields) => createJsonLog(options, { ...base, ...fields }),
  };
}
