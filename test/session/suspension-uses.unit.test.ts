/** A suspension is good for one run: on its pod, on another one, with an org volume and without. */
import { expect, test } from "bun:test";
import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { systemClock } from "../../src/clock/system.ts";
import { parseHead } from "../../src/session/save-head.ts";
import { liveUses, MAX_USES, mergeUses, otherUser, parseUses } from "../../src/session/suspension-uses.ts";
import { createUsedSuspensions } from "../../src/session/used-suspensions.ts";
import { DiskPod, Overdue, Volume } from "./pod-disk.ts";

const HOUR_S = 3600;
const later = (): number => Math.floor(Date.now() / 1000) + HOUR_S;
const options = () => ({ exp: later(), deadlineMs: 5000 });
const SAVED = { type: "claimed", again: false, durable: "volume" } as const;

test("uses: each once, the last to expire kept, what is none of them passed over", () => {
  const use = (n: number) => ({ id: `s${n}`, run: "r", exp: n });
  const many = Array.from({ length: MAX_USES + 5 }, (_, n) => use(n));
  const merged = mergeUses(many.slice(0, 600), many.slice(400));
  expect(merged.length).toBe(MAX_USES);
  expect(Math.min(...merged.map(({ exp }) => exp))).toBe(5);
  expect(liveUses([use(0), use(10_000)], 9_000_000)).toEqual([use(10_000)]);
  // Past its expiry by less than clocks may differ.
  expect(liveUses([use(10_000)], 10_060_000)).toEqual([use(10_000)]);
  expect(otherUser([use(1), { ...use(1), run: "q" }], use(1))).toBe("q");
  expect(otherUser([use(1)], use(1))).toBeUndefined();
  const junk = [null, 1, {}, { ...use(1), id: "x".repeat(65) }, { ...use(1), exp: "soon" }, { ...use(1), run: "" }];
  expect(parseUses([...junk, { ...use(2), more: true }])).toEqual([use(2)]);
  expect(parseUses("no list")).toEqual([]);
});

test("a head with uses that are none is read as without, and one without the field too", () => {
  const head = { thread: "t", session: "s", harness: "h", line: [], saves: [], files: [] };
  expect(parseHead(JSON.stringify(head))).toEqual(head);
  expect(parseHead(JSON.stringify({ ...head, used: { id: 1 } }))).toEqual(head);
  const used = [{ id: "x", run: "r", exp: 1 }];
  expect(parseHead(JSON.stringify({ ...head, used }))).toEqual({ ...head, used });
});

test("without an org volume the pod knows, over a restart; the same run may go on", async () => {
  await using pod = await DiskPod.create(null);
  const run = await pod.begin("thread");
  const claimed = { type: "claimed", again: false, durable: "pod", reason: "no org volume" } as const;
  expect(await run.claimSuspension("one", "r1", options())).toEqual(claimed);
  expect(await run.claimSuspension("one", "r1", options())).toEqual({ ...claimed, again: true });
  expect(await run.claimSuspension("one", "r2", options())).toEqual({ type: "used", by: "r1" });
  expect(await run.claimSuspension("two", "r2", options())).toEqual(claimed);
  const other = await pod.begin("another thread");
  expect(await other.claimSuspension("one", "r3", options())).toEqual(claimed);

  const restarted = createUsedSuspensions(join(pod.folder, "threads"), systemClock);
  expect(await restarted.reserve("thread", { id: "one", run: "r9", exp: later() })).toBe("r1");
});

test("a harness that keeps no session files has its uses on the pod", async () => {
  await using volume = await Volume.create();
  await using pod = await DiskPod.create(volume);
  for (const resume of [true, false]) {
    const harness = { ...pod.harness, capabilities: { resume, clientTools: "none", sessionFiles: null } as const };
    const order = { threadId: `t${resume}`, runId: "r1", harness, input: {} };
    const run = await pod.sessions.begin(order, new AbortController().signal);
    const reason = "the harness keeps no session files";
    expect(await run.claimSuspension("one", "r1", options())).toEqual({
      type: "claimed",
      again: false,
      durable: "pod",
      reason,
    });
    expect(await run.claimSuspension("one", "r2", options())).toEqual({ type: "used", by: "r1" });
  }
});

test("of two runs that ask at once one has it", async () => {
  await using pod = await DiskPod.create(null);
  const run = await pod.begin("thread");
  const asked = ["r1", "r2", "r3"].map((id) => run.claimSuspension("one", id, options()));
  const types = (await Promise.all(asked)).map(({ type }) => type).sort();
  expect(types).toEqual(["claimed", "used", "used"]);
});

test("another pod is told which run used it, also after later turns and on a third pod", async () => {
  await using volume = await Volume.create();
  await using first = await DiskPod.create(volume);
  await first.turn("thread", "one\n");
  const run = await first.begin("thread");
  // Nothing is new but the claim.
  expect(await run.claimSuspension("one", "r1", options())).toEqual(SAVED);
  expect(await run.claimSuspension("one", "r1", options())).toEqual({ ...SAVED, again: true });

  await using second = await DiskPod.create(volume);
  const other = await second.begin("thread");
  expect(await other.claimSuspension("one", "r2", options())).toEqual({ type: "used", by: "r1" });
  // Its pod died: the run goes on here.
  expect(await other.claimSuspension("one", "r1", options())).toEqual({ ...SAVED, again: true });
  await second.turn("thread", "two\n");
  await second.turn("thread", "three\n");

  await using third = await DiskPod.create(volume);
  const late = await third.begin("thread");
  expect(await late.claimSuspension("one", "r3", options())).toEqual({ type: "used", by: "r1" });
  expect(await third.read("projects/p/s1.jsonl")).toBe("one\ntwo\nthree\n");
});

