import { expect, test } from "bun:test";
import { spawn } from "node:child_process";
import { systemClock } from "../../src/clock/system.ts";
import { readChildOutput } from "../../src/process/child-output.ts";

test("a child that prints without a pause leaves the event loop a turn between two chunks", async () => {
  const child = spawn("/bin/sh", ["-c", "head -c 100000000 /dev/zero"], { stdio: ["ignore", "pipe", "ignore"] });
  if (!child.stdout) throw new Error("no stdout");
  let turns = 0;
  let counting = true;
  const count = (): void => {
    turns++;
    if (counting) setImmediate(count);
  };
  setImmediate(count);
  let bytes = 0;
  let inOneTurn = 0;
  let mostInOneTurn = 0;
  let lastTurn = -1;
  for await (const chunk of readChildOutput(child.stdout, systemClock)) {
    bytes += chunk.byteLength;
    inOneTurn = turns === lastTurn ? inOneTurn + 1 : 1;
    lastTurn = turns;
    mostInOneTurn = Math.max(mostInOneTurn, inOneTurn);
    // As long as the work on it takes: meanwhile the child fills the pipe again.
    const until = performance.now() + 0.5;
    while (performance.now() < until);
  }
  counting = false;
  expect(bytes).toBe(100_000_000);
  expect(mostInOneTurn).toBeLessThanOrEqual(2);
});
