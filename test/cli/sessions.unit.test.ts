import { expect, test } from "bun:test";
import { lstat, mkdir, mkdtemp, readdir, readFile, rm, symlink, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { runCli } from "../../src/cli/index.ts";
import { threadFolders } from "../../src/session/sealing.ts";
import { DiskPod, Volume } from "../session/pod-disk.ts";
import { MemoryIo } from "./memory-io.ts";

async function sessions(
  volume: Volume,
  args: readonly string[],
  env: Record<string, string> = {},
  files: Record<string, string> = {},
) {
  const io = new MemoryIo({ env, files });
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
  for (const action of ["show", "export", "verify"]) {
    const err = "dispatchd sessions: the store has no save of this thread\n";
    expect(await sessions(volume, [action, "nobody"])).toMatchObject({ code: 4, out: "", err });
  }
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
  expect((await sessions(volume, ["verify", "thread one"], env)).code).toBe(0);
  expect((await sessions(volume, ["export", "thread one"], env)).out).toBe("first\nsecond ü\n");
  expect((await sessions(volume, ["export", "thread one"])).code).toBe(4);
});

test("a sealed store does not tell whose it is: that is said, and the ids open it", async () => {
  await using volume = await Volume.create();
  const env = { SESSION_KEYS: `k:${Buffer.alloc(32, 7).toString("base64url")}` };
  await twoThreads(volume, env);
  for (const given of [env, {}]) {
    const listed = await sessions(volume, ["ls"], given);
    expect(listed).toMatchObject({ code: 0, err: expect.stringMatching(/^2 threads sealed: .*--threads\n$/) });
    expect(listed.out).toContain("(sealed) ");
    const verified = await sessions(volume, ["verify"], given);
    expect(verified).toMatchObject({ code: 6, err: expect.stringContaining("were not checked") });
    expect(verified.out).toMatch(/sealed: not checked\n.*sealed: not checked\n$/);
  }
  const ids = { "ids.txt": "nobody\nthread one\nthread two\n", "one.txt": "thread one" };
  const listed = await sessions(volume, ["ls", "--json", "--threads", "ids.txt"], env, ids);
  expect(listed).toMatchObject({ code: 0, err: "" });
  expect(listed.json.map(({ thread, session, sealed }) => [thread, session, sealed]).sort()).toEqual([
    ["thread one", "s1", true],
    ["thread two", "s2", true],
  ]);
  expect(await sessions(volume, ["verify", "--threads", "ids.txt"], env, ids)).toMatchObject({ code: 0, err: "" });
  expect(await sessions(volume, ["verify", "--threads", "one.txt"], env, ids)).toMatchObject({ code: 6 });
  // Without the keys the ids open nothing.
  expect(await sessions(volume, ["verify", "--threads", "ids.txt"], {}, ids)).toMatchObject({ code: 6 });
  expect(await sessions(volume, ["ls", "--threads", "missing"])).toMatchObject({ code: 2 });
});

test("a save that is cut short is told from one that is damaged", async () => {
  await using volume = await Volume.create();
  await twoThreads(volume);
  const shown = await sessions(volume, ["show", "thread one", "--json"]);
  const path = (await savesIn(volume)).find((each) => each.endsWith(shown.json[0].name)) ?? "";
  const bytes = await readFile(path);
  for (const length of [bytes.length - 1, 5, 0]) {
    await writeFile(path, bytes.subarray(0, length));
    const verified = await sessions(volume, ["verify", "--json"]);
    expect(verified.code).toBe(5);
    expect(verified.json.find(({ thread }) => thread === "thread one")).toMatchObject({
      condition: "cut",
      cut: 1,
      damaged: 0,
      newestWhole: expect.any(String),
    });
    expect((await sessions(volume, ["verify"])).out).toContain("1 of 2 saves cut short");
    const one = await sessions(volume, ["verify", "thread one", "--json"]);
    expect([one.code, one.json[0].state]).toEqual([5, "cut"]);
  }
});

test("a sealed thread is checked whatever became of its newest save's first line", async () => {
  await using volume = await Volume.create();
  const env = { SESSION_KEYS: `k:${Buffer.alloc(32, 7).toString("base64url")}` };
  await twoThreads(volume, env);
  const ids = { "ids.txt": "thread one\nthread two\n" };
  const verify = async (given: Record<string, string> = env) => {
    const { code, json } = await sessions(volume, ["verify", "--threads", "ids.txt", "--json"], given, ids);
    return [code, json.map(({ condition }) => condition).sort()];
  };
  const [newest] = (await sessions(volume, ["show", "thread one", "--json"], env)).json;
  const path = (await savesIn(volume)).find((each) => each.endsWith(newest.name)) ?? "";
  await writeFile(path, "");
  expect(await verify()).toEqual([5, ["cut", "ok"]]);
  expect(await verify({})).toEqual([6, ["sealed", "sealed"]]);
  for (const each of (await savesIn(volume)).filter((other) => dirname(other) === dirname(path))) {
    await writeFile(each, "x".repeat(500));
  }
  expect(await verify()).toEqual([1, ["damaged", "ok"]]);
});

