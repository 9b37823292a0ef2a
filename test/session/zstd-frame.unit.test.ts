import { expect, test } from "bun:test";
import { constants, zstdCompressSync } from "node:zlib";
import { decodeFrame, hashOf } from "../../src/session/save-file.ts";
import type { SaveName } from "../../src/session/save-name.ts";
import { createSealer } from "../../src/session/sealing.ts";
import { textSizeOf } from "../../src/session/zstd-frame.ts";

const NAME = `${"0".repeat(16)}-00000001-${"r".repeat(16)}-000000-s` as SaveName;
const PLAIN = createSealer("", []);
const decode = (frame: Uint8Array, text: Uint8Array) =>
  decodeFrame(NAME, frame.length, frame, text.length, hashOf(text), PLAIN);

test("a frame says how long its text is, of every kind and size", async () => {
  for (const size of [0, 1, 255, 256, 65_791, 65_792, 300_000, 9_000_000]) {
    for (const text of [
      Buffer.alloc(size, "a"),
      Buffer.from(crypto.getRandomValues(new Uint8Array(Math.min(size, 65_536)))),
    ]) {
      const checked = zstdCompressSync(text, { params: { [constants.ZSTD_c_checksumFlag]: 1 } });
      for (const frame of [zstdCompressSync(text), checked, new Uint8Array(Bun.zstdCompressSync(text))]) {
        expect(textSizeOf(frame)).toBe(text.length);
        expect((await decode(frame, text))?.length).toBe(text.length);
      }
    }
  }
});

test("what is not one whole frame is none, and nothing of it is decompressed", async () => {
  const text = Buffer.from(`${crypto.randomUUID()}\n`.repeat(20_000));
  const frame = zstdCompressSync(text);
  const untold = zstdCompressSync(text, { params: { [constants.ZSTD_c_contentSizeFlag]: 0 } });
  const wrong = [
    new Uint8Array(),
    Buffer.from("junk"),
    untold,
    Buffer.concat([frame, frame]),
    Buffer.concat([frame, Buffer.from([0])]),
    ...Array.from({ length: 40 }, (_, n) => frame.subarray(0, n)),
    frame.subarray(0, -1),
  ];
  for (const bytes of wrong) {
    expect(textSizeOf(bytes)).toBeUndefined();
    expect(await decode(bytes, text)).toBeUndefined();
  }
  // Of a text that is shorter or longer than the head of its save says.
  expect(await decode(frame, text.subarray(1))).toBeUndefined();
  expect(await decode(frame, Buffer.concat([text, text]))).toBeUndefined();
});

test("a flipped bit anywhere is found", async () => {
  const text = Buffer.from(`${crypto.randomUUID()} ${"x".repeat(50)}\n`.repeat(20));
  const frame = zstdCompressSync(text);
  for (let bit = 0; bit < frame.length * 8; bit++) {
    const bytes = Buffer.from(frame);
    bytes[bit >> 3] = (bytes[bit >> 3] ?? 0) ^ (1 << (bit & 7));
    const decoded = await decode(bytes, text);
    // A bit that decides nothing gives the same text.
    if (decoded) expect(Buffer.compare(decoded, text)).toBe(0);
  }
});
