import { expect, test } from "bun:test";
import { createBreaker } from "../../src/orgfs/breaker.ts";

test("four overdue flights in a row open it, and an answer in between starts the count anew", () => {
  const breaker = createBreaker();
  expect([breaker.overdue(), breaker.overdue(), breaker.overdue()]).toEqual([false, false, false]);
  breaker.answered();
  expect([breaker.overdue(), breaker.overdue(), breaker.overdue(), breaker.state]).toEqual([
    false,
    false,
    false,
    "closed",
  ]);
  expect([breaker.overdue(), breaker.state]).toEqual([true, "open"]);
});

test("a probe that comes back closes it on trial: one more overdue flight opens it again", () => {
  const breaker = createBreaker();
  for (let flight = 0; flight < 4; flight++) breaker.overdue();
  breaker.probing();
  expect(breaker.state).toBe("probing");
  breaker.probed(true);
  expect(breaker.state).toBe("closed");
  expect([breaker.overdue(), breaker.state]).toEqual([true, "open"]);
});

test("a probe that does not come back leaves it open; flights that end late change nothing", () => {
  const breaker = createBreaker();
  for (let flight = 0; flight < 4; flight++) breaker.overdue();
  breaker.probing();
  expect(breaker.overdue()).toBe(false);
  breaker.answered();
  breaker.probed(false);
  expect(breaker.state).toBe("open");
});

test("after a trial that went well it takes four again", () => {
  const breaker = createBreaker();
  for (let flight = 0; flight < 4; flight++) breaker.overdue();
  breaker.probing();
  breaker.probed(true);
  breaker.answered();
  expect([breaker.overdue(), breaker.overdue(), breaker.overdue(), breaker.state]).toEqual([
    false,
    false,
    false,
    "closed",
  ]);
});
