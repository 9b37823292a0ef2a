import { afterAll, expect, test } from "bun:test";
import { parseHarnessLine } from "../../src/frames/harness-line.ts";
import { JsonRefusal } from "../../src/frames/json-scanner.ts";
import { createLargeJson } from "../../src/frames/large-lines.ts";
import { OpenParts } from "../../src/frames/open-parts.ts";
import type { LargeFrame } from "../../src/frames/read-large-line.ts";

const largeJson = createLargeJson();
afterAll(() => largeJson.stop());

const bytesOf = (text: string): Buffer => Buffer.concat([Buffer.from(text)]);
const readLine = (line: string): Promise<LargeFrame | undefined> =>
  largeJson.readLine(bytesOf(line), { open: new OpenParts().state });
const FILL = "x".repeat(300_000);

const LINES: Record<string, string> = {
  "of nothing but chunks": `{"chunks":[{"type":"data-x","data":"${FILL}"}]}`,
  "with letters of several bytes": `{"chunks":[{"type":"data-x","data":"é\u2028𝄞${FILL}"}]}`,
  "with other keys": `{"seq":5,"chunks":[{"type":"data-x","data":"é${FILL}"}]}`,
  "with escapes and blanks": `{"chunks": [{"type": "data-x", "data": "\\u4f60${FILL}"}]}`,
  "with carriage returns between": `{"chunks":\r[\r{"type":"data-x",\r"data":"${FILL}"}\r]\r}`,
  "with a session and an outcome": `{"chunks":[{"type":"data-x","data":"${FILL}"}],"session":{"id":"s"},"outcome":{"type":"finished"}}`,
};

for (const [name, line] of Object.entries(LINES)) {
  test(`a large line is read as a small one would be: ${name}`, async () => {
    const small = parseHarnessLine(line);
    const large = await readLine(line);
    const body = Buffer.from(large?.body ?? []).toString();
    if (small?.verbatim) expect(body).toBe(small.body);
    // One line in server-sent events too, whatever blanks and escapes are left in it.
    expect(body).not.toContain("\r");
    expect(JSON.parse(`{${body}`)).toEqual(JSON.parse(`{${small?.body}`));
    expect(large).toMatchObject({ hasChunks: true, concerned: false });
    expect(large?.sessionId).toBe(small?.sessionId as string);
    expect(large?.outcome).toEqual(small?.outcome as never);
  });
}

test("what opens and closes parts is noted", async () => {
  const chunks = [
    { type: "start", messageId: "m" },
    { type: "text-start", id: "t" },
    { type: "text-delta", id: "t", delta: FILL },
    { type: "tool-input-available", toolCallId: "c", toolName: "bash", input: { type: "abort", id: "not it" } },
    { type: "tool-output-available", toolCallId: "c", preliminary: true, output: FILL },
  ];
  const frame = await readLine(JSON.stringify({ chunks }));
  const parts = new OpenParts();
  for (const chunk of chunks) parts.note(chunk);
  expect(frame?.open).toEqual(parts.state);
  expect(parts.state).toMatchObject({ started: true, texts: new Set(["t"]), tools: new Map([["c", 0]]) });
});

test("of keys that are there twice, or spelled otherwise, those count that JSON.parse takes", async () => {
  const line = `{"chunks":[{"type":"start"}],"\\u0063hunks" : [{"type":"text-start","id":"no","\\u0069d":"t"},"${FILL}"] , "more":1}`;
  const frame = await readLine(line);
  expect(frame?.open).toMatchObject({ started: false, texts: new Set(["t"]) });
  expect(JSON.parse(`{${Buffer.from(frame?.body ?? []).toString()}`)).toEqual({ chunks: JSON.parse(line).chunks });
});

test("a million small chunks are read without being built, and an outcome of a million values is not believed", async () => {
  const line = `{"chunks":[${Array(1_000_000).fill('{"type":"start"}').join(",")}]}`;
  const frame = await readLine(line);
  expect(Buffer.from(frame?.body ?? []).equals(Buffer.from(line.slice(1)))).toBe(true);
  expect(frame).toMatchObject({ values: 3_000_003, open: { started: true } });
  const many = `[${Array(1_000_000).fill("{}").join(",")}]`;
  const ended = await readLine(`{"outcome":{"type":"interrupt","interrupts":${many},"usage":{"turns":1}}}`);
  expect(ended?.outcome).toEqual({ type: "interrupt", usage: { turns: 1 } });
});

test("bad UTF-8 becomes U+FFFD", async () => {
  const [open, close] = ['{"chunks":[{"type":"data-x","data":"', `${FILL}"}]}`];
  const line = Buffer.concat([Buffer.from(open), Buffer.from([0xe2, 0x82]), Buffer.from(close)]);
  const frame = await largeJson.readLine(line, { open: new OpenParts().state });
  expect(Buffer.from(frame?.body ?? []).toString()).toBe(`${open.slice(1)}\ufffd${close}`);
});

test("what is no frame, no JSON, or nested too deep", async () => {
  for (const text of [FILL, `["${FILL}"]`, `{"chunks":[${FILL}`, "[".repeat(300_000)]) {
    expect(await readLine(text)).toBeUndefined();
  }
  const deep = `{"chunks":[${"[".repeat(150_000)}${"]".repeat(150_000)}]}`;
  expect(await readLine(deep)).toBeUndefined();
  const refused = (text: string) => largeJson.parseJson(bytesOf(text)).catch((error: unknown) => error);
  expect(await refused(`{"a":"${FILL}`)).toBeInstanceOf(SyntaxError);
  expect(await refused(deep)).toEqual(
    new JsonRefusal("chunks.0.0.0.0.0.0.0", "has more than 600 levels of lists and objects"),
  );
  expect(await largeJson.parseJson(bytesOf(`{"a":"${FILL}"}`))).toEqual({ a: FILL });
});

test("many at once get their own answers", async () => {
  const all = Array.from(
    { length: 20 },
    (_, index) => `{"chunks":[{"type":"start","messageId":"${index}"},"${FILL}"]}`,
  );
  const frames = await Promise.all(all.map(readLine));
  expect(frames.map((frame) => frame?.open.messageId)).toEqual(all.map((_, index) => String(index)));
});

test("a large outcome without chunks says so", async () => {
  const said = { outcome: { type: "finished", note: FILL } };
  expect(await readLine(JSON.stringify(said))).toMatchObject({ hasChunks: false });
  expect(await readLine(JSON.stringify({ ...said, chunks: [] }))).toMatchObject({
    hasChunks: false,
  });
});
