/** Answers that are no streams. */
import type { HttpErrorCode } from "../errors.ts";
import { HTTP_STATUS, type HttpError } from "../errors.ts";

export function json(value: unknown, status = 200): Response {
  return new Response(JSON.stringify(value), { status, headers: { "Content-Type": "application/json" } });
}

export function empty(): Response {
  return new Response(null, { status: 204 });
}

/** `{"error": code, "detail"?}` with the code's status. */
export function refusal(error: HttpError): Response {
  const { code, detail, extra, headers } = error;
  const body = JSON.stringify({ error: code, ...(detail ? { detail } : {}), ...extra });
  return new Response(body, {
    status: HTTP_STATUS[code satisfies HttpErrorCode],
    headers: { "Content-Type": "application/json", ...headers },
  });
}
