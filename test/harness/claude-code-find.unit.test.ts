/** Where Claude Code is looked for, and in which order. */
import { afterEach, beforeEach, expect, test } from "bun:test";
import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { findClaudeCode, type Whereabouts } from "../../src/harness/claude-code/find-claude-code.ts";

const PACKAGE = `node_modules/@anthropic-ai/claude-agent-sdk-${process.platform}-${process.arch}/claude`;
let root = "";

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "find-claude-code-"));
});
afterEach(() => rmSync(root, { recursive: true }));

function program(path: string, mode = 0o755): string {
  const full = join(root, path);
  mkdirSync(dirname(full), { recursive: true });
  writeFileSync(full, "#!/bin/sh\n");
  chmodSync(full, mode);
  return full;
}

function find(choices: Partial<Whereabouts>): string {
  const none = { configured: null, moduleDir: "/$bunfs/root", path: undefined, home: undefined };
  return findClaudeCode({ ...none, execPath: join(root, "app/dist/dispatchd"), ...choices });
}

test("beside the binary, before anything else", () => {
  const beside = program("app/dist/claude");
  program(`app/${PACKAGE}`);
  expect(find({ path: dirname(program("bin/claude")) })).toBe(beside);
});

test("in the node_modules of any folder above the binary's real path", () => {
  const installed = program(`app/${PACKAGE}`);
  const binary = program("app/dist/dispatchd");
  mkdirSync(join(root, "elsewhere"));
  symlinkSync(binary, join(root, "elsewhere/renamed"));
  expect(find({ execPath: join(root, "elsewhere/renamed") })).toBe(installed);
});

test("on PATH, where only absolute entries count", () => {
  const onPath = program("bin/claude");
  expect(find({ path: `.:bin::${dirname(onPath)}` })).toBe(onPath);
});

test("where its installer puts it for the user", () => {
  const installed = program("home/.local/bin/claude");
  expect(find({ home: join(root, "home"), path: "" })).toBe(installed);
});

test("what is not executable, or is a folder, is passed over", () => {
  program("app/dist/claude", 0o644);
  mkdirSync(join(root, "bin/claude"), { recursive: true });
  const installed = program(`${PACKAGE}`);
  expect(find({ path: join(root, "bin") })).toBe(installed);
});

test("a configured path is the only one", () => {
  const configured = program("mine/cc");
  program("app/dist/claude");
  expect(find({ configured })).toBe(configured);
  expect(() => find({ configured: join(root, "nothing") })).toThrow(
    "CLAUDE_CODE_PATH does not name an executable file",
  );
});
