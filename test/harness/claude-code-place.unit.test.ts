/** What putting an answer into a transcript does to the file, and to what the agent may have put beside it. */
import { afterEach, expect, test } from "bun:test";
import { execFileSync } from "node:child_process";
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { placeAnswers } from "../../src/harness/claude-code/place-answers.ts";
import { restorePlan } from "../../src/harness/claude-code/plan-file.ts";
import type { TurnAnswer } from "../../src/harness/port.ts";
import { pauseText } from "../../src/pause-text.ts";

const folders: string[] = [];
afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});

const ID = "11111111-1111-4111-8111-111111111111";
const ANSWER: TurnAnswer = {
  ...{ interruptId: "i", reason: "dispatchd:client_tool", toolCallId: "call-1", toolName: "connect", input: {} },
  ...{ status: "resolved", payload: "yes", text: '"yes"', isError: false },
};

const content = [{ type: "tool_use", id: "call-1", name: "mcp__tools__connect", input: {} }];
const CALL = JSON.stringify({
  ...{ parentUuid: "p", isSidechain: false, type: "assistant", uuid: "call", cwd: "/repo", sessionId: ID },
  message: { id: "msg_1", role: "assistant", content },
});
const paused = [
  { type: "tool_result", tool_use_id: "call-1", content: [{ type: "text", text: pauseText("connect") }] },
];
const PAUSED = JSON.stringify({
  ...{ parentUuid: "call", isSidechain: false, type: "user", uuid: "paused", extra: { kept: true } },
  ...{ message: { role: "user", content: paused }, mcpMeta: { _meta: { "claude/endTurn": true } } },
});

function transcriptOf(text: string): { configDir: string; path: string } {
  const configDir = mkdtempSync(join(tmpdir(), "place-"));
  folders.push(configDir);
  mkdirSync(join(configDir, "projects/-repo"), { recursive: true });
  const path = join(configDir, `projects/-repo/${ID}.jsonl`);
  writeFileSync(path, text);
  return { configDir, path };
}

const place = (configDir: string, answers: readonly TurnAnswer[] = [ANSWER]): Promise<unknown> =>
  placeAnswers({ configDir, id: ID }, answers, undefined);

test("all other lines stay as they are, byte for byte, and so does the file's mode", async () => {
  const before = `{no json\n${JSON.stringify({ long: "x".repeat(3 << 20) })}\n\n${CALL}\n`;
  const after = `{"type":"last-prompt"}\n${JSON.stringify({ long: "y".repeat(3 << 20) })}\n`;
  const { configDir, path } = transcriptOf(`${before}${PAUSED}\n${after}`);
  chmodSync(path, 0o640);
  await place(configDir);
  const text = readFileSync(path, "utf8");
  expect(text.startsWith(before)).toBe(true);
  const [answered = "", ...rest] = text.slice(before.length).split("\n");
  expect(JSON.parse(answered)).toMatchObject({
    extra: { kept: true },
    message: { content: [{ tool_use_id: "call-1", content: [{ type: "text", text: '"yes"' }] }] },
    toolUseResult: [{ type: "text", text: '"yes"' }],
    mcpMeta: { _meta: { "claude/endTurn": true } },
  });
  expect(rest.join("\n").startsWith(after)).toBe(true);
  expect(statSync(path).mode & 0o777).toBe(0o640);
  expect(readdirSync(dirname(path))).toEqual([`${ID}.jsonl`]);
});

test("a result is added on a line of its own behind a line that was cut", async () => {
  const { configDir, path } = transcriptOf(`${CALL}\n{"parentUuid":"call","type":"us`);
  await place(configDir);
  const [, , added = ""] = readFileSync(path, "utf8").split("\n");
  expect(JSON.parse(added)).toMatchObject({
    ...{ parentUuid: "call", type: "user", cwd: "/repo", sessionId: ID, sourceToolAssistantUUID: "call" },
    message: { content: [{ type: "tool_result", tool_use_id: "call-1" }] },
  });
});

test("a tool of the run with the name of Claude Code's own question is answered as any other", async () => {
  const named = (text: string): string => text.replaceAll("connect", "exit_plan_mode");
  const { configDir, path } = transcriptOf(`${named(CALL)}\n${named(PAUSED)}\n`);
  const placed = await place(configDir, [{ ...ANSWER, toolName: "exit_plan_mode" }]);
  expect(placed).not.toHaveProperty("agreed");
  expect(readFileSync(path, "utf8")).toContain('\\"yes\\"');
});

test("a transcript in which nothing waits is not touched", async () => {
  const { configDir, path } = transcriptOf(`${CALL}\n${PAUSED.replace(/\[waiting[^"]*/, "done")}\n`);
  const inode = statSync(path).ino;
  await place(configDir, []);
  expect(statSync(path).ino).toBe(inode);
});

test("what stands in the way of the new file is not followed, and what is no file of the session not read", async () => {
  const { configDir, path } = transcriptOf(`${CALL}\n${PAUSED}\n`);
  const outside = transcriptOf("outside").path;
  symlinkSync(outside, `${path}.tmp`);
  await place(configDir);
  expect(readFileSync(outside, "utf8")).toBe("outside");
  expect(readFileSync(path, "utf8")).toContain('\\"yes\\"');

  const whole = readFileSync(path);
  for (const put of [() => execFileSync("mkfifo", [path]), () => symlinkSync(outside, path), () => mkdirSync(path)]) {
    rmSync(path, { recursive: true });
    put();
    await expect(place(configDir)).rejects.toMatchObject({ code: "stale" });
  }
  rmSync(path, { recursive: true });
  writeFileSync(path, whole);
});

test("a plan is written where it is missing, and never over one, or through a link", async () => {
  const { configDir } = transcriptOf("x");
  const plan = (name: string): TurnAnswer => ({
    ...{ ...ANSWER, toolName: "exit_plan_mode" },
    input: { plan: "# Plan", planFilePath: `/elsewhere/plans/${name}` },
  });
  await restorePlan(configDir, plan("a-plan.md"));
  const path = join(configDir, "plans/a-plan.md");
  expect(readFileSync(path, "utf8")).toBe("# Plan");
  writeFileSync(path, "# Other");
  await restorePlan(configDir, plan("a-plan.md"));
  expect(readFileSync(path, "utf8")).toBe("# Other");
  symlinkSync(join(configDir, "made"), join(configDir, "plans/linked.md"));
  await restorePlan(configDir, plan("linked.md"));
  await restorePlan(configDir, plan(".."));
  expect(readdirSync(configDir).sort()).toEqual(["plans", "projects"]);
});

test("what was approved may come out otherwise when its run begins again: what stands is left, and all else is stale", async () => {
  const approved: TurnAnswer = { ...ANSWER, reason: "tool_call", payload: { approved: true }, text: "done at noon" };
  const { configDir, path } = transcriptOf(`${CALL}\n${PAUSED}\n`);
  await place(configDir, [approved]);
  const placed = readFileSync(path, "utf8");
  expect(placed).toContain("done at noon");
  await place(configDir, [{ ...approved, text: "cannot be reached", isError: true }]);
  expect(readFileSync(path, "utf8")).toBe(placed);
  const denied = { ...approved, payload: { approved: false }, text: '{"denied":true}', isError: true };
  for (const answer of [denied, { ...ANSWER, text: '"no"' }]) {
    await expect(place(configDir, [answer])).rejects.toThrow("the call call-1 was answered otherwise");
  }
  expect(readFileSync(path, "utf8")).toBe(placed);
});
