/** The lines of a transcript, one at a time: it may have hundreds of MiB, and the agent may have written it. */
import type { Transcript } from "./open-transcript.ts";

/** Looked through in a millisecond or two: the daemon reads transcripts on its own thread. */
const READ_BYTES = 256 << 10;
/** Far above what Claude Code writes for one message. What is longer is passed over, not held in memory. */
const MAX_LINE_BYTES = 64 << 20;
const NEWLINE = 0x0a;

export interface Line {
  /** Where it begins, and where the next one does. */
  readonly start: number;
  readonly end: number;
  /** Without its newline. */
  readonly bytes: Buffer;
}

/** The lines that begin at `from` or after it. A last line without its newline counts too. */
export async function* linesOf({ file, bytes: size }: Transcript, from: number): AsyncGenerator<Line> {
  let pieces: Buffer[] = [];
  let held = 0;
  // From the byte before: what ends there is no line of ours.
  let start = Math.max(0, from - 1);
  let isOurs = from === 0;
  const hold = (piece: Buffer): void => {
    held += piece.length;
    if (held <= MAX_LINE_BYTES) pieces.push(piece);
    else pieces = [];
  };
  const line = (end: number): Line | undefined => {
    const [only] = pieces;
    const bytes = pieces.length === 1 && only ? only : Buffer.concat(pieces);
    const whole = isOurs && held <= MAX_LINE_BYTES ? { start, end, bytes } : undefined;
    isOurs = true;
    pieces = [];
    held = 0;
    start = end;
    return whole;
  };
  for (let at = start; at < size; ) {
    const buffer = Buffer.allocUnsafe(Math.min(READ_BYTES, size - at));
    const { bytesRead } = await file.read(buffer, 0, buffer.length, at);
    if (bytesRead === 0) break;
    const chunk = buffer.subarray(0, bytesRead);
    let done = 0;
    for (let newline = chunk.indexOf(NEWLINE); newline !== -1; newline = chunk.indexOf(NEWLINE, done)) {
      hold(chunk.subarray(done, newline));
      done = newline + 1;
      const next = line(at + done);
      if (next) yield next;
    }
    at += bytesRead;
    if (done < bytesRead) hold(chunk.subarray(done));
  }
  if (held === 0) return;
  const last = line(start + held);
  if (last) yield last;
}
