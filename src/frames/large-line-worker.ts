/**
 * Reads large JSON off the daemon's thread: 15 MiB of it take up to 90 ms, which /health does not have. Touches no
 * file. One request at a time and in order, as the lines of a run come.
 */
import { JsonRefusal } from "./json-scanner.ts";
import { parseBounded } from "./parse-bounded.ts";
import { type LineContext, readLargeLine } from "./read-large-line.ts";

declare const self: Worker;

type Request = { readonly id: number; readonly bytes: Uint8Array; readonly line?: LineContext };

self.onmessage = (event: MessageEvent<Request>): void => {
  const { id, bytes: sent, line } = event.data;
  const bytes = Buffer.from(sent.buffer, sent.byteOffset, sent.byteLength);
  if (!line) {
    postMessage({ id, ...parse(bytes) });
    return;
  }
  try {
    const frame = readLargeLine(bytes, line);
    postMessage({ id, ...(frame ? { frame } : {}) }, frame ? [frame.body.buffer as ArrayBuffer] : []);
  } catch {
    // Its outcome is nested too deep to be sent across: as little use to the daemon as what is no frame.
    postMessage({ id });
  }
};

function parse(bytes: Buffer): object {
  try {
    return { value: parseBounded(bytes) };
  } catch (error) {
    if (error instanceof JsonRefusal) return { refused: { path: error.path, reason: error.reason } };
    return { bad: true };
  }
}
