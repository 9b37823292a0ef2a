/** The main job: real Claude Code turns through the compiled daemon, against the scripted model. */
import { afterEach, beforeEach, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { mkdir, readdir, readFile } from "node:fs/promises";
import { readUIMessageStream, type UIMessage, type UIMessageChunk } from "ai";
import type { Frame } from "../../src/frames/frame.ts";
import { eventually, framesOf, parseFrames, TestDaemon } from "../support/daemon.ts";
import {
  calls,
  type ScriptedModel,
  says,
  startScriptedModel,
  thinks,
  userTexts,
} from "../support/scripted-model/index.ts";

let model: ScriptedModel;
let daemon: TestDaemon;

beforeEach(async () => {
  model = await startScriptedModel();
  daemon = await TestDaemon.start({ harness: null, env: { IS_SANDBOX: "1", KILL_GRACE_MS: "2000" } });
  await mkdir(daemon.path("repo"));
});

afterEach(async () => {
  await daemon[Symbol.asyncDispose]();
  await model.stop();
});

const input = (userMessage: string, more: Record<string, unknown> = {}): Record<string, unknown> => ({
  userMessage,
  env: { ANTHROPIC_BASE_URL: model.url, ANTHROPIC_API_KEY: "sk-scripted-model-key" },
  ...more,
});

/** The message that a reader of these frames is left with; fails when the stream is not accepted. */
async function messageOf(frames: readonly Frame[]): Promise<UIMessage | undefined> {
  const chunks = frames.flatMap((frame) => frame.chunks) as unknown as UIMessageChunk[];
  const stream = new ReadableStream<UIMessageChunk>({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(chunk);
      controller.close();
    },
  });
  let message: UIMessage | undefined;
  const fail = (error: unknown): never => {
    throw error;
  };
  for await (const state of readUIMessageStream({ stream, onError: fail })) message = state;
  return message;
}

const textOf = (message: UIMessage | undefined): string =>
  (message?.parts ?? []).map((part) => (part.type === "text" ? part.text : "")).join("");

/** Ids of the processes that have the daemon's home in their environment, without the daemon itself. */
async function processesOfRuns(): Promise<number[]> {
  const found: number[] = [];
  for (const pid of await readdir("/proc")) {
    if (!/^\d+$/.test(pid) || Number(pid) === daemon.pid) continue;
    const env = await readFile(`/proc/${pid}/environ`, "utf8").catch(() => "");
    if (env.split("\0").includes(`HOME=${daemon.folder}`)) found.push(Number(pid));
  }
  return found;
}

test("a turn streams thoughts, text and tools, and the next one goes on with the conversation", async () => {
  model.push(
    calls(["Bash", { command: "echo from the shell", description: "say" }]),
    thinks("I have seen it.", "The shell said: from the shell."),
  );
  const first = await daemon.run({ runId: "r1", threadId: "t", input: input("Run the shell.") });
  expect(first[0]?.preparation?.session).toBe("fresh");
  const message = await messageOf(first);
  expect(textOf(message)).toBe("The shell said: from the shell.");
  expect(message?.parts.find((part) => part.type === "dynamic-tool")).toMatchObject({
    toolName: "bash",
    state: "output-available",
  });
  expect(message?.parts.find((part) => part.type === "reasoning")).toMatchObject({ text: "I have seen it." });
  expect(first.at(-2)?.outcome).toMatchObject({ type: "finished" });

  model.push(says("You asked for the shell."));
  const second = await daemon.run({ runId: "r2", threadId: "t", input: input("What did I ask?") });
  expect(second[0]?.preparation?.session).toBe("local");
  const asked = model.requests.filter(({ kind }) => kind === "main").at(-1);
  expect(asked && userTexts(asked)).toEqual(["Run the shell.", "What did I ask?"]);

  await daemon.stop("SIGKILL");
  await daemon.launch();
  model.push(says("Still here."));
  const third = await daemon.run({ runId: "r3", threadId: "t", input: input("And after a restart?") });
  expect(third[0]?.preparation?.session).toBe("local");
  expect(textOf(await messageOf(third))).toBe("Still here.");
});

