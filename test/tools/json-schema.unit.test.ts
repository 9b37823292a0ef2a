import { expect, test } from "bun:test";
import { compileSchema, JsonSchemaError } from "../../src/tools/json-schema.ts";

const DRAFT_07 = "http://json-schema.org/draft-07/schema#";
const DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema";

const wrong = (schema: Record<string, unknown>, value: unknown) => compileSchema(schema).check(value);

function refusal(schema: Record<string, unknown>): string | undefined {
  try {
    compileSchema(schema);
    return undefined;
  } catch (error) {
    expect(error).toBeInstanceOf(JsonSchemaError);
    return (error as Error).message;
  }
}

test("what is wrong is told with its path, and never with the value", () => {
  const schema = {
    type: "object",
    required: ["city"],
    properties: { city: { type: "string", maxLength: 5 }, unit: { enum: ["C", "F"] }, at: { const: 7 } },
    additionalProperties: false,
  };
  expect(wrong(schema, { city: "Bern", unit: "C", at: 7 })).toBeUndefined();
  expect(wrong(schema, {})).toBe("must have required property 'city'");
  expect(wrong(schema, [])).toBe("must be object");
  expect(wrong(schema, { city: "Bern", unit: "secret-value" })).toBe('/unit must be one of ["C","F"]');
  expect(wrong(schema, { city: "Bern", at: "secret-value" })).toBe("/at must be 7");
  expect(wrong(schema, { city: "Bern", colour: "secret-value" })).toBe('must not have the property "colour"');
  const long = wrong(schema, { city: "secret-value" });
  expect(long).toContain("/city must NOT have more than 5 characters");
  expect(long).not.toContain("secret");
});

test("a message is at most 1 KiB, whatever schema and value have in them", () => {
  const values = Array.from({ length: 5000 }, (_, index) => `value ${index}`);
  const deep = { anyOf: values.map((value) => ({ const: value })) };
  for (const message of [
    wrong({ enum: values }, "x"),
    wrong(deep, "x"),
    wrong({ additionalProperties: { type: "number" } }, { ["k".repeat(100_000)]: "x" }),
    wrong({ additionalProperties: false }, { ["é".repeat(100_000)]: "x" }),
    wrong({ required: ["ü".repeat(60_000)] }, {}),
  ]) {
    expect(message).toBeString();
    expect(Buffer.byteLength(message ?? "")).toBeLessThanOrEqual(1024);
    expect(message?.isWellFormed()).toBe(true);
  }
  expect(wrong(deep, "x")).toEndWith("and 4998 more");
});

test("the draft is the one that $schema names; without one it is 2020-12", () => {
  const pair = [{ type: "number" }];
  const closed07 = { $schema: DRAFT_07, items: pair, additionalItems: false };
  expect(wrong(closed07, [1, 2])).toBe("must NOT have more than 1 items");
  for (const $schema of [DRAFT_2020, undefined]) {
    const named = $schema === undefined ? {} : { $schema };
    expect(wrong({ ...named, prefixItems: pair, items: false }, [1, 2])).toBeString();
    expect(wrong({ ...named, allOf: [{ properties: { a: {} } }], unevaluatedProperties: false }, { a: 1, b: 1 })).toBe(
      'must not have the property "b"',
    );
    expect(refusal({ ...named, items: pair })).toContain("/items");
  }
  expect(refusal({ $schema: "https://json-schema.org/draft-07/schema" })).toBeUndefined();
  for (const $schema of ["http://json-schema.org/draft-04/schema#", "https://example.com/own", 7]) {
    expect(refusal({ $schema })).toBe("$schema must be that of draft-07 or 2020-12");
  }
});

test("a schema that cannot be used is refused when it is read, with the reason", () => {
  expect(refusal({ type: "text" })).toContain("/type");
  expect(refusal({ properties: { a: { minimum: "1" } } })).toContain("/properties/a/minimum must be number");
  expect(refusal({ required: "a" })).toContain("/required must be array");
  expect(refusal({ properties: { a: { pattern: "(" } } })).toContain("regular expression");
  expect(refusal({ patternProperties: { "(": {} } })).toContain("regular expression");
  expect(refusal({ properties: { a: { $ref: "#/$defs/none" } } })).toContain("#/$defs/none");
  expect(refusal({ properties: { default: { $ref: "#/$defs/none" } } })).toContain("#/$defs/none");
  expect(refusal({ properties: { enum: { not: { pattern: "(" } } } })).toContain("regular expression");
  expect(refusal({ $ref: "#/$defs/%zz" })).toBeString();
  expect(refusal({ $ref: "#nowhere" })).toContain("#nowhere");
  // It would be answered with a promise, which is neither right nor wrong.
  expect(refusal({ $async: true })).toBe("$async is not supported");
  let deep: Record<string, unknown> = {};
  for (let level = 0; level < 50_000; level++) deep = { not: deep };
  expect(refusal(deep)).toBeString();
});

test("nothing is fetched: a reference to elsewhere is refused", () => {
  for (const $ref of ["https://example.com/schema.json", DRAFT_07, "file:///etc/passwd", "other.json"]) {
    expect(refusal({ properties: { a: { $ref } } })).toContain("can't resolve reference");
  }
});

