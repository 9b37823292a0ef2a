import { expect, test } from "bun:test";
import { SseEncoder } from "../../src/http/sse.ts";

const LINES = [
  '{"seq":1,"chunks":[]}',
  `{"seq":23,"chunks":["${"x".repeat(80)}"]}`,
  '{"seq":456,"chunks":["\u2028é"]}',
];
const LOG = Buffer.from(LINES.map((line) => `${line}\n`).join(""));
const EVENTS = `id: 1\ndata: ${LINES[0]}\n\nid: 23\ndata: ${LINES[1]}\n\nid: 456\ndata: ${LINES[2]}\n\n`;

test("a line is an event with its seq as id", () => {
  expect(new SseEncoder().encode(LOG).toString()).toBe(EVENTS);
});

test("pieces of lines give the same bytes, wherever a long line is cut", () => {
  for (let at = 1; at < LOG.length; at++) {
    // The pump never hands over less than the beginning of a line.
    const inLine = at - (LOG.lastIndexOf(0x0a, at - 1) + 1);
    if (inLine > 0 && inLine < 32) continue;
    const encoder = new SseEncoder();
    const bytes = Buffer.concat([encoder.encode(LOG.subarray(0, at)), encoder.encode(LOG.subarray(at))]);
    expect(bytes.toString()).toBe(EVENTS);
  }
});
