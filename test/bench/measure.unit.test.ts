import { expect, test } from "bun:test";
import { atLeast, atMost, inTurns, quantile, spreadOf } from "../../bench/measure.ts";
import { formatTable } from "../../bench/table.ts";

test("a spread is the median, the ends and how many", () => {
  expect(spreadOf([5, 1, 3])).toEqual({ median: 3, min: 1, max: 5, count: 3 });
  expect(spreadOf([4, 1, 2, 3]).median).toBe(2.5);
  expect(() => spreadOf([])).toThrow("nothing was measured");
});

test("a quantile lies between its neighbours", () => {
  const hundred = Array.from({ length: 101 }, (_, index) => index);
  expect(quantile(hundred, 0.99)).toBe(99);
  expect(quantile([10, 20], 0.99)).toBeCloseTo(19.9);
});

test("a bar is met on its edge and missed past it, as a ratio, a difference and alone", () => {
  const [product, floor] = [spreadOf([16]), spreadOf([10])];
  expect(atMost("ratio", 1.6, product, floor)).toEqual({ compare: "ratio", value: 1.6, bar: "× ≤ 1.6", met: true });
  expect(atMost("difference", 5, product, floor)).toMatchObject({ value: 6, bar: "+ ≤ 5", met: false });
  expect(atLeast("ratio", 2, product, floor).met).toBe(false);
  expect(atLeast("alone", 16, product).met).toBe(true);
  expect(() => atMost("ratio", 1, product)).toThrow("a ratio needs a floor");
});

test("both sides run once a round, the order changes, and warm-up rounds do not count", async () => {
  const calls: string[] = [];
  const side = (name: string) => async () => calls.push(name);
  const results = await inTurns(3, { floor: side("f"), product: side("p") }, 1);
  expect(calls.join("")).toBe("pffppffp");
  expect(results.floor).toHaveLength(3);
  expect(results.product).toHaveLength(3);
});

test("the table says which bar is missed", () => {
  const [product, floor] = [spreadOf([30, 31, 32]), spreadOf([10])];
  const verdict = atMost("ratio", 1.6, product, floor);
  const table = formatTable([{ bench: "b", name: "what", unit: "ms", product, floor, verdict }]);
  expect(table.split("\n")[1]).toBe("b      what  ms    31.0 (30.0 to 32.0 of 3)  10.0   3.10 ×   × ≤ 1.6  MISSED");
});
