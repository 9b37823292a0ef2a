/** Conversations that go on: resumed, damaged, lost. */
import { expect, test } from "bun:test";
import { appendFileSync, globSync, mkdirSync, readFileSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { HarnessBench } from "../support/claude-code-harness/run-turn.ts";
import { calls, says, userTexts } from "../support/scripted-model/index.ts";

function transcriptOf(bench: HarnessBench, sessionId: string | undefined): string {
  const [found] = globSync(join(bench.configDir, `projects/*/${sessionId}.jsonl`));
  if (!found) throw new Error("there is no transcript");
  return found;
}

const LOST = "Earlier turns of this conversation are not in your memory";

test("a session is resumed by its id, from another folder too, and keeps the id", async () => {
  await using bench = await HarnessBench.open();
  bench.model.push(says("I am the first answer."));
  const first = await bench.run({ input: { userMessage: "The first message." } });
  // The end of the transcript is there when the harness is gone.
  expect(readFileSync(transcriptOf(bench, first.sessionId), "utf8")).toContain("I am the first answer.");

  bench.model.push(says("Second."));
  const second = await bench.run({
    input: { userMessage: "The second message." },
    session: { id: first.sessionId ?? "", state: "local" },
    attempt: 2,
    cwd: bench.runDir,
  });
  expect(second.outcome?.type).toBe("finished");
  expect(second.sessionId).toBe(first.sessionId ?? "");
  expect(second.chunks[0]).toEqual({ type: "start", messageId: "run-1:2" });
  const request = bench.model.requests.at(-1);
  if (!request) throw new Error("the model was not asked");
  expect(userTexts(request)).toEqual(["The first message.", "The second message."]);
  expect(JSON.stringify(request.messages)).toContain("I am the first answer.");
  expect(request.system).not.toContain(LOST);
  // What is told of the usage is this turn's, not the conversation's.
  expect(second.outcome).toMatchObject({ usage: { inputTokens: 12, outputTokens: 7 } });
});

test("a session without its transcript begins anew, and the model is told", async () => {
  await using bench = await HarnessBench.open();
  bench.model.push(says("New."));
  const id = "11111111-1111-4111-8111-111111111111";
  const turn = await bench.run({ session: { id, state: "local" } });
  expect(turn.outcome?.type).toBe("finished");
  expect(turn.sessionId).not.toBe(id);
  expect(turn.stderr).toContain("has no transcript");
  expect(bench.model.requests.at(-1)?.system).toContain(LOST);
});

test("a transcript that Claude Code refuses costs one more start, and the stale id is dropped", async () => {
  await using bench = await HarnessBench.open();
  const id = "22222222-2222-4222-8222-222222222222";
  mkdirSync(join(bench.configDir, "projects/somewhere"), { recursive: true });
  writeFileSync(join(bench.configDir, `projects/somewhere/${id}.jsonl`), "no transcript\n");
  bench.model.push(says("New."));
  const turn = await bench.run({ session: { id, state: "local" } });
  expect(turn.outcome?.type).toBe("finished");
  expect(turn.texts).toEqual(["New."]);
  expect(turn.sessionId).not.toBe(id);
  expect(turn.stderr).toContain("cannot be resumed");
  expect(bench.model.requests.filter((request) => request.kind === "main")).toHaveLength(1);
  expect(bench.model.requests.at(-1)?.system).toContain(LOST);
});

test("a transcript whose last line is cut resumes", async () => {
  await using bench = await HarnessBench.open();
  bench.model.push(says("One."));
  const first = await bench.run({ input: { userMessage: "Before the cut." } });
  const transcript = transcriptOf(bench, first.sessionId);
  appendFileSync(transcript, '{"type":"user","message":{"role":"us');
  bench.model.push(says("Two."));
  const second = await bench.run({ session: { id: first.sessionId ?? "", state: "local" } });
  expect(second.outcome?.type).toBe("finished");
  expect(second.sessionId).toBe(first.sessionId ?? "");
  expect(JSON.stringify(bench.model.requests.at(-1)?.messages)).toContain("Before the cut.");
});

test("a transcript that ends with a call without its result resumes", async () => {
  await using bench = await HarnessBench.open();
  bench.model.push(calls(["Bash", { command: "echo once" }, "toolu_dangling"]), says("Done."));
  const first = await bench.run();
  const transcript = transcriptOf(bench, first.sessionId);
  const text = readFileSync(transcript, "utf8");
  const resultAt = text.split("\n").findIndex((line) => line.includes('"tool_result"'));
  expect(resultAt).toBeGreaterThan(0);
  truncateSync(transcript, Buffer.byteLength(`${text.split("\n").slice(0, resultAt).join("\n")}\n`));
  bench.model.push(says("I see that it was interrupted."));
  const second = await bench.run({ session: { id: first.sessionId ?? "", state: "local" } });
  expect(second.outcome?.type).toBe("finished");
  expect(second.texts).toEqual(["I see that it was interrupted."]);
  expect(JSON.stringify(bench.model.requests.at(-1)?.messages)).toContain("toolu_dangling");
});

test("what is out of date or was cut off is told once, in the turn that it is true for", async () => {
  await using bench = await HarnessBench.open();
  bench.model.push(says("One."), says("Two."), says("Three."));
  const first = await bench.run();
  const session = { id: first.sessionId ?? "" };
  await bench.run({
    session: { ...session, state: "stale-session", reason: "the store could not be read" },
    input: { resume: { reason: "node drained" } },
  });
  await bench.run({ session: { ...session, state: "local" } });
  const [, told, after] = bench.model.requests.filter((request) => request.kind === "main").map((r) => r.system);
  expect(told).toContain("may be out of date (the store could not be read)");
  expect(told).toContain("cut off by infrastructure before it ended (node drained)");
  expect(told).toContain("do not open a second pull request");
  expect(after).not.toContain("may be out of date");
  expect(after).not.toContain("cut off by infrastructure");
});

test("a conversation that simply begins is told nothing about memory", async () => {
  await using bench = await HarnessBench.open();
  bench.model.push(says("Hello."));
  await bench.run();
  expect(bench.model.requests.at(-1)?.system).not.toContain(LOST);
});

test("a turn that was stopped within a background subagent resumes, and answers its own prompt", async () => {
  await using bench = await HarnessBench.open();
  const task = { description: "look", prompt: "Look.", subagent_type: "Explore", run_in_background: true };
  bench.model.push(calls(["Agent", task, "agent-call"]), says("It works in the background."), {
    ...says("Never heard.", { delayMs: 60_000 }),
    to: "subagent",
  });
  const stopped = bench.start({ input: { userMessage: "Begin." } });
  await stopped.seen((line) => line.chunks?.some((chunk) => chunk.type === "text-end") === true);
  stopped.child.kill("SIGTERM");
  const first = await stopped.finished;
  bench.model.setHandler((request) => {
    if (request.kind !== "main") return undefined;
    const latest = userTexts(request).at(-1) ?? "";
    return says(latest.includes("Go on.") ? "I go on." : "About what was left behind.");
  });
  const second = await bench.run({
    input: { userMessage: "Go on." },
    session: { id: first.sessionId ?? "", state: "local" },
  });
  expect(second.outcome?.type).toBe("finished");
  expect(second.texts.at(-1)).toBe("I go on.");
});
