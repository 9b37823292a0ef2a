/** The table "The same runId again": a cell a test, or several. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { readFile } from "node:fs/promises";
import { connect } from "node:net";
import type { Dispatch } from "../support/daemon.ts";
import { eventually, parseFrames, TestDaemon } from "../support/daemon.ts";
import { Follower } from "../support/follow.ts";
import { CLOSE, FINISHED, OPEN } from "../support/scripted-harness.ts";
import { alone, follow, HELD, preparing, running, settling } from "./run-states.ts";

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await TestDaemon.start({ env: { ...HELD, KEEPALIVE_MS: "100" } });
});
afterAll(async () => {
  const seen = await overlaps();
  await daemon.stop("SIGKILL");
  await daemon.launch(); // Ends what is left of the runs.
  await daemon[Symbol.asyncDispose]();
  expect(seen).toBe("");
});

const overlaps = (): Promise<string> => readFile(daemon.path("overlaps"), "utf8").catch(() => "");
const startsOf = async (runId: string): Promise<string[]> =>
  (await daemon.starts()).filter((start) => start.startsWith(`${runId}#`));

async function refusal(dispatch: Dispatch): Promise<Record<string, unknown>> {
  const response = await daemon.dispatch(dispatch);
  return { status: response.status, ...((await response.json()) as object) };
}

/** Attaches, and tells the attempt from the headers. */
async function attach(dispatch: Dispatch): Promise<{ attempt: string | null; body: Follower }> {
  const response = await daemon.dispatch(dispatch);
  expect(response.status).toBe(200);
  return { attempt: response.headers.get("x-run-attempt"), body: new Follower(response) };
}

const seqsOf = (body: Follower): number[] => body.frames.map(({ seq }) => seq);
const codeOf = (body: Follower): unknown => body.frames.findLast(({ error }) => error)?.error?.code;

test("unknown: starts without `after` and with 0, and never with more", async () => {
  expect((await daemon.run({ runId: "u1", steps: [FINISHED] })).at(-1)?.done).toBe(true);
  expect((await daemon.run({ runId: "u2", after: 0, steps: [FINISHED] })).at(-1)?.done).toBe(true);
  for (const known of [{ after: 1 }, { after: 0, attempt: 1 }, { attempt: 2 }]) {
    expect(await refusal({ runId: "u3", ...known })).toMatchObject({ status: 404, error: "unknown_run" });
  }
  expect((await daemon.fetch("/runs/u3")).status).toBe(404);
  expect([await startsOf("u1"), await startsOf("u2"), await startsOf("u3")]).toEqual([["u1#1"], ["u2#1"], []]);
});

test("preparing, its owner there, no `after`: takes over, and the first attempt never starts", async () => {
  const { body, go } = await preparing(daemon, { runId: "p1", steps: [FINISHED] });
  const second = await attach({
    runId: "p1",
    threadId: "thread of p1",
    steps: [alone(daemon, "thread of p1"), FINISHED],
  });
  expect(second.attempt).toBe("2");
  await body.until(({ frames }) => frames.length === 1);
  expect(body.frames[0]).toMatchObject({ seq: 1, outcome: { type: "failed", error: { code: "superseded" } } });
  expect(second.body.frames).toEqual([]);
  await go();
  await Promise.all([body.ended, second.body.ended]);
  expect([codeOf(body), body.frames.at(-1)?.done]).toEqual(["superseded", true]);
  expect(second.body.frames.at(-2)).toMatchObject({ outcome: { type: "finished" } });
  expect(await startsOf("p1")).toEqual(["p1#2"]);
});

test("preparing, `after: 0`: attaches and becomes the owner", async () => {
  const { body, go } = await preparing(daemon, { runId: "p2", steps: [FINISHED] });
  const second = await attach({ runId: "p2", threadId: "thread of p2", after: 0 });
  await body.ended;
  expect([second.attempt, body.whole, body.frames]).toEqual(["1", true, []]);
  expect(await refusal({ runId: "p2", threadId: "thread of p2", after: 1 })).toMatchObject({
    status: 409,
    error: "bad_after",
  });
  await go();
  await second.body.ended;
  expect(seqsOf(second.body)).toEqual([1, 2, 3]);
  expect(await startsOf("p2")).toEqual(["p2#1"]);
});

