import { expect, test } from "bun:test";
import { type JsonBounds, JsonRefusal, JsonScanner } from "../../src/frames/json-scanner.ts";

const LOOSE: JsonBounds = { depth: 100, keys: 100, values: 1000 };

function scan(text: string, bounds: Partial<JsonBounds> = {}): JsonScanner {
  const scanner = new JsonScanner(Buffer.from(text), { ...LOOSE, ...bounds });
  scanner.skip();
  scanner.end();
  return scanner;
}

function isTaken(read: () => unknown): boolean {
  try {
    read();
    return true;
  } catch (error) {
    expect(error).toBeInstanceOf(SyntaxError);
    return false;
  }
}

/** Of a fixed sequence: what fails once fails again. */
function chance(): (below: number) => number {
  let state = 7;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

const WORDS =
  '{ } [ ] , : "a" "b\\n" "\\u12aF" "\\u12x" "\\/" "\\x" 1 -0 01 1.5 1e5 - 1. .5 1E+2 true false null nul'.split(" ");
const PIECES = [
  ...WORDS,
  " ",
  "\t",
  "\r",
  "\n",
  '"',
  '"\u0001"',
  "{}",
  "[]",
  '"a":1',
  "\u00e9",
  '"\u00e9"',
  "\\",
  "\ufeff",
];

test("it takes what JSON.parse takes, and nothing else", () => {
  const below = chance();
  let taken = 0;
  for (let round = 0; round < 100_000; round++) {
    const text = Array.from({ length: 1 + below(8) }, () => PIECES[below(PIECES.length)]).join("");
    const expected = isTaken(() => JSON.parse(text));
    if (expected !== isTaken(() => scan(text))) throw new Error(`read otherwise: ${JSON.stringify(text)}`);
    if (expected) taken++;
  }
  expect(taken).toBeGreaterThan(1000);
});

test("members and elements are read one by one, and the rest is passed over", () => {
  const text = '{"a": [1, {"x": [2]}, "t\\n"], "\\u0062": {"c": null}, "c": true, "": -1.5e1}';
  const scanner = new JsonScanner(Buffer.from(text), LOOSE);
  const seen: unknown[] = [];
  scanner.eachMember((key) => {
    if (key === "a") scanner.eachElement(() => void seen.push(scanner.scalar()));
    else if (key === "b") scanner.eachMember((inner) => void seen.push(inner, scanner.scalar()));
    else seen.push(key, scanner.scalar());
  });
  scanner.end();
  expect(seen).toEqual([1, undefined, "t\n", "c", null, "c", true, "", -15]);
  expect(scanner.values).toBe(17);
});

test.each<[string, Partial<JsonBounds>, string]>([
  ['{"a":[{"b":[[1]]}]}', { depth: 4 }, "a.0.b.0: has more than 4 levels of lists and objects"],
  ['{"a":[0,{"b":1,"c":2,"d":3}]}', { keys: 2 }, "a.1: has more than 2 keys"],
  ['{"a":1,"b":2}', { keys: 1 }, "body: has more than 1 keys"],
  ["[1,2,3]", { values: 3 }, "body: has more than 3 keys and values"],
  [`{"${"k".repeat(100)}":[]}`, { depth: 1 }, `${"k".repeat(64)}…: has more than 1 levels of lists and objects`],
])("too much is refused with its place: %s", (text, bounds, message) => {
  expect(() => scan(text, bounds)).toThrow(JsonRefusal);
  expect(() => scan(text, bounds)).toThrow(message);
});
