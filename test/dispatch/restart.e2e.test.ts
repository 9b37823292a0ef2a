/** A daemon that comes back on a state folder closes what its predecessor left, and nothing else. */
import { expect, test } from "bun:test";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { appendFile, mkdir, readdir, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileNameOf } from "../../src/disk.ts";
import type { Frame } from "../../src/frames/frame.ts";
import { MARKER_ENV } from "../../src/process/port.ts";
import { BINARY, eventually, parseFrames, TestDaemon } from "../support/daemon.ts";
import { Follower } from "../support/follow.ts";
import { highWaterKib } from "../support/measure.ts";
import { readMessage } from "../support/read-message.ts";
import type { Step } from "../support/scripted-harness.ts";
import { CLOSE, FINISHED, OPEN } from "../support/scripted-harness.ts";
import { alone, follow, HELD, preparing, running, settling } from "./run-states.ts";

const TOOL = { type: "tool-input-start", toolCallId: "c", toolName: "bash", dynamic: true };
const HALF_A_TURN: Step[] = [OPEN, { deltas: 3, numbered: true }, { chunks: [TOOL] }];

const runFolder = (daemon: TestDaemon, runId: string): string => join(daemon.stateDir, "own/runs", fileNameOf(runId));

/** True until it has ended, reaped or not: whose child it is now is not the daemon's affair. */
async function isAlive(pid: number): Promise<boolean> {
  const status = await readFile(`/proc/${pid}/status`, "utf8").catch(() => "State: X");
  return !/^State:\s*[ZX]/m.test(status);
}

/** SIGKILL from outside, and a new daemon on the same folders. */
async function restart(daemon: TestDaemon, between: () => Promise<unknown> = async () => {}): Promise<void> {
  expect(await daemon.stop("SIGKILL")).toBe("SIGKILL");
  await between();
  await daemon.launch();
}

async function framesOf(daemon: TestDaemon, runId: string, query = ""): Promise<Frame[]> {
  const response = await daemon.fetch(`/runs/${encodeURIComponent(runId)}/frames${query}`);
  expect(response.status).toBe(200);
  return parseFrames(await response.text());
}

test("a turn that was cut off: the log is closed, the message is whole, and it is not run again", async () => {
  await using daemon = await TestDaemon.start();
  const body = await follow(daemon, { runId: "cut", threadId: "t", steps: [...HALF_A_TURN, { sleepMs: 600_000 }] });
  await body.until(({ frames }) => frames.length === 6);
  await restart(daemon);
  await body.ended;
  expect(body.frames.some(({ done, outcome }) => done || outcome)).toBe(false);

  const frames = await framesOf(daemon, "cut");
  expect(frames.slice(0, 6)).toEqual(body.frames);
  const error = { code: "sandbox_gone", message: expect.any(String), reason: "restarted" } as const;
  expect(frames.slice(6)).toEqual([
    {
      seq: 7,
      chunks: [
        { type: "text-end", id: "t" },
        expect.objectContaining({ type: "tool-output-error", toolCallId: "c" }),
        { type: "finish-step" },
        { type: "abort", reason: "sandbox_gone" },
      ],
      outcome: { type: "failed", error },
    },
    { seq: 8, chunks: [], settled: { saved: false, reason: "restarted" }, error, done: true },
  ]);
  const { message, errors } = await readMessage(frames.flatMap(({ chunks }) => chunks));
  expect(errors).toEqual([]);
  expect(message?.parts).toMatchObject([{}, { type: "text", text: "0 x1 x2 x" }, { state: "output-error" }]);
  expect(await daemon.show("cut")).toMatchObject({ attempt: 1, threadId: "t", state: "ended", lastSeq: 8, error });

  // The table again, for a run of an earlier daemon.
  expect(await framesOf(daemon, "cut", "?after=6")).toEqual(frames.slice(6));
  const replay = await follow(daemon, { runId: "cut", threadId: "t" });
  await replay.ended;
  expect(replay.frames).toEqual(frames);
  const rest = await follow(daemon, { runId: "cut", threadId: "t", after: 6, attempt: 1 });
  await rest.ended;
  expect(rest.frames).toEqual(frames.slice(6));
  expect((await daemon.dispatch({ runId: "cut", threadId: "t", after: 8 })).status).toBe(204);
  for (const [dispatch, status] of [
    [{ runId: "cut", threadId: "elsewhere" }, 409],
    [{ runId: "cut", threadId: "t", attempt: 2 }, 409],
    [{ runId: "never seen", after: 1 }, 404],
  ] as const) {
    expect((await daemon.dispatch(dispatch)).status).toBe(status);
  }
  expect(await daemon.starts()).toEqual(["cut#1"]);
  // The thread goes on.
  expect((await daemon.run({ runId: "next", threadId: "t", steps: [FINISHED] })).at(-1)?.error).toBeUndefined();
});

