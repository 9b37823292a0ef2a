/**
 * Requests as the scripted model received them. Claude Code asks for more than the turn: titles, summaries, token
 * counts, its subagents' turns. A script answers turns; so each request says what it is.
 */
import type { IncomingHttpHeaders } from "node:http";

export type RequestKind =
  /** A model call of the conversation itself. */
  | "main"
  /** A model call of a subagent's own conversation. */
  | "subagent"
  /** A model call beside the conversation: no tools are offered. */
  | "side"
  /** `POST /v1/messages/count_tokens`. */
  | "count_tokens"
  | "other";

export interface ReceivedMessage {
  readonly role: string;
  readonly content: unknown;
}

export interface ReceivedRequest {
  readonly kind: RequestKind;
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  /** The parsed body; null when there is none. */
  readonly body: Readonly<Record<string, unknown>> | null;
  readonly model: string;
  readonly messages: readonly ReceivedMessage[];
  /** All system prompt blocks, joined. */
  readonly system: string;
  readonly toolNames: readonly string[];
  /** Milliseconds since the model was started. */
  readonly atMs: number;
}

export function readRequest(
  source: { method: string; path: string; headers: IncomingHttpHeaders; body: unknown },
  atMs: number,
): ReceivedRequest {
  const body = isRecord(source.body) ? source.body : null;
  const tools = Array.isArray(body?.tools) ? body.tools : [];
  const request = {
    method: source.method,
    path: source.path,
    headers: Object.fromEntries(Object.entries(source.headers).map(([name, value]) => [name, String(value)])),
    body,
    model: typeof body?.model === "string" ? body.model : "",
    messages: Array.isArray(body?.messages) ? (body.messages as ReceivedMessage[]) : [],
    system: textOf(body?.system),
    toolNames: tools.flatMap((tool) => (isRecord(tool) && typeof tool.name === "string" ? [tool.name] : [])),
    atMs,
  };
  return { ...request, kind: kindOf(request) };
}

function kindOf(request: Omit<ReceivedRequest, "kind">): RequestKind {
  if (request.method !== "POST") return "other";
  if (request.path === "/v1/messages/count_tokens") return "count_tokens";
  if (request.path !== "/v1/messages") return "other";
  if (request.headers["x-claude-code-agent-id"] !== undefined) return "subagent";
  return request.toolNames.length === 0 ? "side" : "main";
}

/** The text of a content value: a text, or the texts of its blocks, one below the other. */
export function textOf(content: unknown): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content.flatMap((block) => (isRecord(block) && typeof block.text === "string" ? [block.text] : [])).join("\n");
}

/** What the person wrote in each user message, oldest first: tool results and injected reminders left out. */
export function userTexts(request: ReceivedRequest): string[] {
  return request.messages
    .filter((message) => message.role === "user")
    .flatMap((message) => {
      const blocks = Array.isArray(message.content) ? message.content : [{ type: "text", text: message.content }];
      const texts = blocks
        .flatMap((block) => (isRecord(block) && typeof block.text === "string" ? [block.text] : []))
        .filter((text) => !text.trimStart().startsWith("<system-reminder>"));
      return texts.length > 0 ? [texts.join("\n")] : [];
    });
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
