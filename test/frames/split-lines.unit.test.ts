import { expect, test } from "bun:test";
import { LineSplitter } from "../../src/frames/split-lines.ts";

const MAX = 1000;
const LARGE = 100;

/** What comes out of a splitter that is fed `pieces`; blank lines, which mean nothing, left out. */
function split(pieces: Iterable<Uint8Array>): string[] {
  const splitter = new LineSplitter(MAX, LARGE);
  const out: string[] = [];
  const take = (pushed: Iterable<ReturnType<typeof splitter.push> extends Iterable<infer L> ? L : never>): boolean => {
    for (const lines of pushed) {
      if (lines.type === "overflow") {
        out.push("OVERFLOW");
        return false;
      }
      if (lines.type === "large") {
        expect(lines.bytes.length).toBeGreaterThan(LARGE);
        out.push(lines.bytes.toString("utf8"));
      } else {
        for (const line of lines.lines) {
          if (lines.ascii) expect(Buffer.from(line, "latin1").equals(Buffer.from(line, "utf8"))).toBe(true);
          if (line !== "") out.push(line);
        }
      }
    }
    return true;
  };
  for (const piece of pieces) if (!take(splitter.push(piece))) return out;
  take(splitter.end());
  return out;
}

/** The same by the definition: cut at 0x0A, then decoded. */
function expected(bytes: Buffer): string[] {
  const out: string[] = [];
  for (let start = 0; start < bytes.length; ) {
    const newline = bytes.indexOf(0x0a, start);
    const end = newline < 0 ? bytes.length : newline;
    if (end - start > MAX) return [...out, "OVERFLOW"];
    if (end > start) out.push(bytes.subarray(start, end).toString("utf8"));
    start = end + 1;
  }
  return out;
}

function* cut(bytes: Buffer, sizes: () => number): Generator<Buffer> {
  for (let at = 0; at < bytes.length; ) {
    const size = Math.max(1, sizes());
    yield bytes.subarray(at, at + size);
    at += size;
  }
}

/** Numbers from 0 to 1, the same ones in every run. */
function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

const SAMPLES: Record<string, Buffer> = {
  "short lines": Buffer.from("a\nbb\nccc\n"),
  "no final newline": Buffer.from("a\nb"),
  "blank lines": Buffer.from("\n\na\n\n\nb\n\n"),
  "carriage returns are no ends": Buffer.from("a\r\nb\rc\r\n"),
  "line and paragraph separators are no ends": Buffer.from("a\u2028b\u2029c\u0085d\n"),
  "characters of two, three and four bytes": Buffer.from("é€𝄞\nx𝄞\n"),
  "a cut sequence before the newline": Buffer.from([0x61, 0xe2, 0x82, 0x0a, 0x62, 0xf0, 0x9d, 0x0a, 0xff, 0xfe, 0x0a]),
  "overlong and surrogate bytes": Buffer.from([0xc0, 0x80, 0x0a, 0xed, 0xa0, 0x80, 0x0a]),
  "large lines": Buffer.from(`${"a".repeat(LARGE)}\n${"b".repeat(LARGE + 1)}\n${"é".repeat(LARGE)}\nx\n`),
  "a line of the longest length": Buffer.from(`x\n${"a".repeat(MAX)}\ny\n`),
  "a line too long": Buffer.from(`x\n${"a".repeat(MAX + 1)}\ny\n`),
  "a line too long that never ends": Buffer.from(`x\n${"a".repeat(3 * MAX)}`),
};

for (const [name, bytes] of Object.entries(SAMPLES)) {
  test(`lines do not depend on where the stream is cut: ${name}`, () => {
    const lines = expected(bytes);
    expect(split([bytes])).toEqual(lines);
    for (let at = 1; at < bytes.length; at++) {
      expect(split([bytes.subarray(0, at), bytes.subarray(at)])).toEqual(lines);
    }
    expect(split(cut(bytes, () => 1))).toEqual(lines);
  });
}

test("lines do not depend on where a long random stream is cut", () => {
  for (let seed = 1; seed <= 200; seed++) {
    const random = randomFrom(seed);
    const alphabet = [0x0a, 0x0a, 0x61, 0x62, 0x0d, 0xc3, 0xa9, 0xe2, 0x82, 0xac, 0xf0, 0xff];
    // Few newlines in some streams, so that large lines and too long ones occur.
    const skip = seed % 3 === 0 ? 2 : 0;
    const bytes = Buffer.from(
      Array.from({ length: 2500 }, () => {
        if (skip && random() < 0.003) return 0x0a;
        return alphabet[skip + Math.floor(random() * (alphabet.length - skip))] ?? 0x61;
      }),
    );
    expect(split(cut(bytes, () => Math.floor(random() * 400)))).toEqual(expected(bytes));
  }
});
