/** The binary is one file: it works under any name, from any place, without the folder that it was built in. */
import { expect, test } from "bun:test";
import { chmod, copyFile, mkdir, mkdtemp, rename, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, relative, resolve } from "node:path";
import { findClaudeCode } from "../../src/harness/claude-code/find-claude-code.ts";
import { BINARY, type DaemonSetup, TestDaemon } from "../support/daemon.ts";
import { needsRoot } from "../support/needs-root.ts";
import { type ScriptedModel, says, startScriptedModel } from "../support/scripted-model/index.ts";

const REPO = resolve(import.meta.dir, "../..");
const CLAUDE_CODE = findClaudeCode({
  configured: process.env.CLAUDE_CODE_PATH ?? null,
  execPath: BINARY,
  moduleDir: import.meta.dir,
  path: process.env.PATH,
  home: process.env.HOME,
});

interface Bench extends AsyncDisposable {
  readonly folder: string;
  readonly model: ScriptedModel;
}

async function openBench(): Promise<Bench> {
  const folder = await mkdtemp(join(tmpdir(), "dispatchd-anywhere-"));
  const model = await startScriptedModel();
  return {
    folder,
    model,
    async [Symbol.asyncDispose]() {
      await model.stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** A turn of the built-in harness with the real Claude Code; resolves with the text of its reply. */
async function turn({ model }: Bench, setup: DaemonSetup): Promise<string> {
  await using daemon = await TestDaemon.start({ harness: null, ...setup });
  model.push(says("Here I am."));
  const env = { ANTHROPIC_BASE_URL: model.url, ANTHROPIC_API_KEY: "no-credential" };
  const frames = await daemon.run({ runId: "r", input: { userMessage: "Are you there?", env } });
  const text = frames.flatMap(({ chunks }) =>
    chunks.filter(({ type }) => type === "text-delta").map(({ delta }) => delta),
  );
  const outcome = frames.find((frame) => frame.outcome)?.outcome;
  return outcome?.type === "finished" ? text.join("") : JSON.stringify(outcome);
}

test("renamed, without any PATH, with Claude Code named by its path", async () => {
  await using bench = await openBench();
  const binary = join(bench.folder, "another name");
  await copyFile(BINARY, binary);
  for (const PATH of ["", undefined]) {
    expect(await turn(bench, { binary, env: { PATH, CLAUDE_CODE_PATH: CLAUDE_CODE } })).toBe("Here I am.");
  }
});

test("by a symbolic link, Claude Code is found beside the file that it leads to", async () => {
  await using bench = await openBench();
  const link = join(bench.folder, "linked");
  await symlink(BINARY, link);
  expect(await turn(bench, { binary: link, env: { PATH: "" } })).toBe("Here I am.");
});

test("by a relative path, from another folder", async () => {
  await using bench = await openBench();
  await mkdir(join(bench.folder, "deep", "er"), { recursive: true });
  const cwd = join(bench.folder, "deep", "er");
  expect(await turn(bench, { binary: relative(cwd, BINARY), cwd, env: { PATH: "" } })).toBe("Here I am.");
});

test("Claude Code is found beside the binary and on PATH, and what is missing is said", async () => {
  await using bench = await openBench();
  const binary = join(bench.folder, "bin", "dispatchd");
  await mkdir(join(bench.folder, "bin"));
  await mkdir(join(bench.folder, "path"));
  await copyFile(BINARY, binary);
  const isolated = { PATH: "", HOME: bench.folder };

  const claude = join(bench.folder, "bin", "claude");
  await symlink(CLAUDE_CODE, claude);
  expect(await turn(bench, { binary, env: isolated })).toBe("Here I am.");
  await rename(claude, join(bench.folder, "path", "claude"));
  expect(await turn(bench, { binary, env: { ...isolated, PATH: join(bench.folder, "path") } })).toBe("Here I am.");

  const notThere = await turn(bench, { binary, env: { ...isolated, CLAUDE_CODE_PATH: join(bench.folder, "none") } });
  expect(JSON.parse(notThere)).toMatchObject({
    error: { code: "turn_failed", message: "CLAUDE_CODE_PATH does not name an executable file" },
  });
});

/** Lines and bodies past 256 KiB are parsed by a worker thread, whose program is in the binary too. */
needsRoot("large frames and bodies, where the folder that it was built in does not exist", async () => {
  await using bench = await openBench();
  const binary = join(bench.folder, "dispatchd");
  await copyFile(BINARY, binary);
  const elsewhere = join(bench.folder, "elsewhere");
  await writeFile(
    elsewhere,
    `#!/bin/sh\nexec unshare --mount sh -c 'mount -t tmpfs none "${REPO}" && [ ! -e "${REPO}/package.json" ] && exec "${binary}" "$@"' sh "$@"\n`,
  );
  await chmod(elsewhere, 0o755);
  const large = `head -c 3000000 /dev/zero | tr '\\0' x`;
  const script = `printf '{"chunks":[{"type":"data-x","data":"'; ${large}; printf '"}]}\\n'; cat >/dev/null`;
  await using daemon = await TestDaemon.start({
    binary: elsewhere,
    harness: ["/bin/sh", "-c", script],
    env: { RUN_ENV_ALLOW: "PATH" },
  });
  const frames = await daemon.run({ runId: "r", input: { padding: "x".repeat(3_000_000) } });
  const chunk = frames.flatMap(({ chunks }) => chunks).find(({ type }) => type === "data-x");
  expect(String(chunk?.data).length).toBe(3_000_000);
  expect(frames.at(-2)?.outcome?.type).toBe("finished");
});

needsRoot("the built-in harness loads all that it needs from the binary itself", async () => {
  await using bench = await openBench();
  const binary = join(bench.folder, "dispatchd");
  await copyFile(BINARY, binary);
  const elsewhere = join(bench.folder, "elsewhere");
  const claude = join(bench.folder, "claude");
  await writeFile(claude, "");
  await chmod(claude, 0o755);
  await writeFile(
    elsewhere,
    `#!/bin/sh\nexec unshare --mount sh -c 'mount --bind "${CLAUDE_CODE}" "${claude}" && mount -t tmpfs none "${REPO}" && exec "${binary}" "$@"' sh "$@"\n`,
  );
  await chmod(elsewhere, 0o755);
  expect(await turn(bench, { binary: elsewhere })).toBe("Here I am.");
});
