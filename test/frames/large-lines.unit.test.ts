import { afterAll, expect, test } from "bun:test";
import { parseHarnessLine } from "../../src/frames/harness-line.ts";
import { createLargeJson } from "../../src/frames/large-lines.ts";

const largeJson = createLargeJson();
afterAll(() => largeJson.stop());

const bytesOf = (text: string): Buffer => Buffer.concat([Buffer.from(text)]);
const FILL = "x".repeat(300_000);

const LINES: Record<string, string> = {
  "of nothing but chunks": `{"chunks":[{"type":"data-x","data":"${FILL}"}]}`,
  "with letters of several bytes": `{"chunks":[{"type":"data-x","data":"é\u2028𝄞${FILL}"}]}`,
  "with other keys": `{"seq":5,"chunks":[{"type":"data-x","data":"é${FILL}"}]}`,
  "with escapes and blanks": `{"chunks": [{"type": "data-x", "data": "\\u4f60${FILL}"}]}`,
  "with a session and an outcome": `{"chunks":[{"type":"data-x","data":"${FILL}"}],"session":{"id":"s"},"outcome":{"type":"finished"}}`,
};

for (const [name, line] of Object.entries(LINES)) {
  test(`a large line is read as a small one would be: ${name}`, async () => {
    const small = parseHarnessLine(line);
    const large = await largeJson.parseLine(bytesOf(line));
    expect(Buffer.from(large?.body ?? []).toString()).toBe(small?.body ?? "none");
    expect(large).toMatchObject({ hasChunks: true, outlines: [] });
    expect(large?.sessionId).toBe(small?.sessionId as string);
    expect(large?.outcome).toEqual(small?.outcome as never);
  });
}

test("what opens and closes parts comes along", async () => {
  const chunks = [
    { type: "start", messageId: "m" },
    { type: "text-start", id: "t" },
    { type: "text-delta", id: "t", delta: FILL },
    { type: "tool-output-available", toolCallId: "c", preliminary: true, output: FILL },
  ];
  const frame = await largeJson.parseLine(bytesOf(JSON.stringify({ chunks })));
  expect(frame?.outlines).toEqual([
    { type: "start", messageId: "m" },
    { type: "text-start", id: "t" },
    { type: "tool-output-available", toolCallId: "c", preliminary: true },
  ] as never);
});

test("bad UTF-8 becomes U+FFFD", async () => {
  const [open, close] = ['{"chunks":[{"type":"data-x","data":"', `${FILL}"}]}`];
  const frame = await largeJson.parseLine(
    Buffer.concat([Buffer.from(open), Buffer.from([0xe2, 0x82]), Buffer.from(close)]),
  );
  expect(Buffer.from(frame?.body ?? []).toString()).toBe(`${open.slice(1)}\ufffd${close}`);
});

test("what is no frame, no JSON, or nested too deep", async () => {
  for (const text of [FILL, `["${FILL}"]`, `{"chunks":[${FILL}`, "[".repeat(300_000)]) {
    expect(await largeJson.parseLine(bytesOf(text))).toBeUndefined();
  }
  const deep = `{"chunks":[${"[".repeat(150_000)}${"]".repeat(150_000)}]}`;
  const frame = await largeJson.parseLine(bytesOf(deep));
  // Either way it is decided, and the worker lives on.
  if (frame) expect(frame.body.length).toBe(deep.length - 1);
  for (const text of [`{"a":"${FILL}`, deep]) {
    const refused = await largeJson.parseJson(bytesOf(text)).catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(SyntaxError);
  }
  expect(await largeJson.parseJson(bytesOf(`{"a":"${FILL}"}`))).toEqual({ a: FILL });
});

test("many at once get their own answers", async () => {
  const all = Array.from(
    { length: 20 },
    (_, index) => `{"chunks":[{"type":"start","messageId":"${index}"},"${FILL}"]}`,
  );
  const frames = await Promise.all(all.map((line) => largeJson.parseLine(bytesOf(line))));
  expect(frames.map((frame) => frame?.outlines[0]?.messageId)).toEqual(all.map((_, index) => String(index)));
});

test("a large outcome without chunks says so", async () => {
  const said = { outcome: { type: "finished", note: FILL } };
  expect(await largeJson.parseLine(bytesOf(JSON.stringify(said)))).toMatchObject({ hasChunks: false });
  expect(await largeJson.parseLine(bytesOf(JSON.stringify({ ...said, chunks: [] })))).toMatchObject({
    hasChunks: false,
  });
});
