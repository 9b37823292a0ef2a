/** The lines of a transcript, one at a time: it may have hundreds of MiB, and the agent may have written it. */
import type { Transcript } from "./open-transcript.ts";

const READ_BYTES = 1 << 20;
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

/** A last line without its newline counts too. */
export async function* linesOf({ file, bytes: size }: Transcript): AsyncGenerator<Line> {
  let pieces: Buffer[] = [];
  let held = 0;
  let start = 0;
  const hold = (piece: Buffer): void => {
    held += piece.length;
    if (held <= MAX_LINE_BYTES) pieces.push(piece);
    else pieces = [];
  };
  const line = (end: number): Line | undefined => {
    const [only] = pieces;
    const bytes = pieces.length === 1 && only ? only : Buffer.concat(pieces);
    const whole = held <= MAX_LINE_BYTES ? { start, end, bytes } : undefined;
    pieces = [];
    held = 0;
    start = end;
    return whole;
  };
  for (let at = 0; at < size; ) {
    const buffer = Buffer.allocUnsafe(Math.min(READ_BYTES, size - at));
    const { bytesRead } = await file.read(buffer, 0, buffer.length, at);
    if (bytesRead === 0) break;
    const chunk = buffer.subarray(0, bytesRead);
    let from = 0;
    for (let newline = chunk.indexOf(NEWLINE); newline !== -1; newline = chunk.indexOf(NEWLINE, from)) {
      hold(chunk.subarray(from, newline));
      from = newline + 1;
      const next = line(at + from);
      if (next) yield next;
    }
    at += bytesRead;
    if (from < bytesRead) hold(chunk.subarray(from));
  }
  if (held === 0) return;
  const last = line(start + held);
  if (last) yield last;
}
