/**
 * A Messages endpoint on loopback that answers as it is told. What answers a request: the handler if it gives a turn,
 * else the oldest pushed turn of the request's kind, else the demo script. Requests beside the conversation get a fixed
 * text and consume nothing, so that a script stays in step whatever Claude Code asks for on the side.
 */
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { demoTurn } from "./demo-script.ts";
import { type ReceivedRequest, readRequest } from "./request.ts";
import { streamTurn } from "./stream.ts";
import { type ScriptedError, type ScriptedTurn, says } from "./turn.ts";

export type Handler = (request: ReceivedRequest) => ScriptedTurn | undefined | Promise<ScriptedTurn | undefined>;

export interface ScriptedModel {
  /** For `ANTHROPIC_BASE_URL`: no slash at the end. */
  readonly url: string;
  /** Everything that was received, oldest first. */
  readonly requests: readonly ReceivedRequest[];
  /** Turns for the next requests, in this order. */
  push(...turns: readonly ScriptedTurn[]): void;
  /** Asked first for every model call of a conversation; `undefined` leaves it to the pushed turns. */
  setHandler(handler: Handler | null): void;
  /** Pushed turns that nobody has asked for. */
  pending(): number;
  stop(): Promise<void>;
}

export interface ScriptedModelOptions {
  readonly script?: readonly ScriptedTurn[];
  /** 0, the default, picks a free one. */
  readonly port?: number;
}

const ERROR_TYPES: Readonly<Record<number, string>> = {
  400: "invalid_request_error",
  401: "authentication_error",
  403: "permission_error",
  404: "not_found_error",
  413: "request_too_large",
  429: "rate_limit_error",
  500: "api_error",
  529: "overloaded_error",
};

export async function startScriptedModel(options: ScriptedModelOptions = {}): Promise<ScriptedModel> {
  const startedAt = performance.now();
  const requests: ReceivedRequest[] = [];
  const queue: ScriptedTurn[] = [...(options.script ?? [])];
  let handler: Handler | null = null;

  const nextTurn = async (request: ReceivedRequest): Promise<ScriptedTurn> => {
    if (request.kind === "side") return says("Scripted conversation");
    const handled = await handler?.(request);
    if (handled) return handled;
    const at = queue.findIndex((turn) => (turn.to ?? "main") === request.kind);
    return queue.splice(at === -1 ? queue.length : at, 1)[0] ?? demoTurn(request);
  };

  const answer = async (incoming: IncomingMessage, response: ServerResponse): Promise<void> => {
    const path = new URL(incoming.url ?? "/", "http://127.0.0.1").pathname;
    const source = {
      method: incoming.method ?? "GET",
      path,
      headers: incoming.headers,
      body: await readJson(incoming),
    };
    const request = readRequest(source, performance.now() - startedAt);
    requests.push(request);
    if (request.kind === "count_tokens") return sendJson(response, 200, { input_tokens: 42 });
    if (request.kind === "other") {
      if (request.path === "/api/hello") return sendJson(response, 200, {});
      return sendError(response, { status: 404, message: `the scripted model has no ${request.path}` });
    }
    const turn = await nextTurn(request);
    if (turn.delayMs) await Bun.sleep(turn.delayMs);
    if (turn.error) return sendError(response, turn.error);
    if (request.body?.stream !== true) return sendJson(response, 200, wholeMessage(turn, request.model));
    await streamTurn(response, turn, request.model);
  };

  // node:http, because a script has to be able to cut a connection in the middle of an answer.
  const server = createServer((incoming, response) => {
    answer(incoming, response).catch((error) => response.destroy(error));
  });
  server.listen(options.port ?? 0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("the scripted model has no port");

  return {
    url: `http://127.0.0.1:${address.port}`,
    requests,
    push: (...turns) => void queue.push(...turns),
    setHandler: (next) => {
      handler = next;
    },
    pending: () => queue.length,
    stop: async () => {
      const closed = new Promise<void>((resolve) => void server.close(() => resolve()));
      server.closeAllConnections();
      await closed;
    },
  };
}

async function readJson(incoming: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  for await (const chunk of incoming) chunks.push(chunk);
  try {
    return JSON.parse(Buffer.concat(chunks).toString());
  } catch {
    // Not JSON, or no body: the request is kept with a null body for a test to see.
    return null;
  }
}

function sendJson(response: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}): void {
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(JSON.stringify(body));
}

function sendError(response: ServerResponse, error: ScriptedError): void {
  const type = ERROR_TYPES[error.status] ?? "api_error";
  const headers: Record<string, string> = { "request-id": "req_scripted" };
  if (error.retryAfterSeconds !== undefined) headers["retry-after"] = String(error.retryAfterSeconds);
  const message = error.message ?? "scripted failure";
  sendJson(response, error.status, { type: "error", error: { type, message } }, headers);
}

/** The answer to a request that did not ask for a stream. */
function wholeMessage(turn: ScriptedTurn, model: string): Record<string, unknown> {
  const content = (turn.blocks ?? []).map((block, index) =>
    block.type === "tool_use" ? { ...block, id: block.id ?? `toolu_whole_${index}` } : block,
  );
  const stop = turn.stopReason ?? (content.some((block) => block.type === "tool_use") ? "tool_use" : "end_turn");
  return {
    id: "msg_whole",
    type: "message",
    role: "assistant",
    model,
    content,
    stop_reason: stop,
    stop_sequence: null,
    usage: { input_tokens: turn.usage?.inputTokens ?? 12, output_tokens: turn.usage?.outputTokens ?? 7 },
  };
}
