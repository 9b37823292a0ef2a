/** Pods that share a volume and nothing else: what one of them asked another resumes, once, and goes on with. */
import { expect, test } from "bun:test";
import { ASKED_TOOLS, calling, chunksIn, keyOf } from "../support/asking-pod.ts";
import { parseFrames } from "../support/daemon.ts";
import { Follower } from "../support/follow.ts";
import { Pod } from "../support/pod.ts";
import { OPEN, SESSION_FILES, type Step } from "../support/scripted-harness.ts";
import { Sidecar } from "../support/sidecar.ts";
import { outcomeOf, resolved, suspendedOf } from "../support/tools-pod.ts";

const CAPABILITIES = JSON.stringify({ resume: true, clientTools: "shim", sessionFiles: SESSION_FILES });
const ENV = { HARNESS_CAPABILITIES: CAPABILITIES, SUSPENSION_KEYS: keyOf("k1", "a") };
const tools = ASKED_TOOLS.filter(({ name }) => name !== "erase");
const callback = { url: "http://127.0.0.1:1/nobody" };

test("a pod that dies in the midst of a resume leaves it to the same run on another pod, and to no other run", async () => {
  await using sidecar = await Sidecar.start();
  await sidecar.provide("home");
  const threadId = "thread";
  let dispatch: { input: Record<string, unknown> };
  {
    await using first = await Pod.start({ sidecar, env: ENV });
    const [start, ...rest] = calling({ id: "p", name: "pick", input: { from: ["a"] } });
    if (!start) throw new Error("no steps");
    const steps: Step[] = [start, { say: "asked" }, ...rest];
    const asks = await first.daemon.dispatch({ runId: "asks", threadId, steps, input: { tools, callback } });
    const asked = parseFrames(await asks.text());
    expect(asked.at(-1)?.settled?.saved).toBe(true);
    const { interrupts, suspension } = suspendedOf(asked);
    const answers = [resolved(interrupts[0], { picked: "a" })];
    const resumed: Step[] = [OPEN, { showAnswers: true }, { say: "answered" }, { sleepMs: 60_000 }];
    dispatch = { input: { userMessage: undefined, tools, callback, answers, suspension, steps: resumed } };
    const body = new Follower(await first.daemon.dispatch({ runId: "resumes", threadId, ...dispatch }));
    await body.until(({ frames }) => chunksIn(frames, "data-answers").length > 0);
    await first.kill();
    await body.ended;
    expect(outcomeOf(body.frames)).toBeUndefined();
  }
  await using second = await Pod.start({ sidecar, env: ENV });
  const { steps: _, ...input } = dispatch.input;
  const stranger = await second.daemon.run({
    runId: "stranger",
    threadId,
    input: { ...input, userMessage: undefined },
  });
  expect(stranger[0]?.preparation?.session).toBe("restored");
  expect(stranger.at(-1)?.error).toMatchObject({ code: "stale", dead: true });
  expect(stranger.at(-1)?.error?.message).toBe("the suspension was used by the run resumes");
  expect(await second.daemon.starts()).toEqual([]);
  const again = await second.daemon.run({ runId: "resumes", threadId, input: { ...input, userMessage: undefined } });
  expect(again[0]?.preparation?.session).toBe("local");
  expect(outcomeOf(again)?.type).toBe("finished");
  expect(chunksIn(again, "data-answers")).toMatchObject([{ data: [{ toolCallId: "p", text: '{"picked":"a"}' }] }]);
});
