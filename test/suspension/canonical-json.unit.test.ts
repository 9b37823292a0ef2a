/** One spelling for one JSON value: the RFC's own examples, and what has no spelling at all. */
import { describe, expect, test } from "bun:test";
import { CanonicalJsonError, canonicalJson, sameJson } from "../../src/canonical-json.ts";
import { schemaHashOf, toolHashOf } from "../../src/suspension/hashes.ts";

function problemOf(value: unknown, maxBytes?: number): string | undefined {
  try {
    canonicalJson(value, maxBytes);
  } catch (thrown) {
    if (thrown instanceof CanonicalJsonError) return thrown.code;
    throw thrown;
  }
  return undefined;
}

function nested(depth: number): unknown {
  let value: unknown = 0;
  for (let n = 0; n < depth; n++) value = n % 2 === 0 ? [value] : { a: value };
  return value;
}

test("RFC 8785's example is spelled as the RFC spells it", () => {
  const text = `{
    "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
    "string": "\\u20ac$\\u000F\\u000aA'\\u0042\\u0022\\u005c\\\\\\"\\/",
    "literals": [null, true, false]
  }`;
  const hex =
    "7b226c69746572616c73223a5b6e756c6c2c747275652c66616c73655d2c226e756d62657273223a5b3333333333333333332e3333333333" +
    "33332c31652b33302c342e352c302e3030322c31652d32375d2c22737472696e67223a22e282ac245c75303030665c6e4127425c225c5c5c" +
    "5c5c222f227d";
  expect(Buffer.from(canonicalJson(JSON.parse(text))).toString("hex")).toBe(hex);
});

test("RFC 8785's keys are sorted by UTF-16 code units, at every depth", () => {
  const object = JSON.parse(
    `{"\\u20ac": 1, "\\r": 2, "\\ufb33": 3, "1": 4, "\\ud83d\\ude00": 5, "\\u0080": 6, "\\u00f6": 7}`,
  );
  const sorted = `{"\\r":2,"1":4,"\u0080":6,"ö":7,"€":1,"😀":5,"\ufb33":3}`;
  expect(canonicalJson(object)).toBe(sorted);
  expect(canonicalJson([{ z: object, a: 0 }])).toBe(`[{"a":0,"z":${sorted}}]`);
  expect(canonicalJson({ 10: 0, 9: 0, a: [] })).toBe('{"10":0,"9":0,"a":[]}');
});

test.each([
  ["0000000000000000", "0"],
  ["8000000000000000", "0"],
  ["0000000000000001", "5e-324"],
  ["8000000000000001", "-5e-324"],
  ["7fefffffffffffff", "1.7976931348623157e+308"],
  ["ffefffffffffffff", "-1.7976931348623157e+308"],
  ["4340000000000000", "9007199254740992"],
  ["c340000000000000", "-9007199254740992"],
  ["4430000000000000", "295147905179352830000"],
  ["44b52d02c7e14af5", "9.999999999999997e+22"],
  ["44b52d02c7e14af6", "1e+23"],
  ["44b52d02c7e14af7", "1.0000000000000001e+23"],
  ["444b1ae4d6e2ef4e", "999999999999999700000"],
  ["444b1ae4d6e2ef4f", "999999999999999900000"],
  ["444b1ae4d6e2ef50", "1e+21"],
  ["3eb0c6f7a0b5ed8c", "9.999999999999997e-7"],
  ["3eb0c6f7a0b5ed8d", "0.000001"],
  ["41b3de4355555553", "333333333.3333332"],
  ["41b3de4355555554", "333333333.33333325"],
  ["41b3de4355555555", "333333333.3333333"],
  ["41b3de4355555556", "333333333.3333334"],
  ["41b3de4355555557", "333333333.33333343"],
  ["becbf647612f3696", "-0.0000033333333333333333"],
  ["43143ff3c1cb0959", "1424953923781206.2"],
])("RFC 8785's number %s is %s", (bits, text) => {
  expect(canonicalJson(Buffer.from(bits, "hex").readDoubleBE())).toBe(text);
});

