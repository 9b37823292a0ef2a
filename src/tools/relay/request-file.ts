/** A request as it stands in its file. Whoever reads it believes nothing of it but its shape. */

export interface RequestContent {
  readonly toolName: string;
  /** The client's own id of the call; empty when it gave none. */
  readonly toolCallId: string;
  readonly args: unknown;
  /** Of the shim: its death withdraws the request. */
  readonly pid: number;
}

const MAX_ID_LENGTH = 1024;
/** Of arrays and objects in each other. Whoever compares or prints arguments does it by recursion. */
const MAX_DEPTH = 200;

export function formatRequest(content: RequestContent): string {
  return JSON.stringify(content);
}

/** `"unfinished"`: no JSON, so it may be that not all of it is there yet. `"misshapen"`: JSON, and no request. */
export function parseRequest(text: string): RequestContent | "unfinished" | "misshapen" {
  // Before it is parsed, which takes a quarter of a second for 1 MiB of brackets.
  if (isDeep(text)) return "misshapen";
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return "unfinished";
  }
  if (typeof value !== "object" || value === null || !Object.hasOwn(value, "args")) return "misshapen";
  const { toolName, toolCallId, args, pid } = value as Partial<Record<string, unknown>>;
  if (!isId(toolName) || !isId(toolCallId) || !isProcessId(pid)) return "misshapen";
  return { toolName, toolCallId, args, pid };
}

/** Of a tool, or of a call as its client names it. */
export function isId(value: unknown): value is string {
  return typeof value === "string" && value.length <= MAX_ID_LENGTH;
}

function isProcessId(value: unknown): value is number {
  return typeof value === "number" && Number.isInteger(value) && value > 0 && value < 2 ** 31;
}

function isDeep(text: string): boolean {
  let depth = 0;
  let inString = false;
  for (let at = 0; at < text.length; at++) {
    const char = text.charCodeAt(at);
    if (inString) {
      if (char === BACKSLASH) at++;
      else if (char === QUOTE) inString = false;
    } else if (char === QUOTE) inString = true;
    else if (char === BRACKET || char === BRACE) {
      if (++depth > MAX_DEPTH) return true;
    } else if (char === BRACKET + 2 || char === BRACE + 2) depth--;
  }
  return false;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
/** The closing ones are two further on. */
const BRACKET = 0x5b;
const BRACE = 0x7b;
