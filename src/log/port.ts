/** JSON lines, one event a line, under stable names. Values are facts (ids, counts, bytes, spans), never bodies. */
export interface Log {
  debug(event: string, fields?: LogFields): void;
  info(event: string, fields?: LogFields): void;
  warn(event: string, fields?: LogFields): void;
  error(event: string, fields?: LogFields): void;
  /** A log whose every line carries `fields` too. */
  child(fields: LogFields): Log;
}

export type LogFields = Readonly<Record<string, unknown>>;

export const LOG_LEVELS = ["debug", "info", "warn", "error"] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];