test("what a line of a million small chunks left open is closed too, in bounded memory", async () => {
  await using daemon = await TestDaemon.start();
  const list = `yes '{},' | head -n 4000000 | tr -d '\\n'`;
  const line: Step = {
    sh: `printf '{"chunks":['; ${list}; printf '{"type":"text-start","id":"late"}]}\\n'`,
    wait: true,
  };
  const body = await follow(daemon, { runId: "cut", steps: [OPEN, line, { deltas: 1 }, { sleepMs: 600_000 }] });
  await body.until(({ frames }) => frames.length === 4);
  await restart(daemon);
  const frames = await framesOf(daemon, "cut");
  expect(frames.at(-2)?.chunks).toContainEqual({ type: "text-end", id: "late" });
  expect(await highWaterKib(daemon.pid)).toBeLessThan(300 << 10);
}, 20_000);

test("in preparation, running and settling at once: each is closed as what it was", async () => {
  await using daemon = await TestDaemon.start({ env: HELD });
  const ended = await daemon.run({ runId: "ended", steps: [OPEN, { exit: 3 }] });
  await preparing(daemon, { runId: "prepares" });
  await running(daemon, { runId: "runs" });
  const finished = await settling(daemon, { runId: "settles" });
  const crashed: Step[] = [
    OPEN,
    { json: { chunks: [], outcome: { type: "failed", error: { code: "turn_failed", message: "no" } } } },
  ];
  const failed = await settling(daemon, { runId: "settles failed", steps: [...crashed, { sleepMs: 600_000 }] });
  const before = await running(daemon, { runId: "again" });
  await running(daemon, { runId: "again" });
  await before.body.ended;
  const listed = ["ended", "before prepares", "prepares", "runs", "settles", "settles failed", "again"];

  await restart(daemon);
  const { runs } = (await (await daemon.fetch("/runs")).json()) as { runs: { runId: string; state: string }[] };
  expect(runs.map(({ runId }) => runId).sort()).toEqual([...listed].sort());
  expect(runs.every(({ state }) => state === "ended")).toBe(true);
  expect(await framesOf(daemon, "ended")).toEqual(ended);
  const lastOf = async (runId: string): Promise<Frame | undefined> => (await framesOf(daemon, runId)).at(-1);
  for (const runId of ["prepares", "runs", "again"]) {
    expect(await lastOf(runId)).toMatchObject({ error: { code: "sandbox_gone", reason: "restarted" }, done: true });
  }
  expect((await framesOf(daemon, "prepares")).map(({ seq }) => seq)).toEqual([1, 2]);
  expect((await framesOf(daemon, "settles")).slice(0, 3)).toEqual(finished.body.frames);
  expect(await lastOf("settles")).toEqual({
    seq: 4,
    chunks: [],
    settled: { saved: false, reason: "restarted" },
    done: true,
  });
  expect((await framesOf(daemon, "settles failed")).slice(0, 3)).toEqual(failed.body.frames);
  expect(await lastOf("settles failed")).toMatchObject({ error: { code: "turn_failed", message: "no" }, done: true });
  expect(await daemon.show("before prepares")).toMatchObject({ error: { code: "superseded" } });
  expect(await daemon.show("again")).toMatchObject({ attempt: 2 });
  expect((await readdir(runFolder(daemon, "again"))).sort()).toEqual(["2.ndjson", "record.json"]);
  const known = runs.length;

  // And once more: what was closed stays as it is.
  const closed = await Promise.all(listed.map((runId) => framesOf(daemon, runId)));
  await restart(daemon);
  expect(await Promise.all(listed.map((runId) => framesOf(daemon, runId)))).toEqual(closed);
  expect((await daemon.event("ready", daemon.log.length - 50)).level).toBe("info");
  expect(((await (await daemon.fetch("/runs")).json()) as { runs: unknown[] }).runs.length).toBe(known);
});

