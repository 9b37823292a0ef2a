/**
 * One line of a harness, read as far as the daemon needs to: is it a frame, what does it open and close, and what text
 * goes behind `{"seq":N,` on the wire. Pure; of large lines the worker reads the same by `read-large-line.ts`.
 */
import type { Chunk } from "./frame.ts";

/** What a harness says of the end of its turn, unchecked. */
export interface HarnessOutcome {
  readonly type: unknown;
  readonly [key: string]: unknown;
}

export interface HarnessFrame {
  readonly chunks: readonly Chunk[];
  /** The frame's text from `"chunks":` to its closing brace: `{"seq":N,` goes before it. */
  readonly body: string;
  /** True when the body is the line's own text, and so has its bytes; otherwise an escape may have become a letter. */
  readonly verbatim: boolean;
  readonly sessionId?: string;
  readonly outcome?: HarnessOutcome;
}

const PLAIN_START = '{"chunks":[';
export const SESSION_ID = /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$/;

/** Undefined for a line that is no frame. */
export function parseHarnessLine(line: string): HarnessFrame | undefined {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    return undefined;
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
  const { chunks, outcome, session } = value as Record<string, unknown>;
  const hasOutcome = typeof outcome === "object" && outcome !== null && !Array.isArray(outcome);
  if (!Array.isArray(chunks) && !hasOutcome) return undefined;
  const list = (Array.isArray(chunks) ? chunks : []) as Chunk[];
  const sessionId = (session as { id?: unknown } | undefined | null)?.id;
  const verbatim = isPlain(line, value);
  const body = verbatim ? line.slice(1) : textOf(list);
  if (body === undefined) return undefined;
  return {
    chunks: list,
    body,
    verbatim,
    ...(typeof sessionId === "string" && SESSION_ID.test(sessionId) ? { sessionId } : {}),
    ...(hasOutcome ? { outcome: outcome as HarnessOutcome } : {}),
  };
}

/** Undefined for lists within lists without end: what can be read so deep cannot be written. */
function textOf(chunks: readonly Chunk[]): string | undefined {
  try {
    return JSON.stringify({ chunks }).slice(1);
  } catch {
    return undefined;
  }
}

/**
 * True when the text itself can go on the wire: nothing but `chunks`, no blanks around it, and no carriage return,
 * which is white space in JSON and the end of a line in server-sent events.
 */
function isPlain(line: string, value: object): boolean {
  if (!line.startsWith(PLAIN_START) || !line.endsWith("}") || line.includes("\r")) return false;
  for (const key in value) if (key !== "chunks") return false;
  return true;
}
