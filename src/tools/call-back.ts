/**
 * Carries out a call of a callback tool: one POST to the run's callback, never a second one. Whoever serves it may have
 * done the work before the connection broke; that the agent may ask again is what the `Idempotency-Key` is for.
 *
 * A 2xx reply is the result. JSON (by its content type, or without one): an `error` that is a text is a failure, a
 * `text` is the result, anything else is the result as it stands. Other text is the result. Everything else is a failure
 * in words that the model can act on; nothing is thrown.
 *
 * Url and headers are the control plane's secrets, and the reply is hostile to them: what comes back of them is replaced.
 *
 * The daemon's `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY` hold, as for everything that leaves the pod: where a proxy is
 * the only way out, the control plane is behind it too. A connection is never used twice: one that the other side has
 * closed meanwhile would fail a call that nothing is wrong with.
 */
import { isUtf8 } from "node:buffer";
import { cutMessage } from "../errors.ts";
import { Redactor } from "../log/redact.ts";
import type { Callback, CallbackResult } from "./port.ts";

export const MAX_REPLY_BYTES = 256 << 10;
/** The agent has to know before it calls again. */
const UNSURE = "; it may have been carried out all the same";
/** Of these nothing was sent. */
const NOT_REACHED = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "EPROTO"]);
/** In paths, longer segments than words are capabilities. */
const MIN_PATH_SECRET_CHARS = 16;

export interface CallbackOrder {
  readonly runId: string;
  readonly threadId: string;
  readonly toolCallId: string;
  readonly toolName: string;
  readonly arguments: unknown;
}

export interface CallbackRequest {
  readonly callback: Callback;
  readonly order: CallbackOrder;
  readonly idempotencyKey: string;
  /** From the first byte of the request to the last one of the reply. */
  readonly timeoutMs: number;
  readonly traceparent?: string;
  readonly signal: AbortSignal;
}

export async function callBack(request: CallbackRequest): Promise<CallbackResult> {
  const redactor = new Redactor();
  redactor.hide(secretsOf(request.callback));
  const { text, isError } = await ask(request);
  const cleaned = redactor.clean(text);
  return { text: isError ? cutMessage(cleaned) : cleaned, isError };
}

/** Ends at the limit whatever `fetch` does: a look-up of a name that hangs hears of no signal. */
async function ask(request: CallbackRequest): Promise<CallbackResult> {
  const ending = new AbortController();
  const ended = Promise.withResolvers<CallbackResult>();
  const end = (reason: string): void => {
    ended.resolve(failure(reason));
    ending.abort();
  };
  const cancel = (): void => end("the call was cancelled before the tool answered");
  const timer = setTimeout(
    () => end(`the tool did not answer within ${request.timeoutMs} ms${UNSURE}`),
    request.timeoutMs,
  );
  request.signal.addEventListener("abort", cancel, { once: true });
  if (request.signal.aborted) cancel();
  try {
    return await Promise.race([ended.promise, exchange(request, ending.signal)]);
  } finally {
    clearTimeout(timer);
    request.signal.removeEventListener("abort", cancel);
    // Whatever is left of the reply is not wanted.
    ending.abort();
  }
}