test("leftovers of its runs are killed, strays too, and nobody else", async () => {
  await using daemon = await TestDaemon.start();
  const stray = daemon.path("stray");
  const sh = `setsid sh -c 'trap "" TERM; echo $$ > "${stray}"; exec sleep 600' &`;
  const body = await follow(daemon, {
    runId: "left",
    steps: [{ ignoreTerm: true }, { sh }, OPEN, { sleepMs: 600_000 }],
  });
  await body.until(({ frames }) => frames.length === 2);
  const { pid } = await daemon.event("harness started");
  await eventually(async () => (await readFile(stray, "utf8").catch(() => "")) !== "");
  const strayPid = Number(await readFile(stray, "utf8"));
  // Somebody who has nothing to do with the daemon, and somebody with the marker of another one.
  const bystanders = [{}, { [MARKER_ENV]: `${"0".repeat(32)}:${fileNameOf("left")}-1` }].map((env) =>
    spawn("/bin/sleep", ["600"], { env, stdio: "ignore" }),
  );
  try {
    const from = daemon.log.length;
    expect(await daemon.stop("SIGKILL")).toBe("SIGKILL");
    expect([Number(pid), strayPid].map((id) => existsSync(`/proc/${id}`))).toEqual([true, true]);
    await daemon.launch();
    expect(await daemon.event("ready", from)).toMatchObject({ runs: 1, cutOff: 1, killed: 2 });
    await eventually(async () => !(await isAlive(Number(pid))) && !(await isAlive(strayPid)));
    expect(bystanders.map((child) => child.exitCode ?? child.signalCode)).toEqual([null, null]);
  } finally {
    for (const child of bystanders) child.kill("SIGKILL");
  }
});