test("a use that expired is not carried on", async () => {
  await using volume = await Volume.create();
  await using first = await DiskPod.create(volume);
  await first.turn("thread", "one\n");
  const run = await first.begin("thread");
  await run.claimSuspension("old", "r1", { ...options(), exp: later() - 3 * HOUR_S });
  await run.claimSuspension("new", "r1", options());
  await first.say(run, "s1", "two\n");
  await run.save({ deadlineMs: 5000 });
  await using second = await DiskPod.create(volume);
  const next = await second.begin("thread");
  expect((await next.claimSuspension("new", "r2", options())).type).toBe("used");
  expect((await next.claimSuspension("old", "r2", options())).type).toBe("claimed");
});

test("a claim of another pod that came after the restore is seen by the claim's own listing", async () => {
  for (const fenced of [true, false]) {
    await using volume = await Volume.create();
    await using first = await DiskPod.create(volume);
    await using second = await DiskPod.create(volume);
    await first.turn("thread", "one\n", fenced ? { fence: 1 } : {});
    const [a, b] = [
      await first.begin("thread", fenced ? { fence: 2 } : {}),
      await second.begin("thread", fenced ? { fence: 3 } : {}),
    ];
    // With fences the later run asks first, and then the earlier: its name is below.
    expect(await b.claimSuspension("one", "rb", options())).toEqual(SAVED);
    expect(await a.claimSuspension("one", "ra", options())).toEqual({ type: "used", by: "rb" });
    // What was refused bars nobody: the run that has it may go on on this pod.
    const again = await first.begin("thread", fenced ? { fence: 4 } : {});
    expect((await again.claimSuspension("one", "rb", options())).type).toBe("claimed");
  }
});

test("a use in a save that gave way counts all the same", async () => {
  await using volume = await Volume.create();
  await using first = await DiskPod.create(volume);
  await using second = await DiskPod.create(volume);
  await first.turn("thread", "one\n", { fence: 1 });
  await second.turn("thread", "two\n", { fence: 2 });
  first.mounted = false;
  const blind = await first.begin("thread", { fence: 3 });
  first.mounted = true;
  expect(await blind.claimSuspension("one", "r1", options())).toEqual(SAVED);
  await using third = await DiskPod.create(volume);
  const next = await third.begin("thread", { fence: 4 });
  expect(await third.read("projects/p/s1.jsonl")).toBe("one\ntwo\n");
  expect(await next.claimSuspension("one", "r2", options())).toEqual({ type: "used", by: "r1" });
});

test("a volume that hangs or fails: the claim is the pod's, with the reason, and the next save carries it", async () => {
  for (const [fault, reason] of [
    [new Overdue(), "the org volume did not take the save in time"],
    [Object.assign(new Error("EIO"), { code: "EIO" }), "the save failed: EIO"],
  ] as const) {
    await using volume = await Volume.create();
    await using first = await DiskPod.create(volume);
    await first.turn("thread", "one\n");
    const run = await first.begin("thread");
    const save = first.jobs["session-save"];
    first.jobs["session-save"] = () => Promise.reject(fault);
    expect(await run.claimSuspension("one", "r1", options())).toEqual({
      type: "claimed",
      again: false,
      durable: "pod",
      reason,
    });
    if (save) first.jobs["session-save"] = save;
    expect((await run.claimSuspension("one", "r2", options())).type).toBe("used");
    // Nothing is new in the transcript.
    expect(await run.save({ deadlineMs: 5000 })).toMatchObject({ saved: true });
    await using second = await DiskPod.create(volume);
    expect(await (await second.begin("thread")).claimSuspension("one", "r2", options())).toEqual({
      type: "used",
      by: "r1",
    });
  }
});

test("a claim that the pod's disk does not take is none", async () => {
  await using pod = await DiskPod.create(null);
  const run = await pod.begin("thread");
  await rm(join(pod.folder, "threads"), { recursive: true });
  await expect(run.claimSuspension("one", "r1", options())).rejects.toThrow("ENOENT");
});

test("a record that a crash cut is none, and a sealed store hides the uses", async () => {
  await using volume = await Volume.create();
  const env = { SESSION_KEYS: `k1:${Buffer.alloc(32, 7).toString("base64url")}` };
  await using first = await DiskPod.create(volume, { env });
  await first.turn("thread", "one\n");
  const run = await first.begin("thread");
  expect(await run.claimSuspension("suspension-one", "run-one", options())).toEqual(SAVED);
  for (const entry of await readdir(volume.home, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    expect(await readFile(join(entry.parentPath, entry.name), "latin1")).not.toContain("suspension-one");
  }
  const folder = join(first.folder, "threads");
  const [record = ""] = (await readdir(folder)).filter((name) => name.endsWith(".used.json"));
  await writeFile(join(folder, record), '{"threadId":"thread","used":[{"id"');
  expect(await (await first.begin("thread")).claimSuspension("suspension-one", "r2", options())).toMatchObject({
    type: "used",
  });
  await using second = await DiskPod.create(volume, { env });
  const other = await second.begin("thread");
  expect(await other.claimSuspension("suspension-one", "r2", options())).toEqual({ type: "used", by: "run-one" });
});
