import { expect, test } from "bun:test";
import { createLanes } from "../../src/orgfs/lanes.ts";
import { settle } from "../support/manual-clock.ts";

const never = new AbortController().signal;

test("turns of a lane come in order, those of another lane do not wait", async () => {
  const lanes = createLanes();
  const order: string[] = [];
  const first = await lanes.take("a", never);
  const second = lanes.take("a", never).then((pass) => {
    order.push("second");
    return pass;
  });
  const third = lanes.take("a", never).then(() => order.push("third"));
  await lanes.take("b", never);
  order.push("other lane");
  await settle();
  expect(order).toEqual(["other lane"]);
  first?.();
  const pass = await second;
  await settle();
  expect(order).toEqual(["other lane", "second"]);
  pass?.();
  await third;
  expect(order).toEqual(["other lane", "second", "third"]);
});

test("who gives up waiting passes nothing on before its turn would have come", async () => {
  const lanes = createLanes();
  const first = await lanes.take("a", never);
  const controller = new AbortController();
  const second = lanes.take("a", controller.signal);
  let third = false;
  void lanes.take("a", never).then(() => {
    third = true;
  });
  controller.abort();
  expect(await second).toBeUndefined();
  await settle();
  expect(third).toBe(false);
  first?.();
  await settle();
  expect(third).toBe(true);
});