test("a thread's plain folder is checked beside its sealed one", async () => {
  await using volume = await Volume.create();
  await twoThreads(volume);
  const [plain = ""] = await savesIn(volume);
  await twoThreads(volume, { SESSION_KEYS: `k:${Buffer.alloc(32, 7).toString("base64url")}` });
  const bytes = await readFile(plain);
  await writeFile(plain, bytes.fill(0, bytes.length - 9));
  for (const seed of [7, 8, 9]) {
    const env = { SESSION_KEYS: `k:${Buffer.alloc(32, seed).toString("base64url")}` };
    if (seed !== 7) await twoThreads(volume, env);
    const ids = { "ids.txt": "thread one\nthread two\n" };
    expect((await sessions(volume, ["verify", "--threads", "ids.txt"], env, ids)).code).toBe(1);
  }
});

test("a thread whose only save is cut is cut, and one in another's folder is damaged", async () => {
  await using volume = await Volume.create();
  await twoThreads(volume);
  const paths = await savesIn(volume);
  const [first = ""] = paths;
  const bytes = await readFile(first);
  for (const path of paths) await writeFile(path, (await readFile(path)).subarray(0, 300));
  expect((await sessions(volume, ["verify"])).code).toBe(5);
  const elsewhere = paths.find((path) => dirname(path) !== dirname(first)) ?? "";
  for (const path of paths) if (dirname(path) === dirname(elsewhere)) await rm(path);
  await writeFile(join(dirname(elsewhere), basename(first)), bytes);
  expect((await sessions(volume, ["verify"])).code).toBe(1);
});

test("a name that no thread comes to is damage, and hides no save", async () => {
  await using volume = await Volume.create();
  await twoThreads(volume);
  const [path = ""] = await savesIn(volume);
  const name = `${"0".repeat(16)}-89999999-${"z".repeat(16)}-000000-s`;
  await writeFile(join(dirname(path), name), "");
  const verified = await sessions(volume, ["verify", "--json"]);
  expect([verified.code, verified.json.filter(({ damaged }) => damaged === 1).length]).toEqual([1, 1]);
  expect(verified.json.every(({ newestWhole }) => newestWhole !== undefined && newestWhole !== name)).toBe(true);
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
  expect(await sessions(volume, ["show", "thread three"])).toMatchObject({ code: 4, err: none });
  const pruned = await sessions(volume, ["prune", "--older-than", "30", "--json"]);
  expect(pruned).toMatchObject({ code: 0, err: "", json: [{ thread: "thread two", removed: true }] });
  for (const stray of strays) expect(await lstat(stray)).toBeDefined();
});

test("a store that is reached over a link is the store", async () => {
  await using volume = await Volume.create();
  await twoThreads(volume);
  await symlink(join(volume.home, "dispatchd-sessions"), join(volume.home, "link"));
  for (const action of ["ls", "verify"]) {
    const io = new MemoryIo();
    // As the shell completes it.
    expect(await runCli(["sessions", action, "--json", "--store", join(volume.home, "link/")], io)).toBe(0);
    expect(io.out.match(/"thread":"thread (one|two)"/g)).toHaveLength(2);
  }
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
    ["show", "x", "--threads", "y"],
    ["verify", "x", "--threads", "y"],
  ]) {
    expect((await sessions(volume, args)).code).toBe(2);
  }
  expect((await sessions(volume, ["ls"], { SESSION_KEYS: "nonsense" })).err).toContain("SESSION_KEYS: key 1 is not");
  for (const action of [["ls"], ["verify"], ["show", "x"], ["export", "x"], ["prune", "--older-than", "1"]]) {
    const err = expect.stringMatching(/^dispatchd sessions: there is no store at .*\/dispatchd-sessions\n$/);
    expect(await sessions(volume, action)).toMatchObject({ code: 3, out: "", err });
  }
  await mkdir(join(volume.home, "dispatchd-sessions"));
  expect(await sessions(volume, ["ls"])).toMatchObject({ code: 0, out: "", err: "no threads\n" });
});
