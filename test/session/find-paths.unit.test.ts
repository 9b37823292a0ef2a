import { afterEach, beforeEach, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findTranscript } from "../../src/session/find-transcript.ts";
import { formatSaveName, isSaveName, nextTurn, type SaveName } from "../../src/session/save-name.ts";

const FILES = { main: "projects/*/<id>.jsonl", side: "projects/*/<id>" };
let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "dispatchd-find-"));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

function transcript(...path: string[]): string {
  mkdirSync(join(root, ...path.slice(0, -1)), { recursive: true });
  writeFileSync(join(root, ...path), "a line\n");
  return join(root, ...path);
}

test("a transcript is found in any folder, and not over a link", async () => {
  const path = transcript("config", "projects", "some-where", "s1.jsonl");
  transcript("elsewhere", "s2.jsonl");
  symlinkSync(join(root, "elsewhere"), join(root, "config/projects/linked"));
  symlinkSync(join(root, "elsewhere/s2.jsonl"), join(root, "config/projects/some-where/s3.jsonl"));
  symlinkSync(join(root, "config"), join(root, "other-config"));
  const find = (id: string, config = "config") => findTranscript(join(root, config), FILES, id);
  expect(await find("s1")).toBe(path);
  expect(await find("s2")).toBeUndefined();
  expect(await find("s3")).toBeUndefined();
  expect(await find("s1", "other-config")).toBeUndefined();
});

test("whatever stands in the way of a transcript, there is none", async () => {
  mkdirSync(join(root, "file"));
  writeFileSync(join(root, "file/projects"), "");
  mkdirSync(join(root, "loop"));
  symlinkSync("projects", join(root, "loop/projects"));
  writeFileSync(join(root, "no-folder"), "");
  transcript("folder", "projects", "p", "s1.jsonl", "x");
  mkdirSync(join(root, "empty/projects/p"), { recursive: true });
  writeFileSync(join(root, "empty/projects/p/s1.jsonl"), "");
  for (const config of ["file", "loop", "no-folder", "folder", "empty", "missing"]) {
    expect([config, await findTranscript(join(root, config), FILES, "s1")]).toEqual([config, undefined]);
  }
});

test("a name that leaves no room above it is no save's, and the highest one stops no run", () => {
  const run = "z".repeat(16);
  const named = (turn: number): string => `${"0".repeat(16)}-${String(turn).padStart(8, "0")}-${run}-000000-s`;
  expect(isSaveName(named(99_999_999))).toBe(false);
  expect(isSaveName(named(90_000_000))).toBe(false);
  expect(isSaveName(named(89_999_999))).toBe(true);
  const turn = nextTurn([named(89_999_999) as SaveName]);
  expect(formatSaveName({ fence: 0, turn, run, number: 1, marked: false })).toContain("-89999999-");
});
