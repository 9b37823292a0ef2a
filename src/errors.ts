/**
 * The closed lists of error codes. An HTTP code answers before the first byte of a body, a run code is what a
 * run's outcome and last frame carry: after the first byte there is no status any more.
 */

/** Codes of `{"error": code, "detail"?}`, each with its status. */
export const HTTP_STATUS = {
  unauthorized: 401,
  not_found: 404,
  method_not_allowed: 405,
  body_too_large: 413,
  bad_json: 400,
  missing_run_id: 400,
  bad_input: 400,
  tombstoned: 410,
  unknown_run: 404,
  ended: 410,
  run_conflict: 409,
  bad_after: 409,
  superseded: 409,
  stale: 409,
  draining: 503,
  too_many_runs: 429,
  too_many_readers: 429,
  internal: 500,
} as const;

export type HttpErrorCode = keyof typeof HTTP_STATUS;

/** Codes of a failed run. */
export const RUN_ERROR_CODES = [
  "cancelled",
  "superseded",
  "sandbox_gone",
  "harness_crashed",
  "harness_stalled",
  "turn_failed",
  "mcp_unavailable",
  "unknown_harness",
  "stale",
  "frame_too_large",
  "output_too_large",
  "storage_failed",
  "internal",
] as const;

export type RunErrorCode = (typeof RUN_ERROR_CODES)[number];

/** What a harness may say of its own turn. The other codes are for the daemon to give. */
export const HARNESS_ERROR_CODES = [
  "turn_failed",
  "mcp_unavailable",
  "harness_stalled",
  "stale",
] as const satisfies readonly RunErrorCode[];

export type HarnessErrorCode = (typeof HARNESS_ERROR_CODES)[number];

/** A message of a run error is cut here, in UTF-8 bytes. */
export const MAX_ERROR_MESSAGE_BYTES = 2048;

/** A refusal that becomes a status and a JSON body. `detail` is for the caller to read: no paths, no secrets. */
export class HttpError extends Error {
  constructor(
    readonly code: HttpErrorCode,
    readonly detail?: string,
    readonly extra: Readonly<Record<string, unknown>> = {},
    readonly headers: Readonly<Record<string, string>> = {},
  ) {
    super(detail ? `${code}: ${detail}` : code);
    this.name = "HttpError";
  }
}

/** A failure of a run: becomes its outcome. `details` are for the caller to read. */
export class DaemonError extends Error {
  readonly details: Readonly<Record<string, unknown>>;

  constructor(
    readonly code: RunErrorCode,
    message: string,
    options: { cause?: unknown; details?: Readonly<Record<string, unknown>> } = {},
  ) {
    super(message, options.cause === undefined ? {} : { cause: options.cause });
    this.name = "DaemonError";
    this.details = options.details ?? {};
  }
}

/** Cuts a message to `maxBytes` of UTF-8, between characters. What it must not show is replaced before. */
export function cutMessage(message: string, maxBytes = MAX_ERROR_MESSAGE_BYTES): string {
  const bytes = Buffer.from(message, "utf8");
  if (bytes.length <= maxBytes) return message;
  let end = maxBytes - "…".length * 3;
  // A continuation byte is 10xxxxxx.
  while (end > 0 && ((bytes[end] ?? 0) & 0xc0) === 0x80) end--;
  return `${bytes.toString("utf8", 0, end)}…`;
}

/** The text of anything thrown, for a log. */
export function messageOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}

/** The errno name of a system error ("ENOSPC"), if it is one. */
export function errnoOf(thrown: unknown): string | undefined {
  const code = (thrown as { code?: unknown } | null)?.code;
  // Libraries, and errors of our own, have codes too.
  return typeof code === "string" && /^E[A-Z0-9]+$/.test(code) ? code : undefined;
}
