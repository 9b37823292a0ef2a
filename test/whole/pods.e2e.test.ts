/** The conversation outlives the pod: real Claude Code turns on pods that share nothing but the org volume. */
import { afterEach, beforeEach, expect, test } from "bun:test";
import { randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually, framesOf, TestDaemon } from "../support/daemon.ts";
import { type ScriptedModel, says, startScriptedModel, userTexts } from "../support/scripted-model/index.ts";
import { Sidecar } from "../support/sidecar.ts";

let model: ScriptedModel;
let sidecar: Sidecar;
let folder: string;

beforeEach(async () => {
  model = await startScriptedModel();
  sidecar = await Sidecar.start();
  folder = await mkdtemp(join(tmpdir(), "dispatchd-pods-"));
});
afterEach(async () => {
  await sidecar[Symbol.asyncDispose]();
  await model.stop();
  await rm(folder, { recursive: true, force: true });
});

function pod(env: Record<string, string> = {}): Promise<TestDaemon> {
  return TestDaemon.start({
    harness: null,
    env: {
      IS_SANDBOX: "1",
      CHECKPOINT_MS: "300",
      ORG_WRITE_BACK_MS: "100",
      ...sidecar.env,
      // Of its own: pods share the volume and nothing else.
      STATE_DIR: join(folder, randomUUID()),
      ...env,
    },
  });
}

const input = (userMessage: string, more: Record<string, unknown> = {}): Record<string, unknown> => ({
  userMessage,
  env: { ANTHROPIC_BASE_URL: model.url, ANTHROPIC_API_KEY: "sk-scripted-model-key" },
  ...more,
});

const lastAsked = (): string[] => {
  const request = model.requests.filter(({ kind }) => kind === "main").at(-1);
  return request ? userTexts(request) : [];
};

test("a follow-up on a pod that never saw the thread has the whole conversation", async () => {
  await sidecar.provide("home");
  await using first = await pod();
  model.push(says("I have understood."));
  const frames = await first.run({ runId: "r1", threadId: "t/1", input: input("Remember the word heron.") });
  expect(frames[0]?.preparation).toMatchObject({ home: "ready", session: "fresh" });
  expect(frames.at(-1)?.settled).toMatchObject({ saved: true });
  await first.stop("SIGKILL");

  await using second = await pod();
  model.push(says("Heron."));
  const next = await second.run({ runId: "r2", threadId: "t/1", input: input("Which word?") });
  expect(next[0]?.preparation?.session).toBe("restored");
  expect(lastAsked()).toEqual(["Remember the word heron.", "Which word?"]);
});

test("a pod that is killed in mid-turn costs what came after the last checkpoint", async () => {
  await sidecar.provide("home");
  await using first = await pod();
  model.push(says("A slow answer. ".repeat(200), { betweenDeltasMs: 30 }));
  const response = await first.dispatch({ runId: "r1", threadId: "t", input: input("Remember the word heron.") });
  const reading = (async () => {
    for await (const frame of framesOf(response)) if (frame.done) break;
  })().catch(() => {}); // The pod dies under it.
  await first.event("session saved");
  await first.stop("SIGKILL");
  await reading;

  await using second = await pod();
  model.push(says("Heron."));
  const next = await second.run({ runId: "r2", threadId: "t", input: input("Go on.", { resume: { reason: "gone" } }) });
  expect(next[0]?.preparation?.session).toBe("restored");
  expect(lastAsked().join("\n")).toContain("Remember the word heron.");
});

test("a volume that hangs costs a save, and the next run is not slowed", async () => {
  const home = await sidecar.mount("home");
  await using daemon = await pod({ SESSION_IO_BUDGET_MS: "1500", ORG_READY_BUDGET_MS: "1000" });
  model.push(says("One."), says("Two."), says("Three."));
  await daemon.run({ runId: "r1", threadId: "t", input: input("First.") });
  await home.hold();
  const held = await daemon.run({ runId: "r2", threadId: "t", input: input("Second.") });
  expect(held[0]?.preparation?.session).toBe("stale-session");
  expect(held.at(-2)?.outcome?.type).toBe("finished");
  expect(held.at(-1)?.settled?.saved).toBe(false);
  expect((await daemon.fetch("/health")).status).toBe(200);
  await home.release();
  await eventually(async () => {
    const frames = await daemon.run({ runId: crypto.randomUUID(), threadId: "t", input: input("Third.") });
    return frames.at(-1)?.settled?.saved === true;
  });
  expect(lastAsked().slice(0, 2)).toEqual(["First.", "Second."]);
}, 30_000);
