/** What a person is to decide about is shown whole, and none of it looks like ours. */
import { expect, test } from "bun:test";
import { isWholePayload, payloadOf } from "../../src/cli/ask.ts";
import { goOnCommand } from "../../src/cli/go-on-command.ts";
import { marked, visible, visibleJson } from "../../src/cli/visible-text.ts";

test("nothing is hidden: what would not be seen is an escape", () => {
  expect(visible("a\u001b[8mb\u009bc\u202ed\u200be\u2028f\u{e0041}g\r\nh\ti\rj")).toBe(
    "a\\u001b[8mb\\u009bc\\u202ed\\u200be\\u2028f\\udb40\\udc41g\nh    i\\u000dj",
  );
  expect(visible("Grüße 🙂")).toBe("Grüße 🙂");
  expect(visibleJson({ command: "ls\u001b]0;x\u0007\u061c" })).toBe('{\n  "command": "ls\\u001b]0;x\\u0007\\u061c"\n}');
  expect(visibleJson(undefined)).toBe("nothing");
});

test("each line is marked, also where it is folded", () => {
  expect(marked(`one\n${"x".repeat(40)}\n`, 30)).toBe(
    ["  │ one", `  │ ${"x".repeat(25)}`, `  │ ${"x".repeat(15)}`, "  │ ", ""].join("\n"),
  );
  const wide = marked("漢".repeat(20), 25).split("\n");
  expect(wide).toEqual([`  │ ${"漢".repeat(10)}`, `  │ ${"漢".repeat(10)}`, ""]);
});

test.each([
  ["hello", undefined, "hello"],
  ['{"a":1}', undefined, { a: 1 }],
  ["42", undefined, 42],
  ["-0.5", undefined, -0.5],
  ["12345678901234567890", undefined, "12345678901234567890"],
  ["1.10", undefined, "1.10"],
  ["1e999", { type: ["number", "string"] }, "1e999"],
  ["1.10", { type: "number" }, 1.1],
  ["42", { type: "string" }, "42"],
  ['"42"', { type: "string" }, "42"],
  ["42", { type: ["string", "number"] }, 42],
  ["null", { type: ["string", "null"] }, null],
  ["hello", { type: "object" }, undefined],
  ["hello", { properties: {} }, "hello"],
  ["{broken", undefined, undefined],
  ["{broken", { type: "string" }, "{broken"],
  ['"[text]"', undefined, "[text]"],
  ["one\ntwo", undefined, "one\ntwo"],
])("what is typed is JSON or text, as it is wanted: %p for %p", (line, schema, payload) => {
  expect(payloadOf(line, schema)).toEqual(payload);
});

test.each([
  ["{", false],
  ['{\n"a": 1', false],
  ['{\n"a": 1\n}', true],
  ["{\n", true],
  ["[1,", false],
  ["text", true],
  ["", true],
])("%p is all that is to come: %p", (text, whole) => {
  expect(isWholePayload(text)).toBe(whole);
});

test("the command that goes on repeats no secret, and is quoted", () => {
  const options = { tools: "my tools.json", mode: undefined, url: "http://127.0.0.1:9000" };
  const env = ["SECRET=s3cr3t", "NAME"];
  expect(goOnCommand({ runId: "r'1", threadId: "t\u001b[2J", options, env })).toBe(
    "dispatchd run --resume 'r'\\''1' --thread t --tools 'my tools.json' --url http://127.0.0.1:9000 --env SECRET --env NAME",
  );
});
