import { expect, test } from "bun:test";
import { parseHarnessLine } from "../../src/frames/harness-line.ts";

/** The frame that a reader gets for a line. */
function onTheWire(line: string): unknown {
  const frame = parseHarnessLine(line);
  return frame && JSON.parse(`{"seq":7,${frame.body}`);
}

test("a line of nothing but chunks goes on the wire as it is", () => {
  const line = '{"chunks":[{"type":"text-delta","id":"t","delta":"a\u2028b é 𝄞 \\u00e9 \\ud800"}]}';
  expect(parseHarnessLine(line)).toMatchObject({ body: line.slice(1), verbatim: true });
});

test("what is not chunks does not reach the wire, a seq least of all", () => {
  const seven = { seq: 7, chunks: [{ type: "a" }] };
  for (const line of [
    '{"seq":99,"chunks":[{"type":"a"}]}',
    '{"chunks":[{"type":"a"}],"seq":99}',
    '{"chunks":[{"type":"a"}],"\\u0073eq":99,"done":true}',
    '{"chunks":[{"type":"a"}],"__proto__":{"seq":99}}',
    '{"chunks":[{"type":"a"}],"outcome":{"type":"finished"},"error":{},"settled":{},"preparation":{}}',
    ' {"chunks":[{"type":"a"}]}',
    '{"chunks":[{"type":"a"}]} ',
    '{"chunks":[{"type":"a"}]}\r',
    '{"chunks":\r[{"type":"a"}]}',
    '{"chunks":[\r{"type":"a"}]}',
    '{ "chunks" : [ {"type": "a"} ] }',
  ]) {
    const frame = parseHarnessLine(line);
    expect(frame?.body).toBe('"chunks":[{"type":"a"}]}');
    expect(frame?.verbatim).toBe(false);
    expect(onTheWire(line)).toEqual(seven);
  }
});

test("a body that is written anew says so: its escapes may have become letters", () => {
  const frame = parseHarnessLine('{"chunks": [{"type": "text-delta", "delta": "\\u4f60"}]}');
  expect(frame).toMatchObject({ body: '"chunks":[{"type":"text-delta","delta":"你"}]}', verbatim: false });
});

test("lines that are no frames", () => {
  for (const line of [
    "",
    "text",
    "42",
    "null",
    '"chunks"',
    "[]",
    '[{"chunks":[]}]',
    "{}",
    '{"chunks":{}}',
    '{"chunks":null}',
    '{"outcome":null}',
    '{"outcome":"finished"}',
    '{"outcome":[]}',
    '{"session":{"id":"s"}}',
    '{"chunks":[]',
    '{"chunks":[]}}',
    '{"chunks":[]}{"chunks":[]}',
    '\ufeff{"chunks":[]}',
  ]) {
    expect(parseHarnessLine(line)).toBeUndefined();
  }
});

test("what is nested too deep to be written again is no frame", () => {
  const depth = 200_000;
  const deep = `${"[".repeat(depth)}${"]".repeat(depth)}`;
  expect(parseHarnessLine(`{"more":1,"chunks":[{"type":"data-x","data":${deep}}]}`)).toBeUndefined();
});

test("an outcome counts without chunks, and is left unread", () => {
  expect(parseHarnessLine('{"outcome":{"type":9}}')).toMatchObject({ chunks: [], outcome: { type: 9 } });
});

test("a session's id has to be one: it becomes the name of a file", () => {
  const idOf = (id: unknown): string | undefined =>
    parseHarnessLine(JSON.stringify({ chunks: [], session: { id } }))?.sessionId;
  for (const id of ["a", "0b1c-4d", "_x.y", "a".repeat(128)]) expect(idOf(id)).toBe(id);
  for (const id of ["", ".", "..", ".a", "a/b", "../a", "a b", "a\n", "é", "a".repeat(129), 5, null, {}]) {
    expect(idOf(id)).toBeUndefined();
  }
  expect(parseHarnessLine('{"chunks":[],"session":null}')?.sessionId).toBeUndefined();
  expect(parseHarnessLine('{"chunks":[],"session":"s"}')?.sessionId).toBeUndefined();
});
