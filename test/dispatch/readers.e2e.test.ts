/** Readers that are slow, stuck, many or gone: none of them delays a run or another reader. */
import { expect, test } from "bun:test";
import { eventually, TestDaemon } from "../support/daemon.ts";
import { Follower } from "../support/follow.ts";
import { highWaterKib, residentKib } from "../support/measure.ts";
import { RawReader } from "../support/raw-reader.ts";
import { OPEN, type Step } from "../support/scripted-harness.ts";

/** Frames of 1 KiB, printed at full speed. */
const flood = (mebibytes: number): Step => ({
  sh: `yes '{"chunks":[{"type":"data-x","data":"${"x".repeat(980)}"}]}' | head -n ${mebibytes << 10}`,
  wait: true,
});
const bodyOf = (runId: string, steps: readonly Step[]): string =>
  JSON.stringify({ runId, input: { threadId: runId, userMessage: JSON.stringify(steps) } });

test.concurrent("ten readers at once see the same lines", async () => {
  await using daemon = await TestDaemon.start();
  const go = daemon.path("go");
  const steps: Step[] = [OPEN, { waitFor: go }, { deltas: 5000, numbered: true }];
  const owner = new Follower(await daemon.dispatch({ runId: "r", steps }));
  await owner.until(({ frameLines }) => frameLines.length === 2);
  const readers = await Promise.all(
    Array.from({ length: 10 }, async () => new Follower(await daemon.fetch("/runs/r/frames"))),
  );
  expect((await daemon.show("r")).readers).toBe(11);
  await Bun.write(go, "");
  await Promise.all([owner, ...readers].map(({ ended }) => ended));
  expect(owner.frameLines.length).toBe(5004);
  for (const reader of readers) {
    expect(reader.whole).toBe(true);
    expect(Bun.hash(reader.frameLines.join("\n"))).toBe(Bun.hash(owner.frameLines.join("\n")));
  }
  expect((await daemon.show("r")).readers).toBe(0);
});

test("a reader that stops reading delays nobody, takes no memory, and is lost in the end", async () => {
  await using daemon = await TestDaemon.start({ env: { READER_STALL_MS: "600", KEEPALIVE_MS: "200" } });
  await daemon.run({ runId: "warm", steps: [flood(20)] });
  const before = await residentKib(daemon.pid);
  const go = daemon.path("go");
  const steps = [OPEN, { waitFor: go }, flood(100), { waitFor: daemon.path("end") }];
  const owner = new Follower(await daemon.dispatch({ runId: "r", steps }));
  await owner.until(({ frameLines }) => frameLines.length === 2);
  const stuck = Array.from({ length: 5 }, () => new RawReader(daemon, "/runs/r/frames"));
  await eventually(async () => (await daemon.show("r")).readers === 6);
  await Bun.write(go, "");
  // All of it, while five others take nothing.
  await owner.until(({ frameLines }) => frameLines.length === 2 + (100 << 10));
  expect((await highWaterKib(daemon.pid)) - before).toBeLessThan(96 << 10);
  await eventually(() => daemon.log.filter(({ why }) => why === "stalled").length === 5);
  await eventually(async () => (await daemon.show("r")).readers === 1);
  // What the kernel holds for them can still be read; then the connection ends without the end of the body.
  for (const reader of stuck) reader.read();
  await eventually(() => stuck.every(({ closed }) => closed));
  for (const { received } of stuck) expect(received).toBeLessThan(20 << 20);
  await Bun.write(daemon.path("end"), "");
  await owner.ended;
  expect(JSON.parse(owner.frameLines.at(-1) ?? "")).toMatchObject({ done: true });
}, 30_000);

test("an owner that stops reading is lost too, and its run goes on without it", async () => {
  await using daemon = await TestDaemon.start({ env: { READER_STALL_MS: "500", KEEPALIVE_MS: "200" } });
  const owner = new RawReader(daemon, "/dispatch", bodyOf("r", [OPEN, flood(60), { waitFor: daemon.path("end") }]));
  await daemon.event("reader lost", 0, ({ why }) => why === "stalled");
  expect((await daemon.show("r")).detachedAt).toBeString();
  await Bun.write(daemon.path("end"), "");
  await eventually(async () => (await daemon.show("r")).state === "ended");
  expect(await daemon.show("r")).toMatchObject({ outcome: { type: "finished" }, lastSeq: 4 + (60 << 10) });
  owner.leave("close");
}, 30_000);

