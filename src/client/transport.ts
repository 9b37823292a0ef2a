/** One request to the daemon: its address, the bearer token, and refusals as typed errors. */
import type { Clock } from "../clock/port.ts";
import { EndedError, RefusedError, StaleError, UnreachableError } from "./errors.ts";

/** The part of `fetch` that is used. */
export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

export type TokenSource = string | (() => string | Promise<string>);

export interface Request {
  readonly method: "GET" | "POST" | "DELETE";
  /** Below the daemon's url, without a slash in front. */
  readonly path: string;
  readonly body?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Without the token: for a route that needs none, and a listener that may not be the daemon. */
  readonly anonymous?: true;
}

export interface Transport {
  /** The answer's headers, whatever the status. Rejects when there is no answer. */
  open(request: Request, signal: AbortSignal): Promise<Response>;
  /** A whole answer within `timeoutMs`. Throws RefusedError for a status above 299, UnreachableError without one. */
  call(request: Request, timeoutMs: number): Promise<{ response: Response; text: string }>;
}

/** An error's body is for a person to read; more than this is not. */
const MAX_ERROR_BODY_CHARS = 1 << 20;

export interface TransportOptions {
  readonly url: string;
  readonly token: () => string | Promise<string>;
  readonly fetch: Fetch;
  readonly clock: Clock;
}

export function createTransport({ url, token, fetch, clock }: TransportOptions): Transport {
  const base = new URL(url.endsWith("/") ? url : `${url}/`);

  async function open(request: Request, signal: AbortSignal): Promise<Response> {
    const headers: Record<string, string> = { ...request.headers };
    if (!request.anonymous) headers.authorization = `Bearer ${await token()}`;
    if (request.body !== undefined) headers["content-type"] = "application/json";
    return fetch(new URL(request.path, base).href, {
      method: request.method,
      headers,
      signal,
      // Followed, a redirect would carry the token to wherever it points.
      redirect: "manual",
      // A pooled connection may be repeated by the platform behind our back, and a dispatch must not be.
      keepalive: false,
      ...(request.body === undefined ? {} : { body: request.body }),
    });
  }

  async function call(request: Request, timeoutMs: number): Promise<{ response: Response; text: string }> {
    const controller = new AbortController();
    const cancel = clock.after(timeoutMs, () => controller.abort(new Error(`no answer within ${timeoutMs} ms`)));
    try {
      const response = await open(request, controller.signal);
      if (!response.ok) throw await refusalOf(response);
      return { response, text: await response.text() };
    } catch (thrown) {
      if (thrown instanceof RefusedError) throw thrown;
      const cause = controller.signal.aborted ? controller.signal.reason : thrown;
      throw new UnreachableError(`${request.method} ${base.origin}: ${reasonOf(cause)}`, { cause });
    } finally {
      cancel();
    }
  }

  return { open, call };
}

/** A refusal as an error; reads the body. */
export async function refusalOf(response: Response): Promise<RefusedError> {
  const text = (await response.text()).slice(0, MAX_ERROR_BODY_CHARS);
  const body = parseObject(text) ?? {};
  const { error, detail } = body;
  const Refusal = error === "stale" ? StaleError : error === "ended" ? EndedError : RefusedError;
  return new Refusal(
    response.status,
    typeof error === "string" ? error : "",
    typeof detail === "string" ? detail : undefined,
    retryAfterMs(response.headers.get("retry-after")),
    body,
  );
}

/** What went wrong with a connection, with the cause that platforms hide one level down. */
export function reasonOf(thrown: unknown): string {
  if (!(thrown instanceof Error)) return String(thrown);
  return thrown.cause instanceof Error ? `${thrown.message}: ${thrown.cause.message}` : thrown.message;
}

/** True when the request surely never reached anybody. */
export function neverDelivered(thrown: unknown): boolean {
  const codes = [thrown, (thrown as Error | null)?.cause].map((error) => (error as { code?: unknown } | null)?.code);
  return codes.some((code) => code === "ECONNREFUSED" || code === "ConnectionRefused");
}

/** The object that `text` is in JSON, if it is one. */
export function parseObject(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined; // JSON.parse has one way to fail, and the caller says what it means.
  }
}

function retryAfterMs(header: string | null): number | undefined {
  if (header === null) return undefined;
  const seconds = Number(header);
  if (Number.isFinite(seconds)) return Math.max(0, seconds * 1000);
  const date = Date.parse(header);
  return Number.isNaN(date) ? undefined : Math.max(0, date - Date.now());
}
