import { expect, test } from "bun:test";
import { TestDaemon } from "../support/daemon.ts";
import { CLOSE, FINISHED, OPEN } from "../support/scripted-harness.ts";

test("a run is prepared, streamed, concluded and settled, in this order", async () => {
  await using daemon = await TestDaemon.start();
  const frames = await daemon.run({ runId: "r1", steps: [OPEN, { deltas: 2, numbered: true }, CLOSE, FINISHED] });
  expect(frames.map(({ seq }) => seq)).toEqual(frames.map((_, index) => index + 1));
  expect(frames[0]?.preparation).toMatchObject({ home: "none", skills: "none", session: "fresh" });
  expect(frames.flatMap(({ chunks }) => chunks.map(({ type }) => type))).toEqual([
    "start",
    "start-step",
    "text-start",
    "text-delta",
    "text-delta",
    "text-end",
    "finish-step",
    "finish",
  ]);
  expect(frames.at(-2)).toMatchObject({ outcome: { type: "finished", usage: { outputTokens: 3 } } });
  expect(frames.at(-1)).toEqual({
    seq: frames.length,
    chunks: [],
    settled: { saved: false, reason: "no org volume" },
    done: true,
  });
  expect(await daemon.starts()).toEqual(["r1#1"]);
  expect(await daemon.stop()).toBe(0);
});
