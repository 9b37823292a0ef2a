import type { Writable } from "node:stream";

/** Encoding a piece takes well below a millisecond; a document of 32 MiB at once holds everything up for 50 ms. */
const PIECE_CHARS = 64 * 1024;

/**
 * Writes `text` to a child piece by piece, as fast as the child reads, and closes its stdin. A child that ends or
 * closes its stdin before it has read everything is no error: the rest is dropped.
 */
export async function feedChild(stdin: Writable, text: string): Promise<void> {
  let gone = false;
  let wake = (): void => {};
  const lose = (): void => {
    gone = true;
    wake();
  };
  stdin.on("error", lose);
  stdin.on("close", lose);
  stdin.on("drain", () => wake());
  for (let at = 0; at < text.length && !gone; ) {
    const end = pieceEnd(text, at);
    const more = stdin.write(text.slice(at, end));
    at = end;
    if (!more && !gone) {
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  }
  if (!gone) stdin.end();
}

/** Two halves of a surrogate pair must not be encoded apart. */
function pieceEnd(text: string, at: number): number {
  const end = at + PIECE_CHARS;
  if (end >= text.length) return text.length;
  const last = text.charCodeAt(end - 1);
  return last >= 0xd800 && last <= 0xdbff ? end - 1 : end;
}
