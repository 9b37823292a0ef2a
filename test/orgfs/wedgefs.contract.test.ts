/** The filesystem that the tests make hang does what they rely on. */
import { expect, test } from "bun:test";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readdir, readFile, rename, rm, stat, truncate, unlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { errnoOf } from "../../src/errors.ts";
import { type MountSetup, mountsMissing, WedgeFs } from "../support/wedgefs/index.ts";

interface Mounted extends AsyncDisposable {
  readonly fs: WedgeFs;
  readonly at: (path: string) => string;
}

async function mounted(setup: MountSetup = {}): Promise<Mounted> {
  const folder = await mkdtemp(join(tmpdir(), "wedge-test-"));
  const fs = await WedgeFs.mount(join(folder, "mnt"), setup);
  return {
    fs,
    at: (path) => join(folder, "mnt", path),
    async [Symbol.asyncDispose]() {
      await fs[Symbol.asyncDispose]();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** In a process of its own, which may hang. */
function cat(path: string) {
  const child = spawn("/bin/cat", [path], { stdio: ["ignore", "ignore", "ignore"] });
  return { child, exited: once(child, "exit") };
}

function code(promise: Promise<unknown>): Promise<string | undefined> {
  return promise.then(() => undefined, errnoOf);
}

const needsMount = test.skipIf(mountsMissing !== undefined && process.env.CI === undefined);

needsMount("files and folders are made, read, moved, cut and removed, and the backend has them", async () => {
  await using mount = await mounted();
  const { fs, at } = mount;
  await mkdir(at("a/b"), { recursive: true });
  const bytes = Buffer.alloc(3 << 20, "0123456789abcdef");
  await writeFile(at("a/b/file"), bytes);
  expect((await readFile(at("a/b/file"))).equals(bytes)).toBe(true);
  await rename(at("a/b"), at("a/c"));
  expect(await readdir(at("a"))).toEqual(["c"]);
  await truncate(at("a/c/file"), 5);
  expect(await readFile(at("a/c/file"), "utf8")).toBe("01234");
  expect(await readFile(join(fs.backing, "a/c/file"), "utf8")).toBe("01234");
  expect((await stat(at("a/c/file"))).size).toBe(5);
  for (let i = 0; i < 300; i++) await writeFile(join(fs.backing, `a/${i} with a rather long name`), "");
  expect((await readdir(at("a"))).length).toBe(301);
  await unlink(at("a/c/file"));
  expect(await code(stat(at("a/c/file")))).toBe("ENOENT");
  await rm(at("a"), { recursive: true });
  expect(await readdir(fs.backing)).toEqual([]);
});

needsMount("a held call cannot be killed until it is answered, others go on", async () => {
  await using mount = await mounted();
  const { fs, at } = mount;
  await writeFile(join(fs.backing, "held"), "text");
  await writeFile(join(fs.backing, "free"), "text");
  await fs.hold({ ops: ["read"], path: "held" });
  const reader = cat(at("held"));
  await fs.untilHeld({ path: "held" });
  reader.child.kill("SIGKILL");
  expect(await readFile(at("free"), "utf8")).toBe("text");
  expect(await fs.held()).toMatchObject([{ op: "read", path: "held", pid: reader.child.pid }]);
  expect(reader.child.signalCode ?? reader.child.exitCode).toBeNull();
  expect(await fs.release()).toBe(1);
  await reader.exited;
  expect(reader.child.signalCode).toBe("SIGKILL");
});

needsMount("a call at a frozen mount can be killed", async () => {
  await using mount = await mounted();
  await writeFile(join(mount.fs.backing, "file"), "text");
  await mount.fs.freeze();
  const reader = cat(mount.at("file"));
  reader.child.kill("SIGKILL");
  await reader.exited;
  await mount.fs.release();
  expect(await readFile(mount.at("file"), "utf8")).toBe("text");
});

needsMount("calls fail as often as asked, and a full backend takes what fits", async () => {
  await using mount = await mounted();
  const { fs, at } = mount;
  await fs.fail({ errno: "EIO", ops: ["create"], path: "x*", skip: 1, times: 1 });
  expect(await code(writeFile(at("x1"), "1"))).toBeUndefined();
  expect(await code(writeFile(at("x2"), "2"))).toBe("EIO");
  expect(await code(writeFile(at("x3"), "3"))).toBeUndefined();
  await fs.heal();
  await fs.space(100);
  expect(await code(writeFile(at("big"), Buffer.alloc(1000)))).toBe("ENOSPC");
  expect((await stat(join(fs.backing, "big"))).size).toBe(100);
  await fs.space(null);
  expect(await code(writeFile(at("big"), Buffer.alloc(1000)))).toBeUndefined();
});

needsMount("what is written reaches the backend late, cut, or not at all; what is deleted at once", async () => {
  await using mount = await mounted({ writeBackMs: 60_000 });
  const { fs, at } = mount;
  await writeFile(at("late"), "0123456789");
  await rename(at("late"), at("renamed"));
  expect(await readFile(at("renamed"), "utf8")).toBe("0123456789");
  expect(await readdir(at(""))).toEqual(["renamed"]);
  expect(await readdir(fs.backing)).toEqual([]);
  expect(await fs.unwritten()).toEqual(["renamed"]);
  expect(await fs.writeBack(0.5)).toBe(1);
  expect(await readFile(join(fs.backing, "renamed"), "utf8")).toBe("01234");
  await unlink(at("renamed"));
  expect(await readdir(fs.backing)).toEqual([]);
  await writeFile(at("lost"), "never");
  await fs.unmount();
  expect(await readdir(fs.backing)).toEqual([]);
});

needsMount("a second mount of a backend shows what the first one wrote, as late as its listings are old", async () => {
  await using one = await mounted({ writeBackMs: 20 });
  await using other = await mounted({ backing: one.fs.backing, listingMs: 60_000 });
  expect(await readdir(other.at(""))).toEqual([]);
  await writeFile(one.at("new"), "text");
  while ((await one.fs.unwritten()).length > 0) await Bun.sleep(5);
  expect(await readFile(join(one.fs.backing, "new"), "utf8")).toBe("text");
  expect(await code(stat(other.at("new")))).toBe("ENOENT");
  await writeFile(other.at("own"), "text");
  expect(await readdir(other.at(""))).toEqual(["own"]);
  await other.fs.forgetListings();
  expect((await readdir(other.at(""))).sort()).toEqual(["new", "own"]);
});

needsMount("requests are counted, delayed, and traced to who asked", async () => {
  await using mount = await mounted();
  const { fs, at } = mount;
  await fs.counts();
  await writeFile(at("file"), "12345");
  expect(await fs.counts()).toMatchObject({ create: 1, write: 1, bytesWritten: 5, flush: 1 });
  await fs.delay({ ms: 100, ops: ["open"] });
  const before = performance.now();
  await readFile(at("file"));
  expect(performance.now() - before).toBeGreaterThanOrEqual(99);
  await fs.trace();
  const reader = cat(at("file"));
  await reader.exited;
  const opened = (await fs.traced()).filter(({ op }) => op === "open");
  expect(opened).toEqual([{ op: "open", path: "file", pid: reader.child.pid ?? 0, caller: `/bin/cat ${at("file")}` }]);
});

needsMount("a server that goes away leaves a mount that is not connected", async () => {
  await using mount = await mounted();
  await mount.fs.vanish();
  expect(await code(readdir(mount.at("")))).toBe("ENOTCONN");
});

test("on continuous integration there is a mount", () => {
  if (process.env.CI !== undefined) expect(mountsMissing).toBeUndefined();
});
