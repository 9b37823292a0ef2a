import { beforeEach, expect, test } from "bun:test";
import type { Clock } from "../../src/clock/port.ts";
import { TokenAuth } from "../../src/http/auth.ts";
import { Secret } from "../../src/secret.ts";

let nowMs: number;
let auth: TokenAuth;
beforeEach(() => {
  nowMs = 1000;
  auth = new TokenAuth(new Secret("first"), { monotonic: () => nowMs } as Clock);
});

const allows = (token: string): boolean => auth.allows(`Bearer ${token}`);

test("a replaced token is good for 60 s more", () => {
  auth.replace("second");
  expect([allows("first"), allows("second"), allows("third")]).toEqual([true, true, false]);
  nowMs += 59_999;
  expect([allows("first"), allows("second")]).toEqual([true, true]);
  nowMs += 1;
  expect([allows("first"), allows("second")]).toEqual([false, true]);
});

test("a token replaced by itself does not end the time of the one before it, nor begin another", () => {
  auth.replace("second");
  nowMs += 30_000;
  auth.replace("second");
  expect(allows("first")).toBe(true);
  nowMs += 30_000;
  expect([allows("first"), allows("second")]).toEqual([false, true]);
});

test("of two replacements within a minute each old token has its own 60 s", () => {
  auth.replace("second");
  nowMs += 30_000;
  auth.replace("third");
  expect([allows("first"), allows("second"), allows("third")]).toEqual([true, true, true]);
  nowMs += 30_000;
  expect([allows("first"), allows("second"), allows("third")]).toEqual([false, true, true]);
  nowMs += 30_000;
  expect([allows("second"), allows("third")]).toEqual([false, true]);
});

test("what is no bearer header is refused", () => {
  for (const header of [null, "", "Bearer", "first", "Basic first", "Bearer first second", "Bearer first,"]) {
    expect([header, auth.allows(header)]).toEqual([header, false]);
  }
  expect(auth.allows("bearer  first")).toBe(true);
});