/** Never rejects. What `fetch` says of a failure may name the address: of it only the code is told. */
async function exchange(request: CallbackRequest, signal: AbortSignal): Promise<CallbackResult> {
  if (signal.aborted) return failure("the tool was not called");
  const { callback, order } = request;
  let message: { readonly headers: Headers; readonly body: string };
  try {
    message = { headers: headersOf(request), body: JSON.stringify(order) };
  } catch {
    return failure("the tool could not be called: its callback's headers cannot be sent");
  }
  // Bun's `fetch` would read files, too.
  if (!/^https?:\/\//i.test(callback.url)) return failure("the tool could not be called: its callback is no http URL");
  let response: Response;
  try {
    response = await fetch(callback.url, {
      method: "POST",
      ...message,
      redirect: "manual",
      keepalive: false,
      // Unpacked, a small reply can be large; an abort within that leaves Bun's client with connections that stay open.
      decompress: false,
      // Bun's own limit for silence; ours is the timer.
      timeout: false,
      signal,
    });
  } catch (error) {
    const happened = NOT_REACHED.has(codeOf(error))
      ? "the tool could not be reached"
      : `the connection broke off${UNSURE}`;
    return failure(`${happened} (${codeOf(error)})`);
  }
  const encoding = response.headers.get("content-encoding") ?? "identity";
  if (encoding !== "identity") return failure("the tool's answer is compressed, which it was not asked to be");
  try {
    const body = await readReply(response);
    if (body === undefined) return failure(`the tool's answer is larger than ${MAX_REPLY_BYTES} bytes`);
    return resultOf(response, body);
  } catch (error) {
    return failure(`the tool's answer broke off${UNSURE} (${codeOf(error)})`);
  }
}

/** How the message is framed on the wire is for `fetch` to say. */
const FRAMING = [
  "connection",
  "content-encoding",
  "content-length",
  "keep-alive",
  "te",
  "transfer-encoding",
  "upgrade",
];

function headersOf({ callback, idempotencyKey, traceparent }: CallbackRequest): Headers {
  const headers = new Headers(callback.headers);
  for (const name of FRAMING) headers.delete(name);
  headers.set("accept-encoding", "identity");
  headers.set("content-type", "application/json");
  headers.set("idempotency-key", headerText(idempotencyKey));
  if (traceparent !== undefined) headers.set("traceparent", traceparent);
  return headers;
}

/** Ids may have any character in them, a header may not: the others are percent-encoded, and `%` with them. */
function headerText(text: string): string {
  return text.toWellFormed().replace(/[^\x21-\x24\x26-\x7e]/gu, encodeURIComponent);
}

/** Undefined when it is too large; the rest of it is not read. */
async function readReply(response: Response): Promise<Buffer | undefined> {
  const parts: Uint8Array[] = [];
  let length = 0;
  for await (const part of response.body ?? []) {
    length += part.length;
    if (length > MAX_REPLY_BYTES) return undefined;
    parts.push(part);
  }
  return Buffer.concat(parts);
}

function resultOf({ status, ok, headers }: Response, body: Buffer): CallbackResult {
  const type = headers.get("content-type") ?? "";
  const text = isUtf8(body) ? new TextDecoder().decode(body) : undefined;
  const json = text !== undefined && (type === "" || /^application\/([\w.-]+\+)?json\b/i.test(type)) ? parse(text) : {};
  const error = ownText(json.value, "error");
  const said = ownText(json.value, "text");
  if (!ok) {
    const words = error ?? said;
    return failure(`the tool answered with status ${status}${words ? `: ${words}` : ""}`);
  }
  if (error) return failure(error);
  if (text === undefined) return failure("the tool answered with something that is not text");
  // The bytes themselves without what is between them: a large number would not survive being parsed and written.
  return { text: said ?? (json.ok ? withoutSpaces(text) : text), isError: false };
}

function parse(text: string): { readonly ok?: true; readonly value?: unknown } {
  try {
    return { ok: true, value: JSON.parse(text) };
  } catch {
    // Not JSON, whatever its type says: then it is text.
    return {};
  }
}

function withoutSpaces(json: string): string {
  return json.replace(/("(?:[^"\\]|\\.)*")|\s+/g, "$1");
}

function ownText(value: unknown, key: string): string | undefined {
  if (typeof value !== "object" || value === null || !Object.hasOwn(value, key)) return undefined;
  const member = (value as Record<string, unknown>)[key];
  return typeof member === "string" ? member : undefined;
}

function failure(text: string): CallbackResult {
  return { text, isError: true };
}

function codeOf(error: unknown): string {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === "string" && /^\w{1,40}$/.test(code) ? code : "no code";
}

/** Said of what a client can take, which many answers mention. */
const PLAIN_HEADERS = new Set(["accept", "accept-encoding", "accept-language", "content-type", "user-agent"]);

/** Also the parts that are secrets by themselves: a token without its scheme, what a url has in its query. */
function* secretsOf({ url, headers }: Callback): Iterable<string> {
  yield url;
  try {
    const { href, host, origin, pathname, search, searchParams } = new URL(url);
    yield* [href, host, origin + pathname];
    if (search !== "") yield* [pathname + search, search.slice(1), ...searchParams.values()];
    yield* pathname.split("/").filter((segment) => segment.length >= MIN_PATH_SECRET_CHARS);
  } catch {
    // No url: it is hidden as the text that it is.
  }
  for (const [name, value] of Object.entries(headers)) {
    if (PLAIN_HEADERS.has(name.toLowerCase())) continue;
    // Written as JSON within JSON, too: a server that shows what it was asked often does.
    yield* [value, JSON.stringify(value).slice(1, -1), ...value.split(/[\s,;]+/)];
  }
}