test("preparing, its owner lost, no `after`: attaches", async () => {
  const left = new AbortController();
  const { go } = await preparing(daemon, { runId: "p3", steps: [FINISHED], signal: left.signal });
  left.abort();
  const second = await attach({ runId: "p3", threadId: "thread of p3" });
  await go();
  await second.body.ended;
  expect([second.attempt, seqsOf(second.body)]).toEqual(["1", [1, 2, 3]]);
  expect(await startsOf("p3")).toEqual(["p3#1"]);
});

test("running, its owner there, no `after`: takes over, and the two never run at a time", async () => {
  const first = await running(daemon, { runId: "r1" });
  const reader = new Follower(await daemon.fetch("/runs/r1/frames"));
  const second = await running(daemon, { runId: "r1" });
  // Readers of the older attempt finish on it.
  await Promise.all([first.body.ended, reader.ended]);
  expect(reader.frameLines).toEqual(first.body.frameLines);
  expect(first.body.frames.at(-2)?.chunks.map(({ type }) => type)).toEqual(["text-end", "finish-step", "abort"]);
  expect(first.body.frames.at(-1)).toMatchObject({ done: true, error: { code: "superseded" } });
  expect(seqsOf(second.body)).toEqual([1, 2, 3]);
  await second.go();
  await second.body.ended;
  expect(second.body.frames.at(-2)).toMatchObject({ outcome: { type: "finished" } });
  expect(await startsOf("r1")).toEqual(["r1#1", "r1#2"]);
  // Routes serve the newest; its frames are there, those of the older one are not.
  expect(await daemon.show("r1")).toMatchObject({ attempt: 2, outcome: { type: "finished" } });
  const old = await daemon.fetch("/runs/r1/frames?attempt=1");
  expect([old.status, await old.json()]).toEqual([409, expect.objectContaining({ error: "superseded", attempt: 2 })]);
  const replay = new Follower(await daemon.fetch("/runs/r1/frames?attempt=2"));
  await replay.ended;
  expect(replay.frameLines).toEqual(second.body.frameLines);
});

test("running, `after: N`: attaches at every N, becomes the owner, the older owner's body ends without done", async () => {
  const { body, go } = await running(daemon, { runId: "r2" });
  let owner = body;
  for (const after of [0, 1, 2, 3]) {
    const { attempt, body: next } = await attach({ runId: "r2", after });
    await owner.ended;
    expect([attempt, owner.whole, owner.frames.some(({ done }) => done)]).toEqual(["1", true, false]);
    await next.until(({ frames }) => frames.length === 3 - after);
    expect(next.frameLines).toEqual(body.frameLines.slice(after));
    owner = next;
  }
  expect(await refusal({ runId: "r2", after: 4 })).toMatchObject({ status: 409, error: "bad_after" });
  await go();
  await owner.ended;
  expect(seqsOf(owner)).toEqual([4, 5, 6, 7]);
  expect(await startsOf("r2")).toEqual(["r2#1"]);
});

test("running, its owner lost, no `after`: attaches after the last frame that the owner was handed", async () => {
  const left = new AbortController();
  const { go } = await running(daemon, { runId: "r3", signal: left.signal });
  left.abort();
  const second = await attach({ runId: "r3" });
  await go();
  await second.body.ended;
  expect([second.attempt, seqsOf(second.body)]).toEqual(["1", [4, 5, 6, 7]]);
  expect(await startsOf("r3")).toEqual(["r3#1"]);
});

test("running, its owner lost but a reader there, no `after`: attaches all the same", async () => {
  const left = new AbortController();
  const { body, go } = await running(daemon, { runId: "r4", signal: left.signal });
  const reader = new Follower(await daemon.fetch("/runs/r4/frames"));
  await reader.until(({ frames }) => frames.length === 3);
  left.abort();
  const second = await attach({ runId: "r4" });
  await go();
  await Promise.all([second.body.ended, reader.ended]);
  expect([second.attempt, seqsOf(second.body)]).toEqual(["1", [4, 5, 6, 7]]);
  expect(reader.frameLines.slice(0, 3)).toEqual(body.frameLines);
});

