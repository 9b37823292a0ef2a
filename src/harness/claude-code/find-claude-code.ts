/**
 * Where Claude Code is. It is a program of its own and not part of this binary, so it is looked for where an
 * installation of this binary would put it: beside it, in the `node_modules` of the folders above it (of its real
 * path: it may be symlinked or renamed), on PATH, and where Claude Code's own installers put it.
 */
import { accessSync, constants, existsSync, realpathSync, statSync } from "node:fs";
import { delimiter, dirname, isAbsolute, join } from "node:path";
import { TurnFailure } from "./turn-failure.ts";

export interface Whereabouts {
  /** `CLAUDE_CODE_PATH`: then nothing else is looked at. */
  readonly configured: string | null;
  /** This program: `process.execPath`. */
  readonly execPath: string;
  /** The folder of this module; of no use inside a compiled binary, where it is virtual. */
  readonly moduleDir: string;
  readonly path: string | undefined;
  readonly home: string | undefined;
}

/** The path of the executable. Throws TurnFailure when there is none. */
export function findClaudeCode(whereabouts: Whereabouts): string {
  if (whereabouts.configured !== null) {
    if (isExecutable(whereabouts.configured)) return whereabouts.configured;
    throw new TurnFailure("turn_failed", "CLAUDE_CODE_PATH does not name an executable file");
  }
  for (const candidate of candidates(whereabouts)) if (isExecutable(candidate)) return candidate;
  throw new TurnFailure(
    "turn_failed",
    "Claude Code was not found on this pod: install it beside this binary, in a node_modules folder above it, or on " +
      "PATH, or set CLAUDE_CODE_PATH",
  );
}

function* candidates(whereabouts: Whereabouts): Generator<string> {
  const starts = [dirname(realPath(whereabouts.execPath))];
  if (!whereabouts.moduleDir.startsWith("/$bunfs")) starts.push(whereabouts.moduleDir);
  yield join(starts[0] ?? "/", "claude");
  for (const start of starts) {
    for (const folder of ancestors(start)) {
      for (const name of packageNames()) yield join(folder, "node_modules", name, "claude");
      yield join(folder, "node_modules", ".bin", "claude");
    }
  }
  for (const folder of (whereabouts.path ?? "").split(delimiter)) {
    // A relative entry would mean the checkout, where anybody may have put a `claude`.
    if (isAbsolute(folder)) yield join(folder, "claude");
  }
  if (whereabouts.home && isAbsolute(whereabouts.home)) {
    yield join(whereabouts.home, ".local/bin/claude");
    yield join(whereabouts.home, ".claude/local/claude");
  }
  for (const folder of ["/usr/local/bin", "/usr/bin", "/opt/homebrew/bin", "/opt/claude-code"])
    yield join(folder, "claude");
}

function packageNames(): string[] {
  const base = `${process.platform}-${process.arch}`;
  const musl = existsSync(`/lib/ld-musl-${process.arch === "arm64" ? "aarch64" : "x86_64"}.so.1`);
  const targets = musl ? [`${base}-musl`, base] : [base, `${base}-musl`];
  return targets.flatMap((target) => [
    `@anthropic-ai/claude-agent-sdk-${target}`,
    `@anthropic-ai/claude-code-${target}`,
  ]);
}

function* ancestors(start: string): Generator<string> {
  for (let folder = start; ; folder = dirname(folder)) {
    yield folder;
    if (folder === dirname(folder)) return;
  }
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    // Absent, or not for this user: the next place is looked at.
    return false;
  }
}

function realPath(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    // The file was replaced or removed while it runs; its folder still says where it was installed.
    return path;
  }
}