test("a turn that is cancelled in a tool call leaves a whole message, no process, and a session that goes on", async () => {
  const marker = daemon.path("in-the-tool");
  model.push(calls(["Bash", { command: `touch ${marker}; sleep 91`, description: "wait" }]));
  const response = await daemon.dispatch({ runId: "r1", threadId: "t", input: input("Wait.") });
  const text = response.text();
  await eventually(() => existsSync(marker));
  expect((await processesOfRuns()).length).toBeGreaterThan(2);
  expect((await daemon.cancel("r1", "?wait=1")).status).toBe(204);
  expect(await processesOfRuns()).toEqual([]);
  const frames = parseFrames(await text);
  expect(frames.at(-1)).toMatchObject({ done: true, error: { code: "cancelled" } });
  const tool = (await messageOf(frames))?.parts.find((part) => part.type === "dynamic-tool");
  expect(tool).toMatchObject({ state: "output-error" });

  model.push(says("We were interrupted."));
  const next = await daemon.run({
    runId: "r2",
    threadId: "t",
    input: input("Go on.", { resume: { reason: "the pod was lost" } }),
  });
  expect(next[0]?.preparation?.session).toBe("local");
  expect(textOf(await messageOf(next))).toBe("We were interrupted.");
  const asked = model.requests.filter(({ kind }) => kind === "main").at(-1);
  expect(asked && userTexts(asked).join("\n")).toContain("Wait.");
});

test("a daemon that is killed in mid-turn is closed by the next one, and the thread goes on", async () => {
  model.push(says("This answer is a long one, and comes slowly. ".repeat(20), { betweenDeltasMs: 40 }));
  const response = await daemon.dispatch({ runId: "r1", threadId: "t", input: input("Talk.") });
  for await (const frame of framesOf(response)) {
    if (frame.chunks.some(({ type }) => type === "text-delta")) break;
  }
  await daemon.stop("SIGKILL");
  await daemon.launch();
  expect(await processesOfRuns()).toEqual([]);
  const replayed = await daemon.run({ runId: "r1", threadId: "t", input: input("Talk.") });
  expect(replayed.at(-1)).toMatchObject({ done: true, error: { code: "sandbox_gone", reason: "restarted" } });
  expect(textOf(await messageOf(replayed))).toContain("This");

  model.push(says("I was cut off."));
  const next = await daemon.run({ runId: "r2", threadId: "t", input: input("Go on.", { resume: { reason: "gone" } }) });
  expect(textOf(await messageOf(next))).toBe("I was cut off.");
  expect(next[0]?.preparation?.session).toBe("local");
});

test("a daemon that is killed takes its turns along, before another one comes to end them", async () => {
  const marker = daemon.path("in-the-tool");
  model.push(calls(["Bash", { command: `touch ${marker}; sleep 92`, description: "wait" }]));
  const response = await daemon.dispatch({ runId: "r1", threadId: "t", input: input("Wait.") });
  const text = response.text().catch(() => "");
  await eventually(() => existsSync(marker));
  expect((await processesOfRuns()).length).toBeGreaterThan(2);
  await daemon.stop("SIGKILL");
  await text;
  await eventually(async () => (await processesOfRuns()).length === 0);
  await daemon.launch();
});

test("a turn that is dispatched as soon as the outcome is read finds the whole conversation", async () => {
  for (const number of [1, 2, 3]) {
    model.push(says(`Answer ${number}.`));
    const response = await daemon.dispatch({ runId: `r${number}`, threadId: "t", input: input(`Question ${number}.`) });
    for await (const frame of framesOf(response)) if (frame.outcome) break;
  }
  const asked = model.requests.filter(({ kind }) => kind === "main").at(-1);
  expect(asked && userTexts(asked)).toEqual(["Question 1.", "Question 2.", "Question 3."]);
  expect(JSON.stringify(asked?.messages)).toContain("Answer 1.");
  expect(JSON.stringify(asked?.messages)).toContain("Answer 2.");
});

test("a newer dispatch takes the thread over while the model talks", async () => {
  model.push(says("Slow words. ".repeat(100), { betweenDeltasMs: 40 }));
  const first = await daemon.dispatch({ runId: "r1", threadId: "t", input: input("First.") });
  const frames: Frame[] = [];
  const reading = (async () => {
    for await (const frame of framesOf(first)) frames.push(frame);
  })();
  await eventually(() => frames.some((frame) => frame.chunks.some(({ type }) => type === "text-delta")));
  model.push(says("Second answer."));
  const second = await daemon.run({ runId: "r2", threadId: "t", input: input("Second.") });
  await reading;
  expect(frames.at(-1)).toMatchObject({ done: true, error: { code: "superseded" } });
  await messageOf(frames);
  expect(textOf(await messageOf(second))).toBe("Second answer.");
});

test("an error of the model is the run's outcome, with its reason and without the credential", async () => {
  model.setHandler(() => ({ error: { status: 401, message: "no such key: sk-scripted-model-key" } }));
  const frames = await daemon.run({ runId: "r1", input: input("Hello.") });
  expect(frames.at(-1)?.error?.code).toBe("turn_failed");
  expect(JSON.stringify(frames)).not.toContain("sk-scripted-model-key");
  expect(JSON.stringify(daemon.log)).not.toContain("sk-scripted-model-key");
});
