/** One thread has one writer: a dispatch for a thread that is being worked on waits until the earlier run can do nothing more. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { readFile } from "node:fs/promises";
import { eventually, TestDaemon } from "../support/daemon.ts";
import type { Follower } from "../support/follow.ts";
import type { Step } from "../support/scripted-harness.ts";
import { CLOSE, FINISHED, OPEN } from "../support/scripted-harness.ts";
import { alone, follow, HELD, running, settling } from "./run-states.ts";

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await TestDaemon.start({
    env: { ...HELD, KILL_GRACE_MS: "300", TAKEOVER_TIMEOUT_MS: "30000", KEEPALIVE_MS: "50" },
  });
});
afterAll(async () => {
  const overlaps = await readFile(daemon.path("overlaps"), "utf8").catch(() => "");
  await daemon[Symbol.asyncDispose]();
  expect(overlaps).toBe("");
});

const STUBBORN: Step[] = [{ ignoreTerm: true }, OPEN, { deltas: 1 }, { sleepMs: 600_000 }];
const codeOf = (body: Follower): unknown => body.frames.at(-1)?.error?.code;
const outcomesOf = (body: Follower): number => body.frames.filter(({ outcome }) => outcome).length;

test("another run of the thread takes over: it waits for a tree that ignores SIGTERM, and says how long", async () => {
  const threadId = "stubborn";
  const child = daemon.path("child");
  const grandchild: Step = { sh: `trap '' TERM; echo $$ > '${child}'; while :; do sleep 1; done` };
  const first = await running(daemon, {
    runId: "t1",
    threadId,
    steps: [alone(daemon, threadId), grandchild, ...STUBBORN],
  });
  await eventually(async () => (await readFile(child, "utf8").catch(() => "")) !== "");
  const second = await follow(daemon, { runId: "t2", threadId, steps: [alone(daemon, threadId), FINISHED] });
  // Whoever reads the first run knows at once, long before its processes are gone.
  await first.body.until(({ frames }) => frames.some(({ outcome }) => outcome));
  expect(second.frames).toEqual([]);
  expect(await daemon.show("t2")).toMatchObject({ state: "preparing", lastSeq: 0 });
  await Promise.all([first.body.ended, second.ended]);
  expect([codeOf(first.body), outcomesOf(first.body)]).toEqual(["superseded", 1]);
  expect(second.frames[0]?.preparation?.waitedMs).toBeGreaterThanOrEqual(250);
  // Whoever waits for it hears that it lives: the first newline comes with the headers, the others while it waits.
  expect(second.lines.findIndex((text) => text !== "")).toBeGreaterThanOrEqual(3);
  expect(second.frames.at(-2)).toMatchObject({ outcome: { type: "finished" } });
  const pid = (await readFile(child, "utf8")).trim();
  expect(await readFile(`/proc/${pid}/status`, "utf8").catch(() => "gone")).toBe("gone");
  expect(await daemon.event("takeover", 0, ({ run }) => run === "t2")).toMatchObject({ from: "t1" });
});

test("a run that waits and is itself taken over never starts, in a chain of any length", async () => {
  const threadId = "chain";
  const first = await running(daemon, { runId: "c1", threadId, steps: [alone(daemon, threadId), ...STUBBORN] });
  const waiting: Follower[] = [];
  for (const runId of ["c2", "c3", "c4"]) {
    waiting.push(await follow(daemon, { runId, threadId, steps: [alone(daemon, threadId), FINISHED] }));
  }
  await Promise.all([first.body.ended, ...waiting.map(({ ended }) => ended)]);
  expect(waiting.map(codeOf)).toEqual(["superseded", "superseded", undefined]);
  // An outcome and a last frame, and neither `start` nor an end of a message that never began.
  expect(waiting[0]?.frames.map(({ chunks }) => chunks)).toEqual([[], []]);
  expect((await daemon.starts()).filter((start) => start.startsWith("c"))).toEqual(["c1#1", "c4#1"]);
});

test("a settling run is taken over as well: its outcome stays, its settling is cut short", async () => {
  const threadId = "settles";
  const first = await settling(daemon, { runId: "s1", threadId });
  const second = await follow(daemon, { runId: "s2", threadId, steps: [FINISHED] });
  await Promise.all([first.body.ended, second.ended]);
  expect([first.body.frames.at(-1)?.done, codeOf(first.body), outcomesOf(first.body)]).toEqual([true, undefined, 1]);
  expect(await daemon.show("s1")).toMatchObject({ outcome: { type: "finished" } });
  expect(codeOf(second)).toBeUndefined();
});

test("an ended run of the thread holds nobody up and keeps its outcome", async () => {
  const first = await follow(daemon, { runId: "e1", threadId: "ended", steps: [FINISHED] });
  await first.ended;
  const second = await follow(daemon, { runId: "e2", threadId: "ended", steps: [OPEN, CLOSE, FINISHED] });
  await second.ended;
  expect(second.frames[0]?.preparation?.waitedMs).toBeLessThan(250);
  expect(await daemon.show("e1")).toMatchObject({ outcome: { type: "finished" } });
});

test("a run that waits for a takeover is cancelled at once and lets the next one follow", async () => {
  const threadId = "cancelled";
  await running(daemon, { runId: "w1", threadId, steps: [alone(daemon, threadId), ...STUBBORN] });
  const second = await follow(daemon, { runId: "w2", threadId, steps: [FINISHED] });
  expect((await daemon.cancel("w2")).status).toBe(204);
  await second.until(({ frames }) => frames.length === 1);
  expect((await daemon.show("w1")).state).toBe("settling");
  const third = await follow(daemon, { runId: "w3", threadId, steps: [alone(daemon, threadId), FINISHED] });
  await Promise.all([second.ended, third.ended]);
  expect([codeOf(second), codeOf(third)]).toEqual(["cancelled", undefined]);
  expect((await daemon.starts()).filter((start) => start.startsWith("w"))).toEqual(["w1#1", "w3#1"]);
});

test("after TAKEOVER_TIMEOUT_MS it starts all the same, says so, and the conversation is its own", async () => {
  const capabilities = JSON.stringify({ resume: true });
  const env = { KILL_GRACE_MS: "1500", TAKEOVER_TIMEOUT_MS: "100", HARNESS_CAPABILITIES: capabilities };
  await using hasty = await TestDaemon.start({ env });
  const session = (id: string): Step => ({ json: { chunks: [], session: { id } } });
  const steps = [{ ignoreTerm: true } as const, OPEN, session("session-1"), { sleepMs: 600_000 }];
  const first = await running(hasty, { runId: "h1", threadId: "h", steps });
  const second = await follow(hasty, { runId: "h2", threadId: "h", steps: [session("session-2"), FINISHED] });
  await second.ended;
  expect((await hasty.show("h1")).state).toBe("settling");
  expect(codeOf(second)).toBeUndefined();
  const line = await hasty.event("takeover goes on without the earlier run's end");
  expect(line).toMatchObject({ level: "warn", run: "h2", from: "h1" });
  expect(Number(line.waitedMs)).toBeGreaterThanOrEqual(100);
  await first.body.ended;
  expect(codeOf(first.body)).toBe("superseded");

  const document = hasty.path("document");
  await hasty.run({ runId: "h3", threadId: "h", steps: [{ touch: document, document: true }] });
  const { session: resumed } = JSON.parse(await readFile(document, "utf8")) as { session: { id?: string } };
  expect(resumed.id).toBe("session-2");
});

test("threads do not wait for one another", async () => {
  const first = await running(daemon, { runId: "o1", threadId: "one thread", steps: STUBBORN });
  const second = await follow(daemon, { runId: "o2", threadId: "another thread", steps: [FINISHED] });
  await second.ended;
  expect(await daemon.show("o1")).toMatchObject({ state: "running" });
  await daemon.cancel("o1");
  await first.body.ended;
});