test("a reader that takes a little now and then is not lost", async () => {
  await using daemon = await TestDaemon.start({ env: { READER_STALL_MS: "500", KEEPALIVE_MS: "200" } });
  const steps = [OPEN, flood(60), { waitFor: daemon.path("end") }];
  const owner = new Follower(await daemon.dispatch({ runId: "r", steps }));
  // The flood follows at once: they may all come in one piece.
  await owner.until(({ frameLines }) => frameLines.length >= 2);
  const slow = new RawReader(daemon, "/runs/r/frames");
  slow.readSlowly(60);
  // Far longer than the stall time, and never all that waits for it.
  await owner.until(({ frameLines }) => frameLines.length === 2 + (60 << 10));
  const from = slow.received;
  const startedAt = performance.now();
  while (performance.now() - startedAt < 2500) {
    expect((await daemon.show("r")).readers).toBe(2);
    await Bun.sleep(100);
  }
  expect(slow.received).toBeGreaterThan(from);
  expect(slow.received).toBeLessThan(60 << 20);
  expect(daemon.log.filter(({ event }) => event === "reader lost")).toEqual([]);
  await Bun.write(daemon.path("end"), "");
  await owner.ended;
  slow.leave("close");
  await eventually(async () => (await daemon.show("r")).readers === 0);
}, 30_000);

for (const how of ["close", "reset"] as const) {
  test.concurrent(`a socket that is gone without a word (${how}) leaves the run alone`, async () => {
    await using daemon = await TestDaemon.start();
    const go = daemon.path("go");
    const steps: Step[] = [OPEN, { deltas: 50, everyMs: 2 }, { waitFor: go }, { deltas: 50, everyMs: 2 }];
    const owner = new RawReader(daemon, "/dispatch", bodyOf("r", steps));
    owner.read();
    await eventually(() => owner.received > 500);
    owner.leave(how);
    await eventually(async () => (await daemon.show("r")).readers === 0);
    expect(await daemon.show("r")).toMatchObject({ state: "running", attempt: 1 });
    expect((await daemon.show("r")).detachedAt).toBeString();
    await Bun.write(go, "");
    await eventually(async () => (await daemon.show("r")).state === "ended");
    expect(await daemon.show("r")).toMatchObject({ outcome: { type: "finished" }, lastSeq: 104 });
    const late = new Follower(await daemon.fetch("/runs/r/frames"));
    await late.ended;
    expect(late.frames.map(({ seq }) => seq)).toEqual(Array.from({ length: 104 }, (_, index) => index + 1));
    expect(await daemon.starts()).toEqual(["r#1"]);
  });
}

test.concurrent("a run that nobody comes back to is ended, one that somebody comes back to is not", async () => {
  await using daemon = await TestDaemon.start({ env: { DETACH_GRACE_MS: "400", KILL_GRACE_MS: "100" } });
  const steps: Step[] = [OPEN, { sleepMs: 60_000 }];
  for (const runId of ["left", "taken up"]) {
    const owner = new RawReader(daemon, "/dispatch", bodyOf(runId, steps));
    owner.read();
    await eventually(async () => (await daemon.show(runId).catch(() => ({ lastSeq: 0 }))).lastSeq === 2);
    owner.leave("close");
  }
  const reader = new Follower(await daemon.fetch("/runs/taken%20up/frames"));
  await eventually(async () => (await daemon.show("left")).state === "ended");
  expect(await daemon.show("left")).toMatchObject({ error: { code: "sandbox_gone", reason: "detached" } });
  await Bun.sleep(500); // Longer than the grace from when it was left, so that it would have ended.
  expect(await daemon.show("taken up")).toMatchObject({ state: "running", readers: 1 });
  expect(await daemon.show("taken up")).not.toHaveProperty("detachedAt");
  await daemon.cancel("taken up");
  await reader.ended;
});
