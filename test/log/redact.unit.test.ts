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

test("a key of several lines is known by each of them", () => {
  const redactor = new Redactor();
  redactor.hide(["-----BEGIN KEY-----\r\nMIIEvQIBADANBgkq\r\nshort\r\nhkiG9w0BAQEFAASC\r\n"]);
  expect(redactor.clean("  MIIEvQIBADANBgkq")).toBe("  [secret]");
  expect(redactor.clean("hkiG9w0BAQEFAASC short")).toBe("[secret] short");
});

test("of a secret that is longer than anything that is shown, the beginning is known", () => {
  const redactor = new Redactor();
  const secret = Array.from({ length: 2000 }, (_, index) => `${index}-piece`).join("");
  redactor.hide([secret]);
  const shown = redactor.clean(`key: ${secret.slice(0, 8000)}`);
  expect(shown).toStartWith("key: [secret]");
  // What is left of the cut is less than one piece.
  expect(shown.replaceAll("[secret]", "").length).toBeLessThan("key: ".length + 64);
});

test("megabytes of secrets are no trouble", () => {
  const redactor = new Redactor();
  redactor.hide(["x\n".repeat(500_000), "y".repeat(3_000_000), "(".repeat(3000)]);
  expect(redactor.clean("an ordinary line")).toBe("an ordinary line");
  expect(redactor.clean(`<${"(".repeat(3000)}>`)).toBe("<[secret]>");
});
