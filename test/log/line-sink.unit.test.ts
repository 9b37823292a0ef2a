import { expect, test } from "bun:test";
import { createLineSink, type LineStream } from "../../src/log/line-sink.ts";

/** A stream that takes what it gets and is done with it when told. */
class HeldStream implements LineStream {
  readonly written: string[] = [];
  #waiting: (() => void)[] = [];
  #onError: (error: Error) => void = () => {};
  write(text: string, done: () => void): void {
    this.written.push(text);
    this.#waiting.push(done);
  }
  on(_event: "error", listener: (error: Error) => void): void {
    this.#onError = listener;
  }
  flush(): void {
    for (const done of this.#waiting.splice(0)) done();
  }
  fail(): void {
    this.#onError(new Error("EPIPE"));
  }
}

const LINE = `${"x".repeat(1023)}\n`;

test("lines that nobody reads are dropped, and how many is said when there is room again", () => {
  const stream = new HeldStream();
  const put = createLineSink(stream, (lines) => `dropped ${lines}\n`);
  for (let i = 0; i < 2000; i++) put(LINE);
  const held = stream.written.length;
  expect(held).toBeGreaterThan(1000);
  expect(held * LINE.length).toBeLessThan(1.1 * 2 ** 20);
  stream.flush();
  put("after\n");
  expect(stream.written.slice(held)).toEqual([`dropped ${2000 - held}\n`, "after\n"]);
  stream.flush();
  put("later\n");
  expect(stream.written.at(-1)).toBe("later\n");
  expect(stream.written.filter((line) => line.startsWith("dropped"))).toHaveLength(1);
});

test("a stream that is closed takes no more, and ends nobody", () => {
  const stream = new HeldStream();
  const put = createLineSink(stream, () => "");
  put("one\n");
  stream.fail();
  put("two\n");
  expect(stream.written).toEqual(["one\n"]);
});
