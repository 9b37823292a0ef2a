import { afterEach, beforeEach, expect } from "bun:test";
import {
  chmodSync,
  chownSync,
  existsSync,
  lchownSync,
  mkdirSync,
  mkdtempSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { giveFolder, takeOverFolder } from "../../src/dispatch/give-folder.ts";
import { needsRoot } from "../support/needs-root.ts";

const AGENT = { uid: 12345, gid: 12346 };
let folder: string;

beforeEach(() => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), "dispatchd-give-")));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

// Ownership can be given by root alone; CI is root.
needsRoot("a new folder belongs to the agent, one that is there stays as it is", async () => {
  await giveFolder(join(folder, "a/b"), AGENT);
  expect(statSync(join(folder, "a/b"))).toMatchObject(AGENT);
  expect(statSync(join(folder, "a"))).toMatchObject(AGENT);
  mkdirSync(join(folder, "there"));
  await giveFolder(join(folder, "there"), AGENT);
  expect(statSync(join(folder, "there")).uid).toBe(0);
});

needsRoot("what a link points to is never given away", async () => {
  mkdirSync(join(folder, "etc"));
  mkdirSync(join(folder, "home"));
  chownSync(join(folder, "home"), AGENT.uid, AGENT.gid);
  symlinkSync(join(folder, "etc"), join(folder, "home/.claude"));
  symlinkSync(folder, join(folder, "home/up"));
  expect(await takeOverFolder(join(folder, "home/.claude"), AGENT)).toBe(false);
  expect(await takeOverFolder(join(folder, "home/up/etc"), AGENT)).toBe(false);
  await giveFolder(join(folder, "home/.claude"), AGENT);
  expect(statSync(join(folder, "etc")).uid).toBe(0);
});

needsRoot("a folder of ours is taken over at the start, one of somebody else's is not", async () => {
  mkdirSync(join(folder, "config"));
  expect(await takeOverFolder(join(folder, "config"), AGENT)).toBe(true);
  expect(statSync(join(folder, "config"))).toMatchObject(AGENT);
  expect(await takeOverFolder(join(folder, "config"), AGENT)).toBe(true);
  expect(await takeOverFolder(join(folder, "config"), { uid: 23456, gid: 23456 })).toBe(false);
});

needsRoot("a link of the agent's above the folder is not followed either, and nothing is made behind it", async () => {
  const [home, etc] = [join(folder, "home"), join(folder, "etc")];
  mkdirSync(home);
  chownSync(home, AGENT.uid, AGENT.gid);
  mkdirSync(join(etc, "of-root"), { recursive: true });
  symlinkSync(etc, join(home, ".config"));
  for (const path of [".config/tool", ".config/deeper/tool", ".config/of-root/tool", ".config/../etc/tool"]) {
    await giveFolder(`${home}/${path}`, AGENT);
    expect(await takeOverFolder(`${home}/${path}`, AGENT)).toBe(false);
  }
  expect(await takeOverFolder(join(home, ".config/of-root"), AGENT)).toBe(false);
  expect(statSync(join(etc, "of-root")).uid).toBe(0);
  expect([...new Bun.Glob("**").scanSync({ cwd: etc, onlyFiles: false })]).toEqual(["of-root"]);
  // A link of root's that the agent may have brought there from elsewhere.
  mkdirSync(join(home, "brought"));
  symlinkSync(etc, join(home, "brought/link"));
  await giveFolder(join(home, "brought/link/tool"), AGENT);
  expect(existsSync(join(etc, "tool"))).toBe(false);
});

needsRoot("links that the agent cannot have made are followed", async () => {
  mkdirSync(join(folder, "data/agent"), { recursive: true });
  chownSync(join(folder, "data/agent"), AGENT.uid, AGENT.gid);
  symlinkSync("data", join(folder, "relative"));
  symlinkSync(join(folder, "relative/../data"), join(folder, "absolute"));
  await giveFolder(join(folder, "relative/agent/one/two"), AGENT);
  await giveFolder(join(folder, "absolute/agent/three"), AGENT);
  for (const made of ["one", "one/two", "three"]) {
    expect(statSync(join(folder, "data/agent", made))).toMatchObject(AGENT);
    expect(statSync(join(folder, "data/agent", made)).mode & 0o777).toBe(0o700);
  }
  expect(await takeOverFolder(join(folder, "absolute/agent/three"), AGENT)).toBe(true);
  symlinkSync("loop", join(folder, "loop"));
  await giveFolder(join(folder, "loop/x"), AGENT);
  expect(await takeOverFolder(join(folder, "loop/x"), AGENT)).toBe(false);
});

needsRoot("in a folder like the temporary one a link counts as its owner's", async () => {
  const shared = join(folder, "shared");
  mkdirSync(shared);
  chmodSync(shared, 0o1777);
  mkdirSync(join(folder, "etc"));
  for (const [name, uid] of [
    ["of-root", 0],
    ["of-agent", AGENT.uid],
  ] as const) {
    symlinkSync(join(folder, "etc"), join(shared, name));
    lchownSync(join(shared, name), uid, uid);
    await giveFolder(join(shared, name, name), AGENT);
  }
  expect([existsSync(join(folder, "etc/of-root")), existsSync(join(folder, "etc/of-agent"))]).toEqual([true, false]);
  chmodSync(shared, 0o777);
  await giveFolder(join(shared, "of-root/later"), AGENT);
  expect(existsSync(join(folder, "etc/later"))).toBe(false);
});

needsRoot("several that make the same folder at once all find it the agent's", async () => {
  const path = join(folder, "a/b/c/d");
  await Promise.all(Array.from({ length: 8 }, () => giveFolder(path, AGENT)));
  for (const made of ["a", "a/b", "a/b/c", "a/b/c/d"]) expect(statSync(join(folder, made))).toMatchObject(AGENT);
});