test("references within a schema work, also those by anchor and id, and the same id in two schemas", () => {
  const tree = (id: string) => ({
    $id: id,
    $ref: "#/$defs/node",
    $defs: {
      node: { type: "object", properties: { children: { type: "array", items: { $ref: "#/$defs/node" } } } },
      named: { $anchor: "named", type: "string" },
      inner: { $id: "https://example.com/inner", type: "number" },
    },
    properties: { name: { $ref: "#named" }, size: { $ref: "https://example.com/inner" } },
  });
  for (const schema of [tree("https://example.com/a"), tree("https://example.com/a")]) {
    expect(wrong(schema, { name: "x", size: 1, children: [{ children: [] }] })).toBeUndefined();
    expect(wrong(schema, { children: [{ children: [7] }] })).toBe("/children/0/children/0 must be object");
    expect(wrong(schema, { name: 1 })).toBe("/name must be string");
    expect(wrong(schema, { size: "1" })).toBe("/size must be number");
  }
  const odd = { $ref: "#/$defs/a~1b%20~0", $defs: { "a/b ~": { type: "string" }, "x~1": { $ref: "#" } } };
  expect(wrong(odd, 7)).toBe("must be string");
  const data = { enum: [{ $ref: "#/none", pattern: "(" }], default: { $id: "x" }, examples: [{ $ref: "#/none" }] };
  expect(wrong(data, { $ref: "#/none", pattern: "(" })).toBeUndefined();
  const dynamic = {
    $dynamicAnchor: "node",
    properties: { next: { $dynamicRef: "#node" } },
    unevaluatedProperties: false,
  };
  expect(wrong(dynamic, { next: { next: {} } })).toBeUndefined();
  expect(wrong(dynamic, { next: { other: 1 } })).toBe('/next must not have the property "other"');
});

test("what people write beyond the standard is no reason to refuse a tool", () => {
  expect(wrong({ properties: { at: { type: "string", format: "date-time" } } }, { at: "tomorrow" })).toBeUndefined();
  expect(wrong({ properties: { a: { type: "string", example: "x", "x-own": 1 } } }, { a: "y" })).toBeUndefined();
  // Escaped more than Unicode patterns may be.
  const pattern = { type: "string", pattern: "^[\\w-.]+\\@x$" };
  expect(wrong(pattern, "a-b.c@x")).toBeUndefined();
  expect(wrong(pattern, "a b@x")).toBeString();
  const nullable = {
    properties: { a: { anyOf: [{ type: "string" }], nullable: true }, nullable: { type: "boolean" } },
  };
  expect(wrong(nullable, { a: "x", nullable: true })).toBeUndefined();
  expect(wrong(nullable, { nullable: "x" })).toBe("/nullable must be boolean");
  expect(wrong({ type: ["string", "null"], nullable: false }, null)).toBeUndefined();
});

test("what an object inherits is none of its properties", () => {
  expect(wrong({ required: ["constructor"] }, {})).toBeString();
  expect(wrong({ properties: { toString: { type: "string" } } }, {})).toBeUndefined();
  expect(wrong({ additionalProperties: false }, JSON.parse('{"__proto__":1}'))).toBeString();
});

test("a value that costs more than an honest one is given up in time", () => {
  const either = (kind: string) => ({
    type: "object",
    properties: { next: { $ref: "#/$defs/node" }, kind: { const: kind } },
    required: ["next"],
  });
  const doubling = { $ref: "#/$defs/node", $defs: { node: { anyOf: [either("a"), either("b"), { type: "number" }] } } };
  const chain = (depth: number, end: unknown): unknown => {
    let value = end;
    for (let level = 0; level < depth; level++) value = { next: value, kind: "a" };
    return value;
  };
  expect(wrong(doubling, chain(10, 1))).toBeUndefined();
  // Two to the sixtieth of steps, without a limit.
  expect(wrong(doubling, chain(60, "x"))).toBe("cannot be checked: it takes too many steps");
  expect(wrong(doubling, chain(200_000, 1))).toBe("cannot be checked: it is nested too deep");
  // A check that was given up leaves nothing behind for the next one.
  const reused = compileSchema(doubling);
  expect(reused.check(chain(60, "x"))).toBe("cannot be checked: it takes too many steps");
  expect(reused.check(chain(10, 1))).toBeUndefined();
  const slow = { type: "array", items: { type: "string", pattern: "^(a+)+$" } };
  const text = `${"a".repeat(40)}b`;
  expect(
    wrong(
      slow,
      Array.from({ length: 1000 }, () => text),
    ),
  ).toBe("cannot be checked: its patterns take too long");
});

test("many unlike items are told apart without comparing each with each", () => {
  const unique = { type: "array", uniqueItems: true };
  const items = Array.from({ length: 80_000 }, (_, index) => ({ index }));
  expect(wrong(unique, items)).toBeUndefined();
  expect(wrong(unique, [...items, { index: 5 }])).toBe("must not have the same item twice");
  expect(
    wrong(unique, [
      { a: 1, b: 2 },
      { b: 2, a: 1 },
    ]),
  ).toBeString();
  expect(wrong(unique, [1, "1", true, null, [1], { 1: 1 }])).toBeUndefined();
  expect(wrong({ uniqueItems: false }, [1, 1])).toBeUndefined();
});

test("a schema is made once for its object", () => {
  const schema = { type: "object" };
  expect(compileSchema(schema)).toBe(compileSchema(schema));
  expect(compileSchema({ type: "object" })).not.toBe(compileSchema(schema));
});
