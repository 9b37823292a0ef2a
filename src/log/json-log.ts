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
  const threshold = LOG_LEVELS.indexOf(options.level);
  const emit = (level: LogLevel, event: string, fields?: LogFields): void => {
    if (LOG_LEVELS.indexOf(level) < threshold) return;
    const record = { time: new Date(options.clock.now()).toISOString(), level, event, ...base, ...fields };
    let line = options.redactor.clean(JSON.stringify(record));
    if (line.length > MAX_LINE_CHARS) {
      const { time } = record;
      line = options.redactor.clean(
        JSON.stringify({ time, level, event, ...base, cut: line.slice(0, MAX_LINE_CHARS / 2) }),
      );
    }
    options.write(`${line}\n`);
  };
  return {
    debug: (event, fields) => emit("debug", event, fields),
    info: (event, fields) => emit("info", event, fields),
    warn: (event, fields) => emit("warn", event, fields),
    error: (event, fields) => emit("error", event, fields),
    child: (fields) => createJsonLog(options, { ...base, ...fields }),
  };
}
