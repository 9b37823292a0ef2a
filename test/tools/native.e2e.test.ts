/** Harnesses that park calls by themselves, and harnesses that can serve no tools. */
import { expect, test } from "bun:test";
import { AskingPod, chunksIn, ERASE, LOOK_UP, PICK, typesOf } from "../support/asking-pod.ts";
import { readMessage } from "../support/read-message.ts";
import { OPEN, type Step } from "../support/scripted-harness.ts";
import { outcomeOf } from "../support/tools-pod.ts";

const START: Step = { chunks: OPEN.chunks.slice(0, 2) };

test.concurrent("a harness that parks by itself ends its turn with its calls, and is handed their answers", async () => {
  await using pod = await AskingPod.start({ clientTools: "native" });
  const parks = [
    { id: "p", name: "pick", input: { from: ["a", "b"] }, message: "Which one?" },
    { id: "e", name: "erase", input: { what: "all" } },
  ];
  const { interrupts, suspension, frames } = await pod.asks({ runId: "r1", steps: [START, { parks }] });
  expect(interrupts).toMatchObject([
    {
      ...{ toolCallId: "p", reason: "dispatchd:client_tool", message: "Which one?" },
      responseSchema: PICK.responseSchema,
      metadata: { toolName: "pick", input: { from: ["a", "b"] }, suspension },
    },
    { toolCallId: "e", reason: "tool_call", metadata: { toolName: "erase", input: { what: "all" } } },
  ]);
  expect(typesOf(frames, "p")).toEqual(["tool-input-available"]);
  expect((await readMessage(chunksIn(frames))).errors).toEqual([]);
  expect(pod.callbacks).toEqual([]);

  const [p, e] = interrupts;
  const answers = [
    { interruptId: p?.id, status: "resolved", payload: { picked: "b" } },
    { interruptId: e?.id, status: "resolved", payload: { approved: true } },
  ];
  const resumed = await pod.turn({ runId: "r2", input: { answers, suspension } });
  expect(outcomeOf(resumed)?.type).toBe("finished");
  expect(chunksIn(resumed, "data-answers")).toMatchObject([
    {
      data: [
        { toolCallId: "p", input: { from: ["a", "b"] }, status: "resolved", text: '{"picked":"b"}', isError: false },
        { toolCallId: "e", text: "done", isError: false },
      ],
    },
  ]);
  expect(pod.callbacks.map(({ body }) => body.arguments)).toEqual([{ what: "all" }]);
  expect((await readMessage(chunksIn(resumed))).errors).toEqual([]);
});

test.concurrent("a harness that parks what it cannot park has failed", async () => {
  await using pod = await AskingPod.start({ clientTools: "native" });
  const park = { toolCallId: "x", toolName: "pick", input: {} };
  const steps: Step[] = [START, { json: { chunks: [], outcome: { type: "interrupt", interrupts: [park] } } }];
  expect(outcomeOf(await pod.turn({ runId: "unannounced", steps }))).toMatchObject({
    ...{ type: "failed", error: { code: "turn_failed" } },
  });
  const none: Step[] = [START, { json: { chunks: [], outcome: { type: "interrupt" } } }];
  expect(outcomeOf(await pod.turn({ runId: "none", steps: none }))).toMatchObject({ type: "failed" });
});

test.concurrent("a run whose tools its harness cannot serve is refused by their names, one without tools is not", async () => {
  await using pod = await AskingPod.start({ clientTools: "none" });
  const refused = await pod.dispatch({ runId: "r1", steps: [START], input: { tools: [PICK, LOOK_UP, ERASE] } });
  expect(refused.status).toBe(400);
  expect(await refused.json()).toEqual({
    error: "bad_input",
    detail: "input.tools: the harness command cannot serve tools: pick, look_up, erase",
  });
  expect((await pod.daemon.fetch("/runs/r1")).status).toBe(404);
  expect(outcomeOf(await pod.turn({ runId: "r1", steps: [START], input: { tools: [] } }))?.type).toBe("finished");
  expect(await pod.daemon.starts()).toEqual(["r1#1"]);
});
