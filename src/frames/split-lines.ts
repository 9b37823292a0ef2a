/**
 * Splits a byte stream at 0x0A only. Whole lines of one piece come out together and decoded at once, which is what
 * makes small frames cheap; a line that spans pieces is put together first. Bad UTF-8 becomes U+FFFD: a decoder never
 * swallows the 0x0A after a cut sequence, so decoding before splitting gives the same lines.
 */
import { isAscii } from "node:buffer";

const NEWLINE = 0x0a;

export type Lines =
  /** Short lines, without their newlines, and the bytes that they were decoded from. */
  | { readonly type: "lines"; readonly lines: readonly string[]; readonly bytes: Buffer; readonly ascii: boolean }
  /** One line of more than `largeBytes`, still as bytes, in a buffer of its own. */
  | { readonly type: "large"; readonly bytes: Buffer }
  /** A line passed `maxBytes`; nothing can be read any more. */
  | { readonly type: "overflow" };

export class LineSplitter {
  readonly #carry: Buffer[] = [];
  #carried = 0;

  constructor(
    private readonly maxBytes: number,
    private readonly largeBytes: number,
  ) {}

  /** The lines that `piece` completes. The piece may be kept: its owner must not write to it again. */
  *push(piece: Uint8Array): Generator<Lines> {
    const bytes = Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength);
    let start = 0;
    if (this.#carried > 0) {
      const first = bytes.indexOf(NEWLINE);
      const end = first < 0 ? bytes.length : first;
      this.#keep(bytes.subarray(0, end));
      if (this.#carried > this.maxBytes) return yield { type: "overflow" };
      if (first < 0) return;
      yield this.#take();
      start = first + 1;
    }
    const last = bytes.lastIndexOf(NEWLINE);
    if (last >= start) {
      yield* this.#whole(bytes.subarray(start, last));
      start = last + 1;
    }
    if (start < bytes.length) {
      this.#keep(bytes.subarray(start));
      if (this.#carried > this.maxBytes) yield { type: "overflow" };
    }
  }

  /** What is left when the stream has ended: a last line without a newline. */
  *end(): Generator<Lines> {
    if (this.#carried > 0) yield this.#take();
  }

  #keep(part: Buffer): void {
    if (part.length === 0) return;
    this.#carry.push(part);
    this.#carried += part.length;
  }

  #take(): Lines {
    const isLarge = this.#carried > this.largeBytes;
    const line = this.#carry.length === 1 && !isLarge ? (this.#carry[0] as Buffer) : Buffer.concat(this.#carry);
    this.#carry.length = 0;
    this.#carried = 0;
    if (isLarge) return { type: "large", bytes: line };
    const ascii = isAscii(line);
    return { type: "lines", lines: [decode(line, ascii)], bytes: line, ascii };
  }

  *#whole(region: Buffer): Generator<Lines> {
    const limit = Math.min(this.largeBytes, this.maxBytes);
    if (region.length <= limit) {
      const ascii = isAscii(region);
      yield { type: "lines", lines: decode(region, ascii).split("\n"), bytes: region, ascii };
      return;
    }
    // A piece as large as that may hold a large line: one by one.
    let start = 0;
    while (start <= region.length) {
      const next = region.indexOf(NEWLINE, start);
      const end = next < 0 ? region.length : next;
      if (end - start > this.maxBytes) return yield { type: "overflow" };
      this.#keep(region.subarray(start, end));
      if (this.#carried > 0) yield this.#take();
      start = end + 1;
    }
  }
}

function decode(bytes: Buffer, ascii: boolean): string {
  return ascii ? bytes.toString("latin1") : bytes.toString("utf8");
}
