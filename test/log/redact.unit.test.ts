import { expect, test } from "bun:test";
import { Redactor } from "../../src/log/redact.ts";

test("a hidden value is replaced wherever it stands, until it is given up", () => {
  const redactor = new Redactor();
  expect(redactor.clean("nothing is hidden")).toBe("nothing is hidden");
  const giveUp = redactor.hide(["secret-one", "secret-two"]);
  expect(redactor.clean("secret-one,secret-two,secret-one")).toBe("[secret],[secret],[secret]");
  giveUp();
  giveUp();
  expect(redactor.clean("secret-one")).toBe("secret-one");
});

test("a value that two hide is hidden until both have given it up", () => {
  const redactor = new Redactor();
  const first = redactor.hide(["shared-secret"]);
  const second = redactor.hide(["shared-secret"]);
  first();
  first();
  expect(redactor.clean("shared-secret")).toBe("[secret]");
  second();
  expect(redactor.clean("shared-secret")).toBe("shared-secret");
});

test("of a secret that begins with another one no tail is left", () => {
  const redactor = new Redactor();
  redactor.hide(["abcdefgh", "abcdefgh-and-more"]);
  expect(redactor.clean("abcdefgh-and-more abcdefgh")).toBe("[secret] [secret]");
});

test("a secret is known as it looks within JSON, and its characters mean nothing to the search", () => {
  const redactor = new Redactor();
  const secret = 'a"b\\c\n(.*)+?';
  redactor.hide([secret]);
  expect(redactor.clean(JSON.stringify({ secret }))).toBe('{"secret":"[secret]"}');
  expect(redactor.clean(`<${secret}>`)).toBe("<[secret]>");
  expect(redactor.clean("anything else")).toBe("anything else");
});

test("short values would hide ordinary words, and are not hidden", () => {
  const redactor = new Redactor();
  redactor.hide(["", "1", "1234567"]);
  expect(redactor.clean("1234567 1")).toBe("1234567 1");
});
