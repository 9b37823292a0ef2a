/** Files beside the transcript that cannot be what they say: each costs itself, and is named. */
import { expect, test } from "bun:test";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { stateOfRun } from "../../src/session/begin-run.ts";
import { runSaveJob, type SaveJob } from "../../src/session/save-job.ts";
import { saveSession } from "../../src/session/save-session.ts";
import { MAX_SIDE_FILES } from "../../src/session/session-paths.ts";
import { sourceIn } from "../../src/session/store-place.ts";
import { NO_STATE } from "../../src/session/thread-state.ts";
import { MemoryLocalFiles, MemoryStateFile } from "./model/memory-ports.ts";
import { DiskPod, Volume } from "./pod-disk.ts";

const MAIN = "projects/p/s.jsonl";
const NOTHING = { saves: 0, turn: 1, fence: 0, waitedMs: 0, rejected: [] };

/** A save with these files beside the transcript, as a writer of another program might make it. */
async function storeWith(volume: Volume, side: readonly (readonly [path: string, text: string])[]): Promise<void> {
  const local = new MemoryLocalFiles();
  local.set(MAIN, Buffer.from("one\n"));
  const texts = new Map([[MAIN, "one\n"], ...side]);
  const files = [[MAIN, "one\n"] as const, ...side].map(([path, text], inode) => ({
    path,
    bytes: Buffer.byteLength(text),
    inode,
    changedAt: 1,
  }));
  const state = new MemoryStateFile();
  const report = { ...NOTHING, choice: { source: "none", blind: false } } as const;
  state.state = stateOfRun(NO_STATE, { id: "r".repeat(16) }, { source: "none", report });
  const source = sourceIn(join(volume.home, "dispatchd-sessions"), "thread", []);
  await using _open = source.folder;
  const saved = await saveSession(
    source,
    { session: "s", harness: "h", run: "r".repeat(16) },
    {
      find: async () => ({ files, unreadable: [] }),
      read: async (path, from, to) => Buffer.from(texts.get(path) ?? "").subarray(from, to),
    },
    state,
    () => 0,
  );
  expect(saved.type).toBe("saved");
}

async function placedBeside(pod: DiskPod): Promise<string[]> {
  const root = join(pod.configDir, "projects/p/s");
  const entries = await readdir(root, { recursive: true, withFileTypes: true });
  return entries
    .filter((each) => each.isFile())
    .map((each) => join(each.parentPath, each.name).slice(root.length + 1))
    .sort();
}

const leftOutOf = ({ lines }: DiskPod): unknown =>
  lines.filter(({ event }) => event === "session files left out").flatMap(({ fields }) => fields.files);

const CLASHES: Readonly<Record<string, readonly string[]>> = {
  "a file where another needs a folder": ["a", "a/b", "c"],
  "the same in another order": ["a/b", "a", "c"],
  "one path twice": ["a", "c", "a"],
  "a name that the disk does not take": ["a", "c", `${"x".repeat(254)}/${"ü".repeat(127)}y`],
};

for (const [name, paths] of Object.entries(CLASHES)) {
  test(`${name}: at most one of them is left out, and the session is restored`, async () => {
    await using volume = await Volume.create();
    await storeWith(
      volume,
      paths.map((path) => [`projects/p/s/${path}`, `text of ${path}`] as const),
    );
    await using pod = await DiskPod.create(volume);
    expect((await pod.begin("thread")).found).toMatchObject({ id: "s", state: "restored" });
    expect(await pod.read(MAIN)).toBe("one\n");
    const placed = await placedBeside(pod);
    expect(placed).toContain("c");
    expect(placed.length).toBeGreaterThanOrEqual(2);
    expect(placed.length + [leftOutOf(pod)].flat().length).toBe(paths.length);
    for (const path of placed) expect(await pod.read(`projects/p/s/${path}`)).toStartWith(`text of ${path}`);
    // It goes on from what there is.
    await pod.turn("thread", "two\n");
    await using other = await DiskPod.create(volume);
    await other.begin("thread");
    expect([await other.read(MAIN), await placedBeside(other)]).toEqual(["one\ntwo\n", placed]);
  });
}

test("a path that is not the session's is left out, and the session is restored", async () => {
  await using volume = await Volume.create();
  const strange = ["../../etc/passwd", "projects/p/other.jsonl", "projects/p/s/../../x", "/etc/passwd"];
  await storeWith(
    volume,
    [...strange, "projects/p/s/good"].map((path) => [path, "text"] as const),
  );
  await using pod = await DiskPod.create(volume);
  expect((await pod.begin("thread")).found).toMatchObject({ id: "s", state: "restored" });
  expect(await placedBeside(pod)).toEqual(["good"]);
  expect(leftOutOf(pod)).toEqual(strange);
  expect((await readdir(join(pod.configDir, "projects/p"))).sort()).toEqual(["s", "s.jsonl"]);
});

test("more files than a turn makes: those above the limit are left out", async () => {
  await using volume = await Volume.create();
  await storeWith(
    volume,
    Array.from({ length: MAX_SIDE_FILES + 150 }, (_, n) => [`projects/p/s/${n}`, "x"] as const),
  );
  await using pod = await DiskPod.create(volume);
  expect((await pod.begin("thread")).found).toMatchObject({ id: "s", state: "restored" });
  expect((await placedBeside(pod)).length).toBe(MAX_SIDE_FILES);
  const leftOut = [leftOutOf(pod)].flat();
  expect([leftOut.length, leftOut.at(-1)]).toEqual([101, "and 50 more"]);
}, 30_000);

test("a file that readers would not take with the others is not saved, and costs no save", async () => {
  await using volume = await Volume.create();
  await using pod = await DiskPod.create(volume);
  pod.jobs["session-save"] = ({ order, ...job }: SaveJob) =>
    runSaveJob({ ...job, order: { ...order, maxTextBytes: 1000 } });
  await pod.append("projects/p/s/a-large-one", "x".repeat(1000));
  await pod.append("projects/p/s/small", "small");
  expect((await pod.turn("thread", "one\n", {}, "s")).settled).toMatchObject({ saved: true });
  expect(leftOutOf(pod)).toEqual(["projects/p/s/a-large-one"]);
  await using other = await DiskPod.create(volume);
  expect((await other.begin("thread")).found).toMatchObject({ id: "s", state: "restored" });
  expect([await other.read(MAIN), await placedBeside(other)]).toEqual(["one\n", ["small"]]);
  // A transcript that nobody could read back takes no earlier one's place.
  await pod.append(MAIN, "x".repeat(1000));
  expect((await pod.turn("thread", "two\n")).settled).toMatchObject({ saved: false, reason: "the save failed: EFBIG" });
});