test("an owner that closed its socket a moment ago is not there any more, whoever is told first", async () => {
  const { go } = await running(daemon, { runId: "r5" });
  await attach({ runId: "r5", after: 0 });
  const dispatched = JSON.stringify({ runId: "r5", after: 0, input: { threadId: "thread of r5", userMessage: "[]" } });
  const head = ["POST /dispatch HTTP/1.1", "Host: x", `Authorization: Bearer ${daemon.token}`];
  for (let round = 0; round < 20; round++) {
    const socket = connect(daemon.port, "127.0.0.1");
    socket.write(`${[...head, `Content-Length: ${dispatched.length}`].join("\r\n")}\r\n\r\n${dispatched}`);
    await new Promise((resolve) => socket.once("data", resolve));
    socket.destroy();
    const left = new AbortController();
    const response = await daemon.dispatch({ runId: "r5", signal: left.signal });
    expect([round, response.headers.get("x-run-attempt")]).toEqual([round, "1"]);
    left.abort();
  }
  await go();
  await eventually(async () => (await daemon.show("r5")).state === "ended");
  expect(await startsOf("r5")).toEqual(["r5#1"]);
});

test("settling: attaches or replays, whoever is there, and nothing changes the outcome", async () => {
  const { body, go } = await settling(daemon, { runId: "s1" });
  const again = await attach({ runId: "s1", steps: [{ exit: 1 }] });
  await again.body.until(({ frames }) => frames.length === 3);
  expect([again.attempt, again.body.frameLines]).toEqual(["1", body.frameLines]);
  const atTheEnd = await attach({ runId: "s1", after: 3 });
  expect(await refusal({ runId: "s1", after: 4 })).toMatchObject({ status: 409, error: "bad_after" });
  const reader = new Follower(await daemon.fetch("/runs/s1/frames?after=2"));
  expect(await daemon.show("s1")).toMatchObject({ state: "settling", outcome: { type: "finished" } });
  await go();
  await Promise.all([body, again.body, atTheEnd.body, reader].map(({ ended }) => ended));
  expect([seqsOf(atTheEnd.body), seqsOf(reader)]).toEqual([[4], [3, 4]]);
  // Nobody was sent away: there was nothing left to own.
  expect([seqsOf(body), seqsOf(again.body)]).toEqual([
    [1, 2, 3, 4],
    [1, 2, 3, 4],
  ]);
  expect(atTheEnd.body.frames[0]).toEqual(expect.objectContaining({ done: true }));
  expect(atTheEnd.body.frames[0]).not.toHaveProperty("error");
  expect(await startsOf("s1")).toEqual(["s1#1"]);
});

test("ended: replays the same bytes from any frame on; at or past the end 204", async () => {
  const body = await follow(daemon, { runId: "e1", steps: [OPEN, { deltas: 3, numbered: true }, CLOSE, { exit: 7 }] });
  await body.ended;
  for (let after = 0; after < body.frames.length; after++) {
    const again = await attach({ runId: "e1", after });
    await again.body.ended;
    expect([again.attempt, again.body.frameLines]).toEqual(["1", body.frameLines.slice(after)]);
  }
  const whole = await attach({ runId: "e1", steps: [FINISHED] });
  await whole.body.ended;
  expect(whole.body.frameLines).toEqual(body.frameLines);
  for (const after of [body.frames.length, body.frames.length + 1, 1_000_000]) {
    expect((await daemon.dispatch({ runId: "e1", after })).status).toBe(204);
  }
  expect(await startsOf("e1")).toEqual(["e1#1"]);
});

test("cancelled: 410 in every form, while its frames can still be read", async () => {
  const { body } = await running(daemon, { runId: "c1", steps: [OPEN, { deltas: 1 }, { sleepMs: 600_000 }] });
  expect((await daemon.cancel("c1", "?wait=1")).status).toBe(204);
  await body.ended;
  for (const after of [undefined, 0, 1, 100]) {
    const dispatch = { runId: "c1", ...(after === undefined ? {} : { after }) };
    expect(await refusal(dispatch)).toMatchObject({ status: 410, error: "tombstoned" });
  }
  const replay = parseFrames(await (await daemon.fetch("/runs/c1/frames")).text());
  expect(replay).toEqual(body.frames);
});

test("another thread with a known run id is a conflict, in every state", async () => {
  const conflict = { status: 409, error: "run_conflict" };
  const other = { threadId: "elsewhere", after: 0 };
  const waits = await preparing(daemon, { runId: "x1", steps: [FINISHED] });
  const runs = await running(daemon, { runId: "x2" });
  const settles = await settling(daemon, { runId: "x3" });
  for (const runId of ["x1", "x2", "x3"]) {
    expect(await refusal({ runId, ...other })).toMatchObject(conflict);
    expect(await refusal({ runId, threadId: "elsewhere" })).toMatchObject(conflict);
  }
  await Promise.all([waits.go(), runs.go(), settles.go()]);
  await Promise.all([waits.body.ended, runs.body.ended, settles.body.ended]);
  expect(await refusal({ runId: "x2", ...other })).toMatchObject(conflict);
  expect(runs.body.frames.at(-2)).toMatchObject({ outcome: { type: "finished" } });
});

