/** The user's message, as any transcript in JSON lines holds it. */
const MAX_CHARS = 200;

/** The beginning of the message's first text, escaped as in JSON; undefined when it has none. */
export function needleOf(userMessage: unknown): string | undefined {
  const text = textOf(userMessage)?.trim();
  if (!text) return undefined;
  // A character may be escaped in more ways than one: up to the first such is the same everywhere.
  const plain = /^[\x20-\x21\x23-\x2e\x30-\x5b\x5d-\x7e]+/.exec(text.slice(0, MAX_CHARS))?.[0];
  return plain;
}

function textOf(message: unknown): string | undefined {
  if (typeof message === "string") return message;
  if (typeof message !== "object" || message === null) return undefined;
  const { content, parts } = message as { content?: unknown; parts?: unknown };
  if (typeof content === "string") return content;
  if (!Array.isArray(parts)) return undefined;
  const part = parts.find((each: { type?: unknown } | null) => each?.type === "text") as { text?: unknown } | undefined;
  return typeof part?.text === "string" ? part.text : undefined;
}
