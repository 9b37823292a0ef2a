/** A state disk that is full: the run ends as storage_failed, its reader gets all that was printed, and nothing tears. */
import { expect, test } from "bun:test";
import { appendFile, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Frame } from "../../src/frames/frame.ts";
import { parseFrames, TestDaemon } from "../support/daemon.ts";
import { Follower } from "../support/follow.ts";
import { CLOSE, FINISHED, OPEN, type Step } from "../support/scripted-harness.ts";
import { missingForSmallDisk, SmallDisk } from "../support/small-disk.ts";

const missing = await missingForSmallDisk();
if (missing && process.env.CI === "1") throw new Error(`a full disk cannot be tried: ${missing} is missing`);
const skipped = missing === undefined ? "" : ` (skipped: ${missing} is missing)`;
const onDisk = (name: string, body: (disk: SmallDisk) => Promise<void>): void => {
  test.skipIf(missing !== undefined)(`${name}${skipped}`, async () => {
    await using disk = await SmallDisk.mount(4 << 20);
    await body(disk);
  });
};

const GRACES = { KILL_GRACE_MS: "200", EXIT_GRACE_MS: "200" };
const start = (disk: SmallDisk): Promise<TestDaemon> =>
  TestDaemon.start({ env: { STATE_DIR: join(disk.path, "state"), ...GRACES } });

/** All run logs on the disk, by the name of the file. */
async function logsOn(disk: SmallDisk): Promise<string[]> {
  const runs = join(disk.path, "state/own/runs");
  const logs: string[] = [];
  for (const folder of await readdir(runs)) {
    for (const file of await readdir(join(runs, folder))) {
      if (file.endsWith(".ndjson")) logs.push(await readFile(join(runs, folder, file), "utf8"));
    }
  }
  return logs;
}

function expectStorageFailed(frames: readonly Frame[]): void {
  expect(frames.map(({ seq }) => seq)).toEqual(frames.map((_, index) => index + 1));
  expect(frames.filter(({ outcome }) => outcome)).toHaveLength(1);
  expect(frames.at(-2)?.outcome).toMatchObject({ type: "failed", error: { code: "storage_failed" } });
  expect(frames.at(-1)).toMatchObject({ done: true, error: { code: "storage_failed" } });
}

const WHOLE: Step[] = [OPEN, { deltas: 5, numbered: true }, CLOSE, FINISHED];
const STREAM: Step[] = [OPEN, { deltas: 20_000, numbered: true, text: "x".repeat(300) }, { sleepMs: 60_000 }];

onDisk("a disk that fills up in mid-run", async (disk) => {
  await using daemon = await start(disk);
  await disk.fill(1 << 20);
  const follower = new Follower(await daemon.dispatch({ runId: "r", steps: STREAM }));
  await follower.ended;
  expect(follower.whole).toBe(true);
  const { frames, frameLines } = follower;
  expectStorageFailed(frames);
  // Every frame up to the failure came through, and the message was closed.
  const deltas = frames.flatMap(({ chunks }) => chunks.filter(({ type }) => type === "text-delta"));
  expect(deltas.length).toBeGreaterThan(1000);
  expect(deltas.map(({ delta }) => Number(String(delta).split(" ")[0]))).toEqual(deltas.map((_, index) => index));
  expect(frames.at(-2)?.chunks.map(({ type }) => type)).toEqual(["text-end", "finish-step", "error", "finish"]);
  // What was stored is a beginning of it in whole lines.
  const [stored = ""] = await logsOn(disk);
  expect(stored.endsWith("\n")).toBe(true);
  const storedLines = stored.split("\n").slice(0, -1);
  expect(storedLines).toEqual(frameLines.slice(0, storedLines.length));
  expect(storedLines.length).toBeLessThan(frameLines.length);
  // Who comes late gets the rest from memory.
  for (const after of [0, storedLines.length - 1, storedLines.length, storedLines.length + 1, frames.length - 1]) {
    const text = await (await daemon.fetch(`/runs/r/frames?after=${after}`)).text();
    expect(text.split("\n").filter(Boolean)).toEqual(frameLines.slice(after));
  }
  expect(await daemon.show("r")).toMatchObject({ state: "ended", error: { code: "storage_failed" } });

  // Space comes back, and the next run is whole.
  await disk.free();
  const next = await daemon.run({ runId: "next", threadId: "thread of r", steps: WHOLE });
  expect(next.at(-1)).toMatchObject({ done: true });
  expect(next.at(-2)?.outcome?.type).toBe("finished");

  // After a restart the outcome is the one that was told, at the seqs that it was told with.
  await daemon.stop("SIGKILL");
  await daemon.launch();
  const recovered = await (await daemon.fetch("/runs/r/frames")).text();
  const recoveredLines = recovered.split("\n").filter(Boolean);
  expect(recoveredLines.slice(0, -2)).toEqual(storedLines);
  const last = parseFrames(recoveredLines.slice(-2).join("\n"));
  expect(last).toEqual(frames.slice(-2));
  const after = async (seq: number): Promise<Frame[]> =>
    parseFrames(await (await daemon.fetch(`/runs/r/frames?after=${seq}`)).text());
  expect(await after(storedLines.length)).toEqual(frames.slice(-2));
  expect(await after(frames.length - 2)).toEqual(frames.slice(-2));
  expect(await after(frames.length - 1)).toEqual(frames.slice(-1));
  expect((await daemon.fetch(`/runs/r/frames?after=${frames.length}`)).status).toBe(204);
  const replayed = await (await daemon.fetch("/runs/next/frames")).text();
  expect(parseFrames(replayed)).toEqual(next);
  expect(await daemon.stop()).toBe(0);
});

