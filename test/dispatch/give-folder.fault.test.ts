import { afterEach, beforeEach, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, realpathSync, rmSync, statSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { giveFolder, takeOverFolder } from "../../src/dispatch/give-folder.ts";

const AGENT = { uid: 12345, gid: 12346 };
const isRoot = process.getuid?.() === 0;
let folder: string;

beforeEach(() => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), "dispatchd-give-")));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

// Ownership can be given by root alone; CI is root.
test.skipIf(!isRoot)("a new folder belongs to the agent, one that is there stays as it is", async () => {
  await giveFolder(join(folder, "a/b"), AGENT);
  expect(statSync(join(folder, "a/b"))).toMatchObject(AGENT);
  expect(statSync(join(folder, "a"))).toMatchObject(AGENT);
  mkdirSync(join(folder, "there"));
  await giveFolder(join(folder, "there"), AGENT);
  expect(statSync(join(folder, "there")).uid).toBe(0);
});

test.skipIf(!isRoot)("what a link points to is never given away", async () => {
  mkdirSync(join(folder, "etc"));
  mkdirSync(join(folder, "home"));
  symlinkSync(join(folder, "etc"), join(folder, "home/.claude"));
  symlinkSync(folder, join(folder, "home/up"));
  expect(await takeOverFolder(join(folder, "home/.claude"), AGENT)).toBe(false);
  expect(await takeOverFolder(join(folder, "home/up/etc"), AGENT)).toBe(false);
  await giveFolder(join(folder, "home/.claude"), AGENT);
  expect(statSync(join(folder, "etc")).uid).toBe(0);
});

test.skipIf(!isRoot)("a folder of ours is taken over at the start, one of somebody else's is not", async () => {
  mkdirSync(join(folder, "config"));
  expect(await takeOverFolder(join(folder, "config"), AGENT)).toBe(true);
  expect(statSync(join(folder, "config"))).toMatchObject(AGENT);
  expect(await takeOverFolder(join(folder, "config"), AGENT)).toBe(true);
  expect(await takeOverFolder(join(folder, "config"), { uid: 23456, gid: 23456 })).toBe(false);
});
