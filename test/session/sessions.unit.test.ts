import { expect, test } from "bun:test";
import { lstat, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { systemClock } from "../../src/clock/system.ts";
import { diskStateFile } from "../../src/session/disk-state-file.ts";
import { threadFolders } from "../../src/session/sealing.ts";
import { needsRoot } from "../support/needs-root.ts";
import { DiskPod, Overdue, Volume } from "./pod-disk.ts";

async function allFiles(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .sort();
}

function savedIn({ lines }: DiskPod): number {
  return lines.filter(({ event }) => event === "session saved").length;
}

async function storeText(volume: Volume): Promise<string> {
  const files = await allFiles(volume.home);
  return (await Promise.all(files.map((path) => readFile(path, "latin1")))).join("\n");
}

test("a follow-up on another pod has the whole conversation, side files too", async () => {
  await using volume = await Volume.create();
  await using first = await DiskPod.create(volume);
  const run = await first.begin("thread");
  expect(run.found).toEqual({ state: "fresh" });
  await first.say(run, "s1", "one\n");
  await first.write("projects/p/s1/tool-results/a.txt", "a result");
  const settled = await run.save({ deadlineMs: 5000 });
  expect(settled).toMatchObject({ saved: true });

  await using second = await DiskPod.create(volume);
  const next = await second.begin("thread", { sessionGeneration: settled.generation });
  expect(next.found).toEqual({ id: "s1", state: "restored", generation: settled.generation ?? "" });
  expect(await second.read("projects/p/s1.jsonl")).toBe("one\n");
  expect(await second.read("projects/p/s1/tool-results/a.txt")).toBe("a result");
});

test("a thread that went on elsewhere and comes back: the newer conversation is used, whichever it is", async () => {
  await using volume = await Volume.create();
  await using here = await DiskPod.create(volume);
  await using there = await DiskPod.create(volume);
  await here.turn("thread", "one\n");
  expect((await there.turn("thread", "two\n")).found.state).toBe("restored");
  const back = await here.turn("thread", "three\n");
  expect(back.found.state).toBe("restored");
  expect(await here.read("projects/p/s1.jsonl")).toBe("one\ntwo\nthree\n");
  const again = await here.turn("thread", "four\n");
  expect(again.found.state).toBe("local");
  expect((await there.begin("thread")).found.state).toBe("restored");
  expect(await there.read("projects/p/s1.jsonl")).toBe("one\ntwo\nthree\nfour\n");
});

test("what was said but not saved is kept by the pod that heard it", async () => {
  await using volume = await Volume.create();
  await using pod = await DiskPod.create(volume);
  await pod.turn("thread", "one\n");
  const run = await pod.begin("thread");
  await pod.say(run, "s1", "two\n");
  run.stop();
  const next = await pod.turn("thread", "three\n");
  expect(next.found.state).toBe("local");
  await using other = await DiskPod.create(volume);
  await other.begin("thread");
  expect(await other.read("projects/p/s1.jsonl")).toBe("one\ntwo\nthree\n");
});

const ODD_THREADS = [
  "thrd_X",
  "a.b",
  "with spaces",
  "../../etc/passwd",
  "a/b",
  "a_b",
  "A/B",
  "日本語",
  ".",
  "x".repeat(300),
  "x".repeat(1024),
];

test("thread ids of every kind: saved, found again, never mixed up, never outside the store", async () => {
  await using volume = await Volume.create();
  await using first = await DiskPod.create(volume);
  for (const [n, thread] of ODD_THREADS.entries()) {
    expect((await first.turn(thread, `text ${n}\n`, {}, `s${n}`)).settled.saved).toBe(true);
  }
  for (const path of await allFiles(volume.home)) {
    expect(path.slice(volume.home.length)).toMatch(
      /^\/dispatchd-sessions\/[0-9a-f]{2}\/[0-9a-f]{2}\/[0-9a-f]{40}\/[0-9a-z-]+$/,
    );
  }
  await using second = await DiskPod.create(volume);
  for (const [n, thread] of ODD_THREADS.entries()) {
    expect((await second.begin(thread)).found).toMatchObject({ id: `s${n}`, state: "restored" });
    expect(await second.read(`projects/p/s${n}.jsonl`)).toBe(`text ${n}\n`);
  }
});

test("two threads on one pod: neither store holds a byte of the other, and an id has one thread", async () => {
  await using volume = await Volume.create();
  await using pod = await DiskPod.create(volume);
  const [a, b] = [await pod.begin("a"), await pod.begin("b")];
  await pod.say(a, "sa", "secret of a\n");
  await pod.say(b, "sb", "secret of b\n");
  const [savedA, savedB] = [await a.save({ deadlineMs: 5000 }), await b.save({ deadlineMs: 5000 })];
  expect([savedA.saved, savedB.saved]).toEqual([true, true]);
  const thief = await pod.begin("c", { harness: { sessionId: "sa" } });
  expect(thief.found).toEqual({ state: "fresh", reason: "the session belongs to another thread of this pod" });
  thief.noteSession("sb");
  expect(await thief.save({ deadlineMs: 5000 })).toMatchObject({ saved: false });
  await using other = await DiskPod.create(volume);
  await other.begin("a");
  expect(await allFiles(join(other.configDir))).toEqual([join(other.configDir, "projects/p/sa.jsonl")]);
});

test("a thread whose harness only named another's session does not keep it from that one", async () => {
  await using volume = await Volume.create();
  await using first = await DiskPod.create(volume);
  await first.turn("owner", "one\n", {}, "so");
  await using pod = await DiskPod.create(volume);
  const squatter = await pod.begin("squatter");
  squatter.noteSession("so");
  await squatter.pointerWritten();
  expect((await squatter.save({ deadlineMs: 5000 })).saved).toBe(false);
  const owner = await pod.begin("owner");
  expect(owner.found).toMatchObject({ id: "so", state: "restored" });
  // The file is the owner's now.
  const reason = "the session belongs to another thread of this pod";
  expect(await squatter.save({ deadlineMs: 5000 })).toEqual({ saved: false, reason });
  expect((await pod.begin("squatter")).found).toEqual({ state: "fresh", reason });
  await pod.say(owner, "so", "two\n");
  expect((await owner.save({ deadlineMs: 5000 })).saved).toBe(true);
});

test("a session that a thread saved stays its own, whoever restores one of that id", async () => {
  await using volume = await Volume.create();
  await using first = await DiskPod.create(volume);
  await first.turn("one", "of one\n", {}, "same");
  await using pod = await DiskPod.create(volume);
  await pod.turn("other", "of the other\n", {}, "same");
  const found = (await pod.begin("one")).found;
  expect(found).toEqual({ state: "fresh", reason: "the stored session belongs to another thread of this pod" });
  expect(await pod.read("projects/p/same.jsonl")).toBe("of the other\n");
});

test("a transcript that was there before the run and is nobody's is none that its harness wrote", async () => {
  await using volume = await Volume.create();
  const clock = { ...systemClock, now: () => Date.now() + 10_000 };
  await using pod = await DiskPod.create(volume, { clock });
  await pod.append("projects/p/old.jsonl", "somebody's\n");
  const run = await pod.begin("thread");
  run.noteSession("old");
  const reason = "the session belongs to another thread of this pod";
  expect(await run.save({ deadlineMs: 5000 })).toEqual({ saved: false, reason });
  // The caller may name it: it knows whose it is.
  const named = await pod.begin("its thread", { harness: { sessionId: "old" } });
  expect(named.found).toMatchObject({ id: "old", state: "local" });
  named.noteSession("old");
  expect((await named.save({ deadlineMs: 5000 })).saved).toBe(true);
});

test("a volume that hangs in the restore costs the turn its history, and the conversation comes back", async () => {
  await using volume = await Volume.create();
  await using first = await DiskPod.create(volume);
  await first.turn("thread", "one\n", { fence: 1 });
  await using second = await DiskPod.create(volume);
  const restore = second.jobs["session-restore"];
  second.jobs["session-restore"] = () => Promise.reject(new Overdue());
  const blind = await second.turn("thread", "lost\n", { fence: 2 }, "s2");
  expect(blind.found).toEqual({ state: "fresh", reason: "the org volume did not answer in time" });
  expect(blind.settled.generation).toEndWith("-b");
  if (restore) second.jobs["session-restore"] = restore;
  const next = await second.turn("thread", "two\n", { fence: 3 });
  expect(next.found).toMatchObject({ id: "s1", state: "restored" });
  expect(await second.read("projects/p/s1.jsonl")).toBe("one\ntwo\n");
});

test("a blind run's saves give way to a history that goes on", async () => {
  await using volume = await Volume.create();
  await using first = await DiskPod.create(volume);
  await using second = await DiskPod.create(volume);
  await first.turn("thread", "one\n", { fence: 1 });
  await second.turn("thread", "two\n", { fence: 2 });
  first.mounted = false;
  const run = await first.begin("thread", { fence: 3 });
  expect(run.found).toMatchObject({ id: "s1", state: "stale-session", reason: "the org volume is not mounted" });
  first.mounted = true;
  await first.say(run, "s1", "beside\n");
  expect((await run.save({ deadlineMs: 5000 })).generation).toEndWith("-b");
  await using third = await DiskPod.create(volume);
  // The marked save descends from turn 1, and turn 2 is whole.
  expect((await third.begin("thread", { fence: 4 })).found).toMatchObject({ state: "restored" });
  expect(await third.read("projects/p/s1.jsonl")).toBe("one\ntwo\n");
});

test("a run that began without a listing saves above what is there, and once in its place it stays", async () => {
  for (const [fence, generation] of [
    [undefined, /^0{15}7-0{7}4-.*-000000-b$/],
    [7, /^0{15}7-0{7}4-.*-000000-b$/],
    [8, /^0{15}8-0{7}4-.*-000000-b$/],
  ] as const) {
    await using volume = await Volume.create();
    await using first = await DiskPod.create(volume);
    for (const text of ["one\n", "two\n", "three\n"]) await first.turn("thread", text, { fence: 7 });
    await using second = await DiskPod.create(volume);
    second.mounted = false;
    const run = await second.begin("thread", fence === undefined ? {} : { fence });
    second.mounted = true;
    await second.say(run, "s2", "blind\n");
    const settled = await run.save({ deadlineMs: 5000 });
    expect(settled).toMatchObject({ saved: true, generation: expect.stringMatching(generation) });
    // Another run is above it by now: a place is taken once.
    await first.turn("thread", "four\n", { fence: 9 });
    await second.say(run, "s2", "more\n");
    expect(await run.save({ deadlineMs: 5000 })).toEqual({
      saved: false,
      reason: "a later run has saved the thread",
    });
    await using third = await DiskPod.create(volume);
    expect((await third.begin("thread", { fence: 10 })).found).toMatchObject({ id: "s1", state: "restored" });
    expect(await third.read("projects/p/s1.jsonl")).toBe("one\ntwo\nthree\nfour\n");
  }
});

test("a run that sees the store late ends no run that saw it when it began, and rewinds nothing", async () => {
  await using volume = await Volume.create();
  await using first = await DiskPod.create(volume);
  await first.turn("thread", "one\n");
  await using late = await DiskPod.create(volume);
  late.mounted = false;
  const blind = await late.begin("thread");
  late.mounted = true;
  const run = await first.begin("thread");
  await first.say(run, "s1", "two\n");
  expect(await run.save({ deadlineMs: 5000 })).toMatchObject({ saved: true });
  await late.say(blind, "s2", "blind\n");
  expect(await blind.save({ deadlineMs: 5000 })).toMatchObject({ saved: true });
  await first.say(run, "s1", "three\n");
  expect(await run.save({ deadlineMs: 5000 })).toMatchObject({ saved: true });
  await using third = await DiskPod.create(volume);
  expect((await third.begin("thread")).found).toMatchObject({ id: "s1", state: "restored" });
  expect(await third.read("projects/p/s1.jsonl")).toBe("one\ntwo\nthree\n");
});

test("what has a save's name and is no file is passed over: no run is blind for it, and nothing gives way to it", async () => {
  await using volume = await Volume.create();
  await using first = await DiskPod.create(volume);
  await first.turn("thread", "one\n", { fence: 1 });
  await first.turn("thread", "two\n", { fence: 2 });
  const folder = dirname((await allFiles(volume.home))[0] ?? "");
  const named = (fence: number, mark: string) =>
    join(folder, `${String(fence).padStart(16, "0")}-00000009-${"z".repeat(16)}-000000-${mark}`);
  Bun.spawnSync(["mkfifo", named(7, "s")]);
  await mkdir(named(8, "s"));
  await symlink("/etc/passwd", named(9, "b"));
  for (const create of [() => DiskPod.create(volume), () => Promise.resolve(first)]) {
    const pod = await create();
    const { found, settled } = await pod.turn("thread", "more\n", { fence: 5 });
    expect(["restored", "local"]).toContain(found.state);
    expect(settled).toMatchObject({ saved: true, generation: expect.stringMatching(/-s$/) });
    const rejected = pod.lines.find(({ event }) => event === "saves not taken")?.fields.saves as { reason: string }[];
    expect(rejected.map(({ reason }) => reason)).toEqual(["no file", "no file", "no file"]);
    if (pod !== first) await pod[Symbol.asyncDispose]();
  }
  expect(await first.read("projects/p/s1.jsonl")).toBe("one\ntwo\nmore\nmore\n");
});

test("a segment's file that somebody made a folder of costs what lies in it, for one run", async () => {
  await using volume = await Volume.create();
  await using first = await DiskPod.create(volume);
  const [one] = [await first.turn("thread", `${crypto.randomUUID().repeat(200)}\n`, { fence: 1 })];
  await first.turn("thread", "two\n", { fence: 2 });
  const folder = dirname((await allFiles(volume.home))[0] ?? "");
  const path = join(folder, one.settled.generation ?? "");
  await rm(path);
  await mkdir(path);
  await using second = await DiskPod.create(volume);
  expect((await second.turn("thread", "anew\n", { fence: 3 }, "s2")).found).toMatchObject({
    state: "fresh",
    reason: expect.any(String),
  });
  await using third = await DiskPod.create(volume);
  expect((await third.begin("thread", { fence: 4 })).found).toMatchObject({ state: "restored" });
});

test("a made-up name of a turn or a fence above all others keeps no thread from being saved", async () => {
  const digits = (value: number, width: number) => String(value).padStart(width, "0");
  for (const [fence, turn] of [
    [0, 89_999_999],
    [Number.MAX_SAFE_INTEGER, 1],
  ] as const) {
    await using volume = await Volume.create();
    await using first = await DiskPod.create(volume);
    const { settled } = await first.turn("thread", "one\n", { fence: 1 });
    const folder = dirname((await allFiles(volume.home))[0] ?? "");
    const name = `${digits(fence, 16)}-${digits(turn, 8)}-${"z".repeat(16)}-000000-s`;
    await writeFile(
      join(folder, name),
      await readFile(join(folder, settled.generation ?? "")).then((bytes) => bytes.subarray(0, -1)),
    );
    for (let n = 2; n < 5; n++) {
      await using pod = await DiskPod.create(volume, { env: { SESSION_IO_BUDGET_MS: "600" } });
      const turned = await pod.turn("thread", `${n}\n`, { fence: n });
      expect(turned.settled.saved).toBe(true);
      // Of the name alone it is plain that it is nobody's.
      if (fence === 0) expect(turned.found.state).toBe("restored");
      expect(pod.lines.find(({ event }) => event === "saves not taken")?.fields.saves).toMatchObject([{ name }]);
    }
    await using last = await DiskPod.create(volume, { env: { SESSION_IO_BUDGET_MS: "600" } });
    await last.begin("thread", { fence: 9 });
    expect(await last.read("projects/p/s1.jsonl")).toBe("one\n2\n3\n4\n");
  }
});

test("a save whose flight was lost after it had written counts", async () => {
  await using volume = await Volume.create();
  await using pod = await DiskPod.create(volume);
  const run = await pod.begin("thread");
  await pod.say(run, "s1", "one\n");
  const save = pod.jobs["session-save"];
  pod.jobs["session-save"] = async (input) => {
    await save?.(input);
    throw new Overdue();
  };
  expect(await run.save({ deadlineMs: 5000 })).toMatchObject({ saved: true, generation: expect.any(String) });
});

test("a flight of the run before that writes its state late does not undo the beginning of the next run", async () => {
  await using volume = await Volume.create();
  await using pod = await DiskPod.create(volume);
  const old = await pod.begin("thread");
  await pod.say(old, "s1", "one\n");
  const { state: path } = await capture(pod, () => old.save({ deadlineMs: 5000 }));
  const state = diskStateFile(path);
  const before = await state.read();
  const next = await pod.begin("thread");
  if (before) await state.write(before);
  await pod.say(next, "s1", "two\n");
  expect(await next.save({ deadlineMs: 5000 })).toMatchObject({ saved: true });
  await pod.turn("thread", "three\n");
  await using other = await DiskPod.create(volume);
  await other.begin("thread");
  expect(await other.read("projects/p/s1.jsonl")).toBe("one\ntwo\nthree\n");
});

/** What the save job of `work` was given. */
async function capture(pod: DiskPod, work: () => Promise<unknown>): Promise<{ state: string }> {
  const save = pod.jobs["session-save"];
  const inputs: { state: string }[] = [];
  pod.jobs["session-save"] = (input) => {
    inputs.push(input);
    return save?.(input) ?? Promise.resolve();
  };
  await work();
  if (save) pod.jobs["session-save"] = save;
  return inputs[0] ?? { state: "" };
}

test("a run that another pod has passed saves no more", async () => {
  await using volume = await Volume.create();
  await using zombie = await DiskPod.create(volume);
  const run = await zombie.begin("thread", { fence: 1 });
  await zombie.say(run, "s1", "one\n");
  expect((await run.save({ deadlineMs: 5000 })).saved).toBe(true);
  await using successor = await DiskPod.create(volume);
  await successor.turn("thread", "two\n", { fence: 2 });
  await zombie.append("projects/p/s1.jsonl", "late\n");
  expect(await run.save({ deadlineMs: 5000 })).toEqual({ saved: false, reason: "a later run has saved the thread" });
  await using third = await DiskPod.create(volume);
  await third.begin("thread", { fence: 3 });
  expect(await third.read("projects/p/s1.jsonl")).toBe("one\ntwo\n");
});

for (const [kind, env] of Object.entries({
  plain: {},
  sealed: { SESSION_KEYS: `k:${Buffer.alloc(32, 1).toString("base64url")}` },
})) {
  test(`a name that is made up in mid-turn ends no run's saving, ${kind}`, async () => {
    await using volume = await Volume.create();
    await using pod = await DiskPod.create(volume, { env });
    const { settled } = await pod.turn("thread", "one\n");
    const own = (await allFiles(volume.home)).find((path) => path.endsWith(settled.generation ?? "?")) ?? "";
    await using elsewhere = await DiskPod.create(volume, { env });
    const foreign = (await elsewhere.turn("another thread", "its text\n")).settled.generation ?? "?";
    const run = await pod.begin("thread");
    const madeUp = (turn: number): string =>
      join(dirname(own), `${"0".repeat(16)}-0000000${turn}-${"z".repeat(16)}-000000-s`);
    await writeFile(madeUp(5), "");
    await writeFile(madeUp(6), "x".repeat(500));
    await mkdir(madeUp(7));
    // The thread's own save, cut off; another thread's.
    await writeFile(madeUp(8), (await readFile(own)).subarray(0, -1));
    const others = (await allFiles(volume.home)).find((path) => path.endsWith(foreign)) ?? "";
    await writeFile(madeUp(9), await readFile(others));
    await pod.say(run, "s1", "two\n");
    expect(await run.save({ deadlineMs: 5000 })).toMatchObject({ saved: true });
    await pod.append("projects/p/s1.jsonl", "three\n");
    expect(await run.save({ deadlineMs: 5000 })).toMatchObject({ saved: true });
    await using other = await DiskPod.create(volume, { env: { ...env, SESSION_IO_BUDGET_MS: "600" } });
    await other.begin("thread");
    expect(await other.read("projects/p/s1.jsonl")).toBe("one\ntwo\nthree\n");
    // One that is a save of the thread ends it. (With those above it, it would be a blind run's.)
    for (const turn of [5, 6, 7, 8, 9]) await rm(madeUp(turn), { recursive: true });
    await other.turn("thread", "four\n");
    await pod.append("projects/p/s1.jsonl", "late\n");
    expect(await run.save({ deadlineMs: 5000 })).toEqual({ saved: false, reason: "a later run has saved the thread" });
  });
}

test("a run that begins while the thread's last save is under way: both saves count, and the new run's state stays", async () => {
  await using volume = await Volume.create();
  await using pod = await DiskPod.create(volume);
  const old = await pod.begin("thread");
  await pod.say(old, "s1", "one\n");
  const save = pod.jobs["session-save"];
  const held = Promise.withResolvers<void>();
  const started = Promise.withResolvers<void>();
  pod.jobs["session-save"] = async (input) => {
    const report = save?.(input);
    started.resolve();
    await held.promise;
    return report;
  };
  const saving = old.save({ deadlineMs: 5000 });
  await started.promise;
  const next = await pod.begin("thread");
  held.resolve();
  const settled = await saving;
  expect(settled.saved || settled.reason === "the thread's next run on this pod saves it").toBe(true);
  await pod.say(next, "s1", "two\n");
  expect(await next.save({ deadlineMs: 5000 })).toMatchObject({ saved: true });
  await using other = await DiskPod.create(volume);
  await other.begin("thread");
  expect(await other.read("projects/p/s1.jsonl")).toBe("one\ntwo\n");
});

test("a generation that never reached the volume: waited for, said, and passed for good by the next save", async () => {
  await using volume = await Volume.create();
  await using first = await DiskPod.create(volume);
  await first.turn("thread", "one\n");
  const lost = `${"0".repeat(16)}-00000007-${"z".repeat(16)}-000003-s`;
  const env = { SESSION_IO_BUDGET_MS: "600" };
  await using second = await DiskPod.create(volume, { env });
  const { found, settled } = await second.turn("thread", "two\n", { sessionGeneration: lost });
  expect(found).toMatchObject({ id: "s1", state: "stale-session" });
  expect(found.reason).toBe("the newest save of the thread is not on the volume yet");
  expect((settled.generation ?? "") > lost).toBe(true);
  await using third = await DiskPod.create(volume, { env });
  expect((await third.begin("thread", { sessionGeneration: lost })).found).toMatchObject({ state: "restored" });
  expect(await third.read("projects/p/s1.jsonl")).toBe("one\ntwo\n");
});

test("a last save that failed is made up for while the pod lives, and not when the thread went on", async () => {
  await using volume = await Volume.create();
  await using pod = await DiskPod.create(volume, { env: { ORG_RETRY_EVERY_MS: "20" } });
  const run = await pod.begin("thread");
  await pod.say(run, "s1", "one\n");
  pod.mounted = false;
  expect(await run.save({ deadlineMs: 5000 })).toEqual({ saved: false, reason: "the org volume is not mounted" });
  pod.mounted = true;
  while (!pod.lines.some(({ event }) => event === "session saved")) await Bun.sleep(5);
  const save = pod.jobs["session-save"];
  pod.jobs["session-save"] = () => Promise.reject(new Overdue());
  const failed = await pod.begin("thread");
  await pod.say(failed, "s1", "two\n");
  expect((await failed.save({ deadlineMs: 5000 })).saved).toBe(false);
  await pod.begin("thread");
  if (save) pod.jobs["session-save"] = save;
  const flights = (): number => pod.flights.length;
  const before = flights();
  await Bun.sleep(100);
  expect(flights()).toBe(before);
});

test("a transcript that is compacted, edited, replaced, emptied, or without a final newline", async () => {
  await using volume = await Volume.create();
  await using pod = await DiskPod.create(volume);
  const path = "projects/p/s1.jsonl";
  const long = Array.from({ length: 500 }, (_, n) => `line ${n} ${"x".repeat(n % 50)}\n`).join("");
  const texts = [
    long,
    `${long}more`,
    "compacted\n",
    `compacted\n${long}`,
    `compacted\n${long.replace("line 250", "LINE 250")}`,
  ];
  const run = await pod.begin("thread");
  run.noteSession("s1");
  for (const text of texts) {
    await pod.write(path, text);
    expect((await run.save({ deadlineMs: 5000 })).saved).toBe(true);
    await using reader = await DiskPod.create(volume);
    await reader.begin("thread");
    expect(await reader.read(path)).toBe(text);
  }
  await pod.write(path, "");
  expect(await run.save({ deadlineMs: 5000 })).toEqual({ saved: false, reason: "the session has no transcript" });
  await using reader = await DiskPod.create(volume);
  await reader.begin("thread");
  expect(await reader.read(path)).toBe(texts.at(-1) ?? "");
});

test("an edit far from the end is found by runs of one save each", async () => {
  await using volume = await Volume.create();
  await using pod = await DiskPod.create(volume);
  // Each less than the one before: segments of their own.
  for (const bytes of [40_000, 20_000, 10_000]) await pod.turn("thread", `${"x".repeat(bytes)}\n`);
  const text = await pod.read("projects/p/s1.jsonl");
  await pod.write("projects/p/s1.jsonl", `${text.slice(0, 45_000)}EDITED${text.slice(45_006)}`);
  for (let n = 0; n < 12; n++) expect((await pod.turn("thread", `${n}\n`)).found.state).toBe("local");
  await using other = await DiskPod.create(volume);
  expect((await other.begin("thread")).found.state).toBe("restored");
  expect((await other.read("projects/p/s1.jsonl")).slice(45_000, 45_006)).toBe("EDITED");
  expect(await other.read("projects/p/s1.jsonl")).toBe(await pod.read("projects/p/s1.jsonl"));
});

test("a fork of the session id in mid-turn", async () => {
  await using volume = await Volume.create();
  await using pod = await DiskPod.create(volume);
  await pod.turn("thread", "one\n");
  const run = await pod.begin("thread");
  await pod.say(run, "s2", "one\ntwo\n");
  expect((await run.save({ deadlineMs: 5000 })).saved).toBe(true);
  expect(await pod.read("projects/p/s1.jsonl")).toBe("one\n");
  await using other = await DiskPod.create(volume);
  expect((await other.begin("thread")).found.id).toBe("s2");
  expect(await other.read("projects/p/s2.jsonl")).toBe("one\ntwo\n");
  expect((await pod.begin("thread")).found).toMatchObject({ id: "s2", state: "local" });
});

for (const where of ["on an org volume", "on the pod alone"]) {
  test(`a session that is named and never written takes no thread's conversation, ${where}`, async () => {
    await using volume = await Volume.create();
    await using pod = await DiskPod.create(where === "on the pod alone" ? null : volume);
    await pod.turn("thread", "one\n");
    const run = await pod.begin("thread");
    await pod.say(run, "s1", "two\n");
    run.noteSession("never");
    await run.pointerWritten();
    // In the state that a daemon leaves that is killed now: nobody knows yet that it will never come.
    const reason = "the session that the harness named has no transcript: the thread stays with the one before";
    expect((await pod.begin("thread")).found).toMatchObject({ id: "s1", state: "local", reason });
    const again = await pod.begin("thread");
    again.noteSession("neither");
    await again.pointerWritten();
    const settled = await again.save({ deadlineMs: 5000 });
    expect(settled).toMatchObject(
      where === "on the pod alone" ? { saved: false, reason: `no org volume; ${reason}` } : { saved: true, reason },
    );
    expect(pod.lines).toContainEqual({ event: "session never written", fields: { session: "neither", kept: "s1" } });
    const next = await pod.begin("thread");
    expect(next.found).toMatchObject({ id: "s1", state: "local" });
    expect(next.found.reason).toBeUndefined();
    // One that comes is the thread's, after one that did not.
    next.noteSession("never");
    await pod.say(next, "s2", "one\ntwo\nthree\n");
    await next.save({ deadlineMs: 5000 });
    expect((await pod.begin("thread")).found).toMatchObject({ id: "s2", state: "local" });
  });
}

for (const when of ["before the last save", "after it"]) {
  test(`a session that was saved and whose transcript goes ${when} is none that never came`, async () => {
    await using volume = await Volume.create();
    await using pod = await DiskPod.create(volume, { env: { CHECKPOINT_MS: "20" } });
    await pod.turn("thread", "one\n");
    const run = await pod.begin("thread");
    run.startCheckpoints();
    await pod.say(run, "s2", "one\ntwo\n");
    while (savedIn(pod) < 2) await Bun.sleep(5);
    const gone = (): Promise<void> => rm(join(pod.configDir, "projects/p/s2.jsonl"));
    if (when === "before the last save") await gone();
    expect((await run.save({ deadlineMs: 5000 })).saved).toBe(when === "after it");
    if (when === "after it") await gone();
    for (const each of [await DiskPod.create(volume), pod]) {
      expect((await each.begin("thread")).found).toMatchObject({ id: "s2", state: "restored" });
      expect(await each.read("projects/p/s2.jsonl")).toBe("one\ntwo\n");
      if (each !== pod) await each[Symbol.asyncDispose]();
    }
  });
}

test("a run that ends late gives its thread no earlier session than the next run has", async () => {
  await using pod = await DiskPod.create(null);
  await pod.turn("thread", "one\n");
  const run = await pod.begin("thread");
  run.noteSession("never");
  await run.pointerWritten();
  await pod.turn("thread", "one\ntwo\n", {}, "s2");
  const fork = await pod.begin("thread");
  await pod.say(fork, "s2", "one\ntwo\n");
  await run.save({ deadlineMs: 5000 });
  expect((await pod.begin("thread")).found).toMatchObject({ id: "s2", state: "local" });
});

test("with keys nothing readable is in the store, and what does not open is not believed", async () => {
  const key = (byte: number): string => Buffer.alloc(32, byte).toString("base64url");
  await using volume = await Volume.create();
  const env = { SESSION_KEYS: `new:${key(1)},old:${key(2)}` };
  await using pod = await DiskPod.create(volume, { env });
  const { settled } = await pod.turn("a thread", `${"the secret text ".repeat(200)}\n`);
  expect(settled.saved).toBe(true);
  const stored = await storeText(volume);
  for (const word of ["secret", "a thread", "s1", "projects"]) expect(stored).not.toContain(word);

  await using same = await DiskPod.create(volume, { env });
  expect((await same.begin("a thread")).found).toMatchObject({ id: "s1", state: "restored" });
  await using stranger = await DiskPod.create(volume, { env: { SESSION_KEYS: `x:${key(3)}` } });
  expect((await stranger.begin("a thread")).found).toEqual({ state: "fresh" });
  await using rotated = await DiskPod.create(volume, { env: { SESSION_KEYS: `newest:${key(4)},new:${key(1)}` } });
  expect((await rotated.turn("a thread", "more\n")).found).toMatchObject({ id: "s1", state: "restored" });
  expect((await rotated.begin("a thread")).found.state).toBe("local");
  await using later = await DiskPod.create(volume, { env: { SESSION_KEYS: `newest:${key(4)},new:${key(1)}` } });
  expect((await later.begin("a thread")).found.state).toBe("restored");
});

test("a save of another thread put in the place of one, or an older one under a newer name", async () => {
  const env = { SESSION_KEYS: `k:${Buffer.alloc(32, 1).toString("base64url")}` };
  await using volume = await Volume.create();
  await using pod = await DiskPod.create(volume, { env });
  await pod.turn("victim", "mine\n", {}, "s1");
  const [mine = ""] = await allFiles(volume.home);
  await pod.turn("other", "theirs\n", {}, "s2");
  const theirs = (await allFiles(volume.home)).find((path) => path !== mine) ?? "";
  const newer = join(mine, "..", `${"0".repeat(15)}9-00000009-${"z".repeat(16)}-000000-s`);
  for (const source of [theirs, mine]) {
    await writeFile(newer, await readFile(source));
    await using reader = await DiskPod.create(volume, { env });
    expect((await reader.begin("victim")).found).toMatchObject({
      id: "s1",
      state: "stale-session",
      reason: "the newest save of the thread is not whole",
    });
    expect(reader.lines.find(({ event }) => event === "saves not taken")?.fields).toMatchObject({
      saves: [{ reason: expect.stringContaining("sealed for another place") }],
    });
    await rm(newer);
  }
});

test("stores of the older layout: read when there is no save, and left alone", async () => {
  await using volume = await Volume.create();
  const older = join(volume.home, "claude-sessions");
  await mkdir(join(older, "thread/projects/-app/old1"), { recursive: true });
  await writeFile(join(older, "thread/projects/-app/old1.jsonl"), "long ago\n");
  await writeFile(join(older, "thread/projects/-app/old1/agent.jsonl"), "side\n");
  await writeFile(join(older, "thread/projects/-app/not-of-it.jsonl.tmp"), "x");
  await mkdir(join(older, "flat"));
  await writeFile(join(older, "flat/old2.jsonl"), "flat\n");
  await mkdir(join(older, "swapped/projects"), { recursive: true });
  const before = await storeText(volume);

  await using pod = await DiskPod.create(volume);
  expect((await pod.turn("thread", "now\n")).found).toEqual({ id: "old1", state: "restored" });
  expect(await pod.read("projects/-app/old1/agent.jsonl")).toBe("side\n");
  expect((await pod.begin("flat")).found).toEqual({ id: "old2", state: "restored" });
  expect((await pod.begin("swapped")).found).toEqual({ state: "fresh" });
  expect((await pod.begin("../claude-sessions/thread")).found).toEqual({ state: "fresh" });
  await rm(join(volume.home, "dispatchd-sessions"), { recursive: true });
  expect(await storeText(volume)).toBe(before);
  await using without = await DiskPod.create(volume, { env: { SESSION_LEGACY: "0" } });
  expect((await without.begin("thread")).found).toEqual({ state: "fresh" });
});

test("with keys a conversation of the older layout is brought over, and said to be anybody's", async () => {
  await using volume = await Volume.create();
  const env = { SESSION_KEYS: `k:${Buffer.alloc(32, 1).toString("base64url")}` };
  await mkdir(join(volume.home, "claude-sessions/thread/projects/-app"), { recursive: true });
  await writeFile(join(volume.home, "claude-sessions/thread/projects/-app/old1.jsonl"), "long ago\n");
  await using pod = await DiskPod.create(volume, { env });
  const { found } = await pod.turn("thread", "now\n");
  const reason =
    "the conversation comes from the older layout, which is not sealed: whoever can write the volume can have made it up";
  expect(found).toEqual({ id: "old1", state: "restored", reason });
  expect(pod.lines.filter(({ event }) => event === "session not sealed")).toMatchObject([{ fields: { reason } }]);
  // From then on it is sealed, and nothing is to be said.
  await using other = await DiskPod.create(volume, { env });
  const next = (await other.begin("thread")).found;
  expect([next.state, next.reason]).toEqual(["restored", undefined]);
  await using without = await DiskPod.create(volume, { env: { ...env, SESSION_LEGACY: "0" } });
  await rm(join(volume.home, "dispatchd-sessions"), { recursive: true });
  expect((await without.begin("thread")).found).toEqual({ state: "fresh" });
});

test("with keys a thread whose saves are all plain is fresh, and that is said", async () => {
  await using volume = await Volume.create();
  await using open = await DiskPod.create(volume);
  await open.turn("thread", "one\n");
  const env = { SESSION_KEYS: `k:${Buffer.alloc(32, 1).toString("base64url")}` };
  await using sealed = await DiskPod.create(volume, { env });
  const { found } = await sealed.turn("thread", "two\n", {}, "s2");
  const reason = "the store has saves of the thread that are not sealed, 1 of them: they are not believed";
  expect(found).toEqual({ state: "fresh", reason });
  expect(sealed.lines.filter(({ event }) => event === "session not whole")).toMatchObject([{ fields: { reason } }]);
  // With a sealed save there is nothing to be missed.
  await using other = await DiskPod.create(volume, { env });
  const next = (await other.begin("thread")).found;
  expect([next.id, next.state, next.reason]).toEqual(["s2", "restored", undefined]);
});

test("with keys a look for plain saves that fails makes no thread's first run blind", async () => {
  await using volume = await Volume.create();
  const env = { SESSION_KEYS: `k:${Buffer.alloc(32, 1).toString("base64url")}` };
  const [plain = ""] = threadFolders("thread", []);
  const inTheWay = join(volume.home, "dispatchd-sessions", plain.slice(0, 2));
  await mkdir(dirname(inTheWay), { recursive: true });
  await writeFile(inTheWay, "");
  await using pod = await DiskPod.create(volume, { env });
  const { found, settled } = await pod.turn("thread", "one\n");
  expect(found).toEqual({ state: "fresh" });
  expect(settled).toMatchObject({ saved: true, generation: expect.stringMatching(/-s$/) });
});

test("checkpoints: the first holds the user's message, and none is lost with the pod", async () => {
  await using volume = await Volume.create();
  await using pod = await DiskPod.create(volume, { env: { CHECKPOINT_MS: "60000" } });
  const run = await pod.begin("thread", { userMessage: { parts: [{ type: "text", text: "do the thing" }] } });
  await pod.say(run, "s1", `{"type":"queue"}\n`);
  run.startCheckpoints();
  await pod.append("projects/p/s1.jsonl", `{"type":"user","text":"do the thing"}\n`);
  while (!pod.lines.some(({ event }) => event === "session saved")) await Bun.sleep(20);
  await using other = await DiskPod.create(volume);
  expect((await other.begin("thread")).found.state).toBe("restored");
  expect(await other.read("projects/p/s1.jsonl")).toContain("do the thing");
  run.stop();
});

test("checkpoints: a transcript that was compacted in the turn, by the message in it or by its size alone", async () => {
  for (const [everyMs, said] of [
    ["60000", "do the thing"],
    ["300", "what no transcript holds"],
  ] as const) {
    await using volume = await Volume.create();
    await using pod = await DiskPod.create(volume, { env: { CHECKPOINT_MS: everyMs } });
    await pod.turn("thread", "a long way before\n".repeat(100));
    const run = await pod.begin("thread", { userMessage: { parts: [{ type: "text", text: said }] } });
    const compacted = `compacted\n{"type":"user","text":"do the thing"}\n`;
    await pod.write("projects/p/s1.jsonl", compacted);
    const before = savedIn(pod);
    run.startCheckpoints();
    while (savedIn(pod) === before) await Bun.sleep(20);
    await using other = await DiskPod.create(volume);
    expect((await other.begin("thread")).found).toMatchObject({ id: "s1", state: "restored" });
    expect(await other.read("projects/p/s1.jsonl")).toBe(compacted);
    run.stop();
  }
}, 10_000);

test("checkpoints: a fork to a smaller transcript, or to one as large, is new as a whole", async () => {
  const long = "a long way before\n".repeat(100);
  for (const text of ["forked\n", long.toUpperCase()]) {
    await using volume = await Volume.create();
    await using pod = await DiskPod.create(volume, { env: { CHECKPOINT_MS: "300" } });
    await pod.turn("thread", long);
    const run = await pod.begin("thread");
    const before = savedIn(pod);
    await pod.say(run, "s2", text);
    run.startCheckpoints();
    while (savedIn(pod) === before) await Bun.sleep(20);
    await using other = await DiskPod.create(volume);
    expect((await other.begin("thread")).found).toMatchObject({ id: "s2", state: "restored" });
    expect(await other.read("projects/p/s2.jsonl")).toBe(text);
    run.stop();
  }
}, 10_000);

test("without an org volume a session lives as long as the pod", async () => {
  await using pod = await DiskPod.create(null);
  const { settled } = await pod.turn("thread", "one\n");
  expect(settled).toEqual({ saved: false, reason: "no org volume" });
  expect((await pod.begin("thread")).found).toEqual({ id: "s1", state: "local" });
  expect(pod.flights).toEqual([]);
});

test("what the agent puts in the transcript's place is not followed", async () => {
  await using volume = await Volume.create();
  await using pod = await DiskPod.create(volume);
  const secret = join(pod.folder, "secret");
  await writeFile(secret, "a secret of the pod\n");
  const run = await pod.begin("thread");
  await pod.say(run, "s1", "one\n");
  await mkdir(join(pod.configDir, "projects/p/s1"), { recursive: true });
  await symlink(secret, join(pod.configDir, "projects/p/s1/link"));
  await symlink(pod.folder, join(pod.configDir, "projects/p/s1/folder"));
  Bun.spawnSync(["mkfifo", join(pod.configDir, "projects/p/s1/fifo")]);
  expect((await run.save({ deadlineMs: 5000 })).saved).toBe(true);
  await using other = await DiskPod.create(volume);
  await other.begin("thread");
  expect(await allFiles(other.configDir)).toEqual([join(other.configDir, "projects/p/s1.jsonl")]);
});

test("dozens of files beside the transcript, one by one, come back from few saves", async () => {
  await using volume = await Volume.create();
  await using pod = await DiskPod.create(volume);
  const run = await pod.begin("thread");
  for (let n = 0; n < 70; n++) {
    await pod.say(run, "s1", `call ${n}\n`);
    await pod.write(`projects/p/s1/tool-results/${n}.txt`, `result ${n}`);
    expect((await run.save({ deadlineMs: 5000 })).saved).toBe(true);
  }
  const [state = ""] = (await allFiles(join(pod.folder, "threads"))).filter((path) => /\.saves\.json\./.test(path));
  expect(Object.keys(JSON.parse(await readFile(state, "utf8")).state.saves).length).toBeLessThan(64);
  await using other = await DiskPod.create(volume);
  expect((await other.begin("thread")).found.state).toBe("restored");
  for (let n = 0; n < 70; n++) expect(await other.read(`projects/p/s1/tool-results/${n}.txt`)).toBe(`result ${n}`);
}, 20_000);

needsRoot("restored files are the agent's, and so are the folders that were made", async () => {
  await using volume = await Volume.create();
  await using first = await DiskPod.create(volume);
  const run = await first.begin("thread");
  await first.say(run, "s1", "one\n");
  await first.write("projects/p/s1/tool.txt", "a result");
  await run.save({ deadlineMs: 5000 });
  await using pod = await DiskPod.create(volume, { env: { AGENT_USER: "12345:12346" } });
  await pod.begin("thread");
  for (const path of ["", "projects", "projects/p", "projects/p/s1.jsonl", "projects/p/s1", "projects/p/s1/tool.txt"]) {
    const { uid, gid } = await lstat(join(pod.configDir, path));
    expect([path, uid, gid]).toEqual([path, 12345, 12346]);
  }
  // What the agent put in the way is not followed.
  await pod.turn("thread", "two\n");
  await first.turn("thread", "three\n");
  await rm(join(pod.configDir, "projects"), { recursive: true });
  const elsewhere = join(pod.folder, "elsewhere");
  await mkdir(elsewhere);
  await symlink(elsewhere, join(pod.configDir, "projects"));
  expect((await pod.begin("thread")).found.state).toBe("fresh");
  expect(await readdir(elsewhere)).toEqual([]);
});

test("a link in the place of a folder of either layout leads nowhere", async () => {
  const elsewhere = await mkdtemp(join(tmpdir(), "dispatchd-elsewhere-"));
  try {
    await mkdir(join(elsewhere, "projects/p"), { recursive: true });
    await writeFile(join(elsewhere, "projects/p/s1.jsonl"), "of somebody else\n");
    await using volume = await Volume.create();
    await mkdir(join(volume.home, "claude-sessions"));
    await symlink(elsewhere, join(volume.home, "claude-sessions/t"));
    await using pod = await DiskPod.create(volume);
    expect((await pod.begin("t")).found).toEqual({ state: "fresh" });
    const steps = threadFolders("t", [])[0].split("/");
    for (const depth of [0, 1, 2, 3]) {
      await using other = await Volume.create();
      const path = join(other.home, "dispatchd-sessions", ...steps.slice(0, depth));
      await mkdir(dirname(path), { recursive: true });
      await symlink(elsewhere, path);
      await using saving = await DiskPod.create(other);
      expect((await saving.turn("t", "one\n")).settled).toMatchObject({ saved: false });
      expect(await readdir(elsewhere)).toEqual(["projects"]);
    }
  } finally {
    await rm(elsewhere, { recursive: true });
  }
});
