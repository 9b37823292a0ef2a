/**
 * Parses large lines off the daemon's thread: 15 MiB of JSON take up to 90 ms, which /health does not have. Touches
 * no file. One request at a time and in order, as the lines of a run come.
 */
import { isUtf8 } from "node:buffer";
import { parseHarnessLine } from "./harness-line.ts";
import type { LargeFrame } from "./large-lines.ts";
import { outlinesOf } from "./open-parts.ts";

declare const self: Worker;

self.onmessage = (event: MessageEvent<{ id: number; kind: "line" | "json"; bytes: Uint8Array }>): void => {
  const { id, kind, bytes } = event.data;
  try {
    if (kind === "json") postMessage({ id, ...parseJson(textOf(bytes)) });
    else {
      const frame = parseLine(bytes);
      postMessage({ id, ...(frame ? { frame } : {}) }, frame ? [frame.body.buffer as ArrayBuffer] : []);
    }
  } catch {
    // Nested too deep to be sent across: as little use to the daemon as what cannot be parsed.
    postMessage(kind === "json" ? { id, bad: true } : { id });
  }
};

/** The body goes back as the bytes that came, where they are what it says: megabytes are moved, not copied. */
function parseLine(bytes: Uint8Array): LargeFrame | undefined {
  const frame = parseHarnessLine(textOf(bytes));
  if (frame === undefined) return undefined;
  const isSame = frame.verbatim && isUtf8(bytes);
  const body = isSame ? bytes.subarray(1) : new TextEncoder().encode(frame.body);
  const { chunks, ...rest } = frame;
  return { ...rest, outlines: outlinesOf(chunks), hasChunks: chunks.length > 0, body };
}

function textOf(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("utf8");
}

function parseJson(text: string): { value: unknown } | { bad: true } {
  try {
    return { value: JSON.parse(text) };
  } catch {
    return { bad: true };
  }
}