test("whatever else the body says is ignored when it attaches", async () => {
  const { go } = await running(daemon, { runId: "i1" });
  const input = {
    harness: { id: "no such harness" },
    env: { A: "b" },
    answers: [{ interruptId: "i", status: "cancelled" }],
    userMessage: "something else",
  };
  const again = await attach({ runId: "i1", after: 3, input });
  await go();
  await again.body.ended;
  expect(again.body.frames.at(-2)).toMatchObject({ outcome: { type: "finished" } });
});

test("`attempt` asks for one: the newest is served, a wrong one is refused and changes nothing", async () => {
  const { body, go } = await running(daemon, { runId: "a1" });
  for (const after of [undefined, 0, 3]) {
    const dispatch = { runId: "a1", attempt: 2, ...(after === undefined ? {} : { after }) };
    expect(await refusal(dispatch)).toMatchObject({ status: 409, error: "superseded", attempt: 1 });
  }
  expect((await daemon.fetch("/runs/a1/frames?attempt=2")).status).toBe(409);
  expect((await daemon.show("a1")).readers).toBe(1);
  const again = await attach({ runId: "a1", attempt: 1, after: 3 });
  await go();
  await Promise.all([again.body.ended, body.ended]);
  expect(again.body.frames.at(-1)?.done).toBe(true);
  expect((await daemon.dispatch({ runId: "a1", attempt: 1, after: 100 })).status).toBe(204);
});

test("two dispatches in the same millisecond: one starts, the other takes over, and never two harnesses", async () => {
  for (let round = 0; round < 8; round++) {
    const runId = `same ${round}`;
    const steps = [alone(daemon, `thread of ${runId}`), FINISHED];
    const pair = await Promise.all([attach({ runId, steps }), attach({ runId, steps })]);
    await Promise.all(pair.map(({ body }) => body.ended));
    const [first, second] = pair.sort((a, b) => Number(a.attempt) - Number(b.attempt));
    const outcome = second?.body.frames.at(-2)?.outcome?.type;
    // The second may come when the first is past its outcome: then it replays.
    if (second?.attempt === "1") expect(second.body.frameLines).toEqual(first?.body.frameLines ?? []);
    else expect([first && codeOf(first.body), second?.attempt]).toEqual(["superseded", "2"]);
    expect([round, outcome]).toEqual([round, "finished"]);
  }
});

test("two dispatches with `after: 0` in the same millisecond: one starts, the other attaches", async () => {
  for (let round = 0; round < 8; round++) {
    const runId = `zero ${round}`;
    const dispatch = { runId, after: 0, steps: [OPEN, { sleepMs: 20 }, CLOSE, FINISHED] };
    const pair = await Promise.all([attach(dispatch), attach(dispatch)]);
    await Promise.all(pair.map(({ body }) => body.ended));
    expect(pair.map(({ attempt }) => attempt)).toEqual(["1", "1"]);
    // The later one is the owner; the body of the earlier one ended without done.
    expect(pair.filter(({ body }) => body.frames.some(({ done }) => done)).length).toBe(1);
    expect(await startsOf(runId)).toEqual([`${runId}#1`]);
  }
});

test("an owner is looked up over IPv4 and IPv6 on a daemon that listens for both", async () => {
  await using both = await TestDaemon.start({ env: { ...HELD, DAEMON_HOST: "::" } });
  for (const host of ["127.0.0.1", "[::1]"]) {
    both.url = `http://${host}:${both.port}`;
    const runId = `over ${host}`;
    const first = await running(both, { runId });
    const left = new AbortController();
    const second = await both.dispatch({ runId, steps: [OPEN, { sleepMs: 600_000 }], signal: left.signal });
    await first.body.ended;
    left.abort();
    const third = await both.dispatch({ runId });
    expect([second, third].map(({ headers }) => headers.get("x-run-attempt"))).toEqual(["2", "2"]);
    expect((await both.cancel(runId, "?wait=1")).status).toBe(204);
  }
});
