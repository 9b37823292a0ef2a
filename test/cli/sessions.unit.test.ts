import { expect, test } from "bun:test";
import { lstat, mkdir, mkdtemp, readdir, readFile, rm, symlink, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { runCli } from "../../src/cli/index.ts";
import { threadFolders } from "../../src/session/sealing.ts";
import { DiskPod, Volume } from "../session/pod-disk.ts";
import { MemoryIo } from "./memory-io.ts";

async function sessions(volume: Volume, args: readonly string[], env: Record<string, string> = {}) {
  const io = new MemoryIo({ env });
  const code = await runCli(["sessions", ...args, "--store", join(volume.home, "dispatchd-sessions")], io);
  const json = io.out.startsWith("{")
    ? io.out
        .trimEnd()
        .split("\n")
        .map((line) => JSON.parse(line))
    : [];
  return { code, out: io.out, err: io.err, json };
}

async function savesIn(volume: Volume): Promise<string[]> {
  const entries = await readdir(volume.home, { recursive: true, withFileTypes: true });
  return entries
    .filter((each) => each.isFile())
    .map((each) => join(each.parentPath, each.name))
    .sort();
}

async function twoThreads(volume: Volume, env: Record<string, string> = {}): Promise<void> {
  await using pod = await DiskPod.create(volume, { env });
  await pod.turn("thread one", "first\n", {}, "s1");
  await pod.append("projects/p/s1/tool.txt", "a result");
  await pod.turn("thread one", "second ü\n");
  await pod.turn("thread two", "other\n", {}, "s2");
}

test("ls, show, verify and export tell what is there", async () => {
  await using volume = await Volume.create();
  await twoThreads(volume);
  const listed = await sessions(volume, ["ls", "--json"]);
  expect(listed.json).toHaveLength(2);
  expect(listed.json.find(({ thread }) => thread === "thread one")).toMatchObject({ session: "s1", saves: 2 });
  expect((await sessions(volume, ["ls"])).out).toMatch(/^THREAD +SESSION +SAVES +BYTES +LAST SAVED\nthread /);

  const shown = await sessions(volume, ["show", "thread one", "--json"]);
  expect(shown.json).toMatchObject([
    { state: "whole", files: 2, session: "s1" },
    { state: "whole", files: 1 },
  ]);
  expect((await sessions(volume, ["verify"])).code).toBe(0);
  expect(await sessions(volume, ["export", "thread one"])).toMatchObject({ code: 0, out: "first\nsecond ü\n" });
  const out = await mkdtemp(join(tmpdir(), "dispatchd-export-"));
  try {
    const exported = await sessions(volume, ["export", "thread one", "--out", out, "--json"]);
    expect(exported.json).toEqual([
      { path: "projects/p/s1.jsonl", bytes: 16 },
      { path: "projects/p/s1/tool.txt", bytes: 8 },
    ]);
    expect(await readFile(join(out, "projects/p/s1/tool.txt"), "utf8")).toBe("a result");
  } finally {
    await rm(out, { recursive: true });
  }
  expect(await sessions(volume, ["show", "nobody"])).toMatchObject({ code: 1, out: "" });
  expect((await sessions(volume, ["export", "nobody"])).code).toBe(1);
});

test("export overwrites nothing, says so, and writes the rest", async () => {
  await using volume = await Volume.create();
  await twoThreads(volume);
  const out = await mkdtemp(join(tmpdir(), "dispatchd-export-"));
  try {
    const tool = join(out, "projects/p/s1/tool.txt");
    await mkdir(dirname(tool), { recursive: true });
    await writeFile(tool, "mine");
    const error = "something is there already, and is left as it is";
    const exportTo = (...options: string[]) => sessions(volume, ["export", "thread one", "--out", out, ...options]);
    const first = await exportTo("--json");
    expect(first).toMatchObject({ code: 1, err: "" });
    expect(first.json).toEqual([
      { path: "projects/p/s1.jsonl", bytes: 16 },
      { path: "projects/p/s1/tool.txt", error },
    ]);
    expect(await readFile(tool, "utf8")).toBe("mine");
    const lines = `projects/p/s1.jsonl  ${error}\nprojects/p/s1/tool.txt  ${error}\n`;
    expect(await exportTo()).toMatchObject({ code: 1, out: lines, err: "" });
    // A file where a folder of both would be.
    await rm(join(out, "projects"), { recursive: true });
    await writeFile(join(out, "projects"), "mine");
    expect(await exportTo()).toMatchObject({ code: 1, out: lines, err: "" });
  } finally {
    await rm(out, { recursive: true });
  }
});

test("verify finds a flipped bit, and export takes the next best", async () => {
  await using volume = await Volume.create();
  await twoThreads(volume);
  const shown = await sessions(volume, ["show", "thread one", "--json"]);
  const path = (await savesIn(volume)).find((each) => each.endsWith(shown.json[0].name)) ?? "";
  const bytes = await readFile(path);
  bytes[bytes.length - 20] = (bytes[bytes.length - 20] ?? 0) ^ 1;
  await writeFile(path, bytes);
  const verified = await sessions(volume, ["verify", "--json"]);
  expect(verified.code).toBe(1);
  expect(verified.json.find(({ thread }) => thread === "thread one")).toMatchObject({ saves: 2, damaged: 1 });
  expect(verified.json.find(({ thread }) => thread === "thread two")).toMatchObject({ saves: 1, damaged: 0 });
  expect((await sessions(volume, ["verify", "thread one"])).code).toBe(1);
});

test("a sealed store opens with its keys, by the thread's id", async () => {
  await using volume = await Volume.create();
  const env = { SESSION_KEYS: `k:${Buffer.alloc(32, 7).toString("base64url")}` };
  await twoThreads(volume, env);
  const listed = await sessions(volume, ["ls", "--json"], env);
  expect(listed.json).toHaveLength(2);
  expect(listed.out).not.toContain("thread one");
  expect((await sessions(volume, ["verify"], env)).code).toBe(1);
  expect((await sessions(volume, ["verify", "thread one"], env)).code).toBe(0);
  expect((await sessions(volume, ["export", "thread one"], env)).out).toBe("first\nsecond ü\n");
  expect((await sessions(volume, ["export", "thread one"])).code).toBe(1);
});

test("prune removes what nobody wrote to for long, and nothing else", async () => {
  await using volume = await Volume.create();
  await twoThreads(volume);
  const shown = await sessions(volume, ["show", "thread two", "--json"]);
  const old = (await savesIn(volume)).find((each) => each.endsWith(shown.json[0].name)) ?? "";
  const longAgo = new Date(Date.now() - 40 * 24 * 3_600_000);
  await utimes(old, longAgo, longAgo);
  expect((await sessions(volume, ["prune", "--older-than", "30", "--dry-run", "--json"])).json).toMatchObject([
    { thread: "thread two", removed: false },
  ]);
  expect((await savesIn(volume)).length).toBe(3);
  expect((await sessions(volume, ["prune", "--older-than", "30"])).out).toStartWith("removed  thread two");
  expect((await sessions(volume, ["ls", "--json"])).json).toMatchObject([{ thread: "thread one" }]);
});

test("a file or a link that is named like a thread's folder is no thread, and stays", async () => {
  await using volume = await Volume.create();
  await twoThreads(volume);
  const store = join(volume.home, "dispatchd-sessions");
  const [first, second] = threadFolders("thread three", [])[0].split("/");
  const beside = join(store, first ?? "", second ?? "");
  await mkdir(beside, { recursive: true });
  const thread = join(store, threadFolders("thread two", [])[0]);
  const strays = [join(store, "00"), join(beside, "a".repeat(40)), join(store, threadFolders("thread three", [])[0])];
  await symlink(store, strays[0] ?? "");
  await symlink(thread, strays[1] ?? "");
  await writeFile(strays[2] ?? "", "no folder");
  const longAgo = new Date(Date.now() - 40 * 24 * 3_600_000);
  for (const save of await readdir(thread)) await utimes(join(thread, save), longAgo, longAgo);

  const listed = await sessions(volume, ["ls", "--json"]);
  expect(listed).toMatchObject({ code: 0, err: "" });
  expect(listed.json.map((each) => each.thread).sort()).toEqual(["thread one", "thread two"]);
  expect(await sessions(volume, ["verify"])).toMatchObject({ code: 0, err: "" });
  const none = "dispatchd sessions: the store has no save of this thread\n";
  expect(await sessions(volume, ["show", "thread three"])).toMatchObject({ code: 1, err: none });
  const pruned = await sessions(volume, ["prune", "--older-than", "30", "--json"]);
  expect(pruned).toMatchObject({ code: 0, err: "", json: [{ thread: "thread two", removed: true }] });
  for (const stray of strays) expect(await lstat(stray)).toBeDefined();
});

test("what was typed wrongly is said", async () => {
  await using volume = await Volume.create();
  for (const args of [
    [],
    ["show"],
    ["ls", "x"],
    ["prune"],
    ["prune", "--older-than", "0"],
    ["dance"],
    ["ls", "--out", "x"],
  ]) {
    expect((await sessions(volume, args)).code).toBe(2);
  }
  expect((await sessions(volume, ["ls"], { SESSION_KEYS: "nonsense" })).err).toContain("SESSION_KEYS: key 1 is not");
  expect(await sessions(volume, ["ls"])).toMatchObject({ code: 0, out: "", err: "no threads\n" });
});