describe("__proto__ is a key like any other", () => {
  const [own, other, without] = ['{"a":1,"__proto__":{"b":2}}', '{"a":1,"__proto__":{"b":3}}', '{"a":1}'].map((text) =>
    JSON.parse(text),
  );

  test("in the text, and in a hash", () => {
    expect(canonicalJson(own)).toBe('{"__proto__":{"b":2},"a":1}');
    expect(new Set([own, other, without].map(schemaHashOf)).size).toBe(3);
    const hashes = [own, other, without].map((inputSchema) => toolHashOf({ name: "t", kind: "client", inputSchema }));
    expect(new Set(hashes).size).toBe(3);
  });

  test("in a comparison", () => {
    expect(sameJson(own, JSON.parse('{"__proto__":{"b":2},"a":1}'))).toBe(true);
    expect(sameJson(own, other)).toBe(false);
    expect(sameJson(own, without)).toBe(false);
    // Inherited is not there.
    expect(sameJson(JSON.parse('{"toString":1}'), { x: 1 })).toBe(false);
    expect(sameJson({ x: 1 }, JSON.parse('{"__proto__":1}'))).toBe(false);
    expect(sameJson(JSON.parse('{"__proto__":{}}'), { x: {} })).toBe(false);
  });
});

test.each([
  ["half a pair", "a\ud800", "lone_surrogate"],
  ["half a pair in a key", { "\udc00": 1 }, "lone_surrogate"],
  ["not a number", [Number.NaN], "not_json"],
  ["infinity", { a: Number.POSITIVE_INFINITY }, "not_json"],
  ["undefined", { a: undefined }, "not_json"],
  ["a hole", new Array(1), "not_json"],
  ["a big integer", 1n, "not_json"],
  ["a date", new Date(0), "not_json"],
  ["a map", new Map(), "not_json"],
  ["a function", () => 0, "not_json"],
  ["513 levels", nested(513), "too_deep"],
  ["100,000 levels", nested(100_000), "too_deep"],
])("%s is refused", (_name, value, code) => {
  expect(problemOf(value)).toBe(code);
});

test("512 levels have a text, and are compared", () => {
  expect(JSON.parse(canonicalJson(nested(512)))).toEqual(nested(512));
  expect(sameJson(nested(512), nested(512))).toBe(true);
  expect(sameJson(nested(100_000), nested(100_000))).toBe(false);
});

test("a circle is refused", () => {
  const circle: unknown[] = [];
  circle.push(circle);
  expect(problemOf(circle)).toBe("too_deep");
});

test("a limit is exact, in bytes of UTF-8, for every kind of value", () => {
  const values = ["ab", "€\n\u0001😀", 12.5, null, true, [], {}, [1, 2, 3], { a: 1, ö: [{}, ""] }, [[], [null, "x"]]];
  for (const value of values) {
    const bytes = Buffer.byteLength(canonicalJson(value));
    expect([value, problemOf(value, bytes)]).toEqual([value, undefined]);
    expect([value, problemOf(value, bytes - 1)]).toEqual([value, "too_large"]);
  }
});

test("two values are the same exactly when their texts are", () => {
  const values = [null, 0, -0, 1, "", "0", "1", true, false, [], {}, [[]], [{}], [0], ["0"], [0, 0], { 0: 0 }];
  const more = [{ a: 0 }, { a: null }, { a: 0, b: 0 }, { b: 0, a: 0 }, { a: [0, { b: 1 }] }, { a: [0, { b: 2 }] }];
  const all: unknown[] = [...values, ...more, [0, 1], [1, 0]];
  for (const one of all) {
    for (const other of all) {
      const expected = canonicalJson(one) === canonicalJson(other);
      expect([one, other, sameJson(one, other)]).toEqual([one, other, expected]);
    }
  }
});

test("a tool's hash is over its name, kind, schema and permission, and nothing else", () => {
  const tool = { name: "connect", kind: "client", inputSchema: { type: "object" }, permission: "ask" };
  const hash = toolHashOf(tool);
  expect(hash).toMatch(/^[A-Za-z0-9_-]{43}$/);
  const changes = [{ name: "other" }, { kind: "callback" }, { inputSchema: {} }, { permission: "allow" }];
  for (const change of changes) expect(toolHashOf({ ...tool, ...change })).not.toBe(hash);
  const renamed = { ...tool, description: "another text", timeoutMs: 5 };
  expect(toolHashOf(renamed)).toBe(hash);
  const { permission: _none, ...open } = tool;
  expect(toolHashOf(open)).toBe(toolHashOf({ ...tool, permission: "allow" }));
  expect(schemaHashOf(null)).toBe(schemaHashOf(undefined));
});