onDisk("a disk that is full before the run starts", async (disk) => {
  await using daemon = await start(disk);
  await disk.fill();
  for (const runId of ["first", "second"]) {
    const frames = await daemon.run({ runId, steps: WHOLE });
    expectStorageFailed(frames);
    expect(frames.flatMap(({ chunks }) => chunks)).toEqual([]);
  }
  expect(await daemon.starts()).toEqual([]);
  expect((await fetch(`${daemon.url}/health`)).status).toBe(200);
  // A cancel is in force, though it cannot be stored.
  expect((await daemon.cancel("first")).status).toBe(204);
  expect((await daemon.dispatch({ runId: "first", steps: WHOLE })).status).toBe(410);
  await disk.free();
  const frames = await daemon.run({ runId: "third", steps: WHOLE });
  expect(frames.at(-2)?.outcome?.type).toBe("finished");
  expect(daemon.noise).toEqual([]);
  expect(await daemon.stop()).toBe(0);
});

onDisk(
  "a daemon that is started on a full disk answers, closes what was left, and works when there is space",
  async (disk) => {
    await using daemon = await start(disk);
    const follower = new Follower(await daemon.dispatch({ runId: "cut", steps: [OPEN, { sleepMs: 60_000 }] }));
    await daemon.run({ runId: "whole", steps: WHOLE });
    await follower.until(({ frameLines }) => frameLines.length === 2);
    await daemon.stop("SIGKILL");
    // As of a run that ended and was dropped earlier.
    const dropped = { runId: "dropped", threadId: "t", attempt: 1, endedAt: new Date().toISOString(), lastSeq: 3 };
    await appendFile(join(disk.path, "state/own/ended.ndjson"), `\n${JSON.stringify(dropped)}`);
    await disk.fill();
    const from = daemon.log.length;
    await daemon.launch();
    // The harness of the turn that was cut off.
    expect(await daemon.event("ready", from)).toMatchObject({ cutOff: 1, killed: 1 });
    expect((await fetch(`${daemon.url}/health`)).status).toBe(200);
    expect((await daemon.dispatch({ runId: "dropped", threadId: "t" })).status).toBe(410);
    for (let restart = 0; restart < 2; restart++) {
      const frames = parseFrames(await (await daemon.fetch("/runs/cut/frames")).text());
      expect(frames.map(({ seq }) => seq)).toEqual([1, 2, 3, 4]);
      expect(frames[2]).toMatchObject({ outcome: { error: { code: "sandbox_gone", reason: "restarted" } } });
      expect(frames[3]).toMatchObject({ done: true });
      expect(await daemon.show("whole")).toMatchObject({ state: "ended", outcome: { type: "finished" } });
      await daemon.stop("SIGKILL");
      if (restart === 0) await disk.free();
      await daemon.launch();
    }
    const frames = await daemon.run({ runId: "next", threadId: "thread of cut", steps: WHOLE });
    expect(frames.at(-2)?.outcome?.type).toBe("finished");
  },
);

onDisk("a disk that is full while a run settles does not change how it ended", async (disk) => {
  await using daemon = await TestDaemon.start({
    env: { STATE_DIR: join(disk.path, "state"), EXIT_GRACE_MS: "60000", KILL_GRACE_MS: "60000" },
  });
  const go = daemon.path("go");
  const follower = new Follower(await daemon.dispatch({ runId: "r", steps: [...WHOLE, { waitFor: go }] }));
  await follower.until(({ frames }) => frames.at(-1)?.outcome !== undefined);
  await disk.fill();
  // Into what is left of the last block of the file, too.
  await Bun.write(go, "");
  await follower.ended;
  expect(follower.frames.at(-2)?.outcome?.type).toBe("finished");
  expect(follower.frames.at(-1)).toMatchObject({ done: true });
  expect(follower.frames.at(-1)).not.toHaveProperty("error");
  expect(await daemon.show("r")).toMatchObject({ state: "ended", outcome: { type: "finished" } });
  await daemon.stop("SIGKILL");
  await daemon.launch();
  expect(await daemon.show("r")).toMatchObject({ state: "ended", outcome: { type: "finished" } });
});

onDisk("a daemon that cannot write its state folder says so, in a sentence", async (disk) => {
  await disk.fill();
  const failure = await start(disk).then(
    async (daemon) => {
      await daemon[Symbol.asyncDispose]();
      return "it started";
    },
    (error: Error) => error.message,
  );
  expect(failure).toContain("dispatchd: the state folder");
  expect(failure).toContain("ENOSPC");
  expect(failure).not.toContain(" at ");
});