test("a torn last line is cut off; readers that have more than is left are told that it ended", async () => {
  await using daemon = await TestDaemon.start();
  const body = await follow(daemon, { runId: "torn", steps: [...HALF_A_TURN, { sleepMs: 600_000 }] });
  await body.until(({ frames }) => frames.length === 6);
  const path = join(runFolder(daemon, "torn"), "1.ndjson");
  await restart(daemon, () => appendFile(path, '{"seq":7,"chunks":[{"type":"text-delta","id":"t","del'));
  const frames = await framesOf(daemon, "torn");
  expect(frames.map(({ seq }) => seq)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
  expect(frames.slice(0, 6)).toEqual(body.frames);
  expect((await readMessage(frames.flatMap(({ chunks }) => chunks))).errors).toEqual([]);
  expect((await daemon.dispatch({ runId: "torn", after: 100 })).status).toBe(204);

  // Cut in the middle of an earlier line, as a lost page would.
  const cut = await follow(daemon, { runId: "cut", steps: [...HALF_A_TURN, { sleepMs: 600_000 }] });
  await cut.until(({ frames: seen }) => seen.length === 6);
  const size = cut.frameLines.slice(0, 4).reduce((sum, line) => sum + Buffer.byteLength(line) + 1, 0) - 5;
  await restart(daemon, () => truncate(join(runFolder(daemon, "cut"), "1.ndjson"), size));
  const left = await framesOf(daemon, "cut");
  expect(left.slice(0, 3)).toEqual(cut.frames.slice(0, 3));
  expect(left.map(({ seq, done }) => [seq, done === true])).toEqual([1, 2, 3, 4, 5].map((seq) => [seq, seq === 5]));
});

test("a folder without a record is no run, and what cannot be read is left alone", async () => {
  await using daemon = await TestDaemon.start();
  await daemon.run({ runId: "whole", steps: [FINISHED] });
  await restart(daemon, async () => {
    await mkdir(runFolder(daemon, "unrecorded"));
    await mkdir(runFolder(daemon, "strange"));
    await writeFile(join(runFolder(daemon, "strange"), "record.json"), '{"runId":');
    await mkdir(join(daemon.stateDir, "agent/runs/left"), { recursive: true });
    await rm(join(runFolder(daemon, "whole"), "1.ndjson"));
    await mkdir(join(runFolder(daemon, "whole"), "1.ndjson"));
  });
  expect(await daemon.event("run not recovered")).toMatchObject({ level: "error" });
  expect(await readdir(join(daemon.stateDir, "agent/runs"))).toEqual([]);
  expect((await daemon.run({ runId: "unrecorded", steps: [FINISHED] })).at(-1)?.done).toBe(true);
});

test("a client that follows across the restart by Last-Event-ID sees every frame once", async () => {
  await using daemon = await TestDaemon.start({ env: { PROXY_PORT: "0" } });
  const body = await follow(daemon, {
    runId: "sse",
    steps: [OPEN, { deltas: 20, numbered: true, everyMs: 5 }, CLOSE, { sleepMs: 600_000 }],
  });
  await body.until(({ frames }) => frames.length > 9);
  await restart(daemon);
  await body.ended;
  const last = body.frames.at(-1)?.seq ?? 0;
  const response = await daemon.fetch("/runs/sse/frames?after=0", {
    headers: { accept: "text/event-stream", "last-event-id": String(last) },
  });
  const ids = [...(await response.text()).matchAll(/^id: (\d+)$/gm)].map(([, id]) => Number(id));
  expect(ids[0]).toBe(last + 1);
  expect(ids).toEqual(ids.map((_, index) => last + 1 + index));
  expect(ids.at(-1)).toBe(Number((await daemon.show("sse")).lastSeq));
});

test("a dispatch that comes before all is closed waits for it, /health does not", async () => {
  await using daemon = await TestDaemon.start();
  const threadId = "early";
  const steps: Step[] = [alone(daemon, threadId), { ignoreTerm: true }, OPEN, { sleepMs: 600_000 }];
  const before = await follow(daemon, { runId: "before", threadId, steps });
  await before.until(({ frames }) => frames.length === 2);
  expect(await daemon.stop("SIGKILL")).toBe("SIGKILL");
  const from = daemon.log.length;
  const launched = daemon.launch();
  daemon.url = String((await daemon.event("listening", from)).url);
  const next = daemon.run({ runId: "next", threadId, steps: [alone(daemon, threadId), FINISHED] });
  const same = daemon.dispatch({ runId: "before", threadId });
  const shown = daemon.show("before");
  expect((await fetch(`${daemon.url}/health`)).status).toBe(200);
  expect((await next).at(-2)).toMatchObject({ outcome: { type: "finished" } });
  const replay = parseFrames(await (await same).text());
  expect(replay.at(-1)).toMatchObject({ error: { reason: "restarted" }, done: true });
  expect(await shown).toMatchObject({ state: "ended", attempt: 1 });
  await launched;
  expect(await readFile(daemon.path("overlaps"), "utf8")).toBe("");
  expect(await daemon.starts()).toEqual(["before#1", "next#1"]);
});

test("an outcome that somebody has read is known after a kill in the same moment, of the newest attempt too", async () => {
  await using daemon = await TestDaemon.start();
  for (let round = 0; round < 4; round++) {
    const runId = `read ${round}`;
    const steps: Step[] = [{ sleepMs: 600_000 }];
    const dispatches = Array.from({ length: 6 }, async () => {
      const response = await daemon.dispatch({ runId, steps });
      return { attempt: Number(response.headers.get("x-run-attempt")), body: new Follower(response) };
    });
    const all = await Promise.all(dispatches);
    const hasOutcome = ({ frames }: Follower): boolean => frames.some(({ outcome }) => outcome);
    await Promise.race(all.map(({ body }) => body.until(hasOutcome)));
    await restart(daemon);
    await Promise.all(all.map(({ body }) => body.ended));
    const shown = await daemon.show(runId);
    for (const { attempt, body } of all) {
      // Nothing was read of an attempt that a later daemon does not know, or that it takes for a newer one's.
      if (body.frames.length > 0) expect(attempt).toBeLessThanOrEqual(Number(shown.attempt));
      const outcome = body.frames.find((frame) => frame.outcome)?.outcome;
      if (outcome && attempt === shown.attempt) expect(shown.outcome).toEqual(outcome);
    }
  }
  await using single = await TestDaemon.start({ env: HELD });
  for (let round = 0; round < 4; round++) {
    const runId = `waits ${round}`;
    const { body } = await preparing(single, { runId });
    void follow(single, { runId: `next ${round}`, threadId: `thread of ${runId}` }).catch(() => {});
    await body.until(({ frames }) => frames.length === 1);
    await restart(single);
    expect(await single.show(runId)).toMatchObject({ attempt: 1, error: { code: "superseded" } });
  }
});

test("a second daemon on a state folder in use refuses to start, and the first one notices nothing", async () => {
  await using daemon = await TestDaemon.start({ env: HELD });
  const { body, go } = await running(daemon, { runId: "mine" });
  const second = spawn(BINARY, ["serve"], { env: daemon.environment(), cwd: daemon.folder });
  let said = "";
  for (const stream of [second.stdout, second.stderr]) stream.on("data", (bytes) => (said += bytes));
  const [code] = await once(second, "close");
  expect([code, said]).toEqual([1, expect.stringContaining(`another daemon uses the state folder ${daemon.stateDir}`)]);
  expect(said).not.toContain("listening");
  const reader = new Follower(await daemon.fetch("/runs/mine/frames"));
  await go();
  await Promise.all([body.ended, reader.ended]);
  expect(body.frames.at(-1)?.error).toBeUndefined();
  expect(reader.frameLines).toEqual(body.frameLines);
});
