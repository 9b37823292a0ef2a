/**
 * Parses large lines off the daemon's thread: 15 MiB of JSON take up to 90 ms, which /health does not have. Touches
 * no file. One request at a time and in order, as the lines of a run come.
 */
import { parseHarnessLine } from "./harness-line.ts";
import { outlineOf } from "./open-parts.ts";

declare const self: Worker;

self.onmessage = (event: MessageEvent<{ id: number; kind: "line" | "json"; bytes: Uint8Array }>): void => {
  const { id, kind, bytes } = event.data;
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("utf8");
  try {
    postMessage({ id, ...(kind === "json" ? parseJson(text) : parseLine(text)) });
  } catch {
    // Nested too deep to be sent across: as little use to the daemon as what cannot be parsed.
    postMessage(kind === "json" ? { id, bad: true } : { id });
  }
};

function parseLine(text: string): { frame?: unknown } {
  const frame = parseHarnessLine(text);
  if (frame === undefined) return {};
  return { frame: { ...frame, chunks: frame.chunks.map(outlineOf), body: Buffer.from(frame.body, "utf8") } };
}

function parseJson(text: string): { value: unknown } | { bad: true } {
  try {
    return { value: JSON.parse(text) };
  } catch {
    return { bad: true };
  }
}
