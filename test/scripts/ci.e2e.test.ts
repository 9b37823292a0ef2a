/** What CI says: the tests' output as it comes, their status, and the count as the last line. */
import { afterEach, beforeEach, expect, test } from "bun:test";
import { chmod, copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

let folder = "";
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "dispatchd-ci-"));
  await mkdir(join(folder, ".ci"));
  await mkdir(join(folder, "bin"));
  await copyFile(join(import.meta.dir, "../../.ci/run"), join(folder, ".ci/run"));
  // Nothing is to be installed by a test.
  for (const name of ["ip", "curl"]) await program(name, "exit 0");
});
afterEach(() => rm(folder, { recursive: true, force: true }));

async function program(name: string, script: string): Promise<void> {
  await writeFile(join(folder, "bin", name), `#!/bin/sh\n${script}\n`);
  await chmod(join(folder, "bin", name), 0o755);
}

/** CI with an npm that does `demo` and `tests`. */
async function startCi(tests: string, demo = "exit 0") {
  await program("npm", `case "$*" in *demo*) ${demo} ;; *) ${tests} ;; esac`);
  return Bun.spawn(["sh", join(folder, ".ci/run")], {
    env: { PATH: `${join(folder, "bin")}:/usr/bin:/bin`, TMPDIR: folder },
    stdout: "pipe",
    stderr: "ignore",
  });
}

async function runCi(tests: string, demo?: string): Promise<{ exit: number; last: string | undefined }> {
  const child = await startCi(tests, demo);
  const out = await child.stdout.text();
  return { exit: await child.exited, last: out.trimEnd().split("\n").at(-1) };
}

test("shows what the tests say while they run, stderr too", async () => {
  const child = await startCi(
    'echo begun >&2; until [ -e go ]; do sleep 0.01; done; echo "1 passed, 0 failed, 0 skipped"',
  );
  const reader = child.stdout.getReader();
  const { value } = await reader.read();
  expect(new TextDecoder().decode(value)).toBe("begun\n");
  await writeFile(join(folder, "go"), "");
  while (!(await reader.read()).done);
  expect(await child.exited).toBe(0);
});

test.each([
  ["what passed", 'echo "3 passed, 0 failed, 1 skipped"', 0, "3 passed, 0 failed, 1 skipped"],
  [
    "what failed",
    'echo "2 passed, 1 failed, 0 skipped"; echo "a late word"; exit 1',
    1,
    "2 passed, 1 failed, 0 skipped",
  ],
  ["a build that failed", "echo no build; exit 2", 1, "no build"],
  ["a suite without a count", "echo nothing ran", 1, "nothing ran"],
])("status and last line: %s", async (_, tests, exit, last) => {
  expect(await runCi(tests)).toEqual({ exit, last });
});

test("does not wait for a process that a test has left behind", async () => {
  const counted = "3 passed, 0 failed, 0 skipped";
  const began = performance.now();
  expect(await runCi(`sleep 60 & echo $! >left; echo "${counted}"`)).toEqual({ exit: 0, last: counted });
  expect(performance.now() - began).toBeLessThan(30_000);
  process.kill(Number(await readFile(join(folder, "left"), "utf8")), "SIGKILL");
}, 60_000);

test("a demo that fails fails it, and the tests run all the same", async () => {
  const counted = "3 passed, 0 failed, 0 skipped";
  expect(await runCi(`echo "${counted}"`, "exit 1")).toEqual({ exit: 1, last: counted });
});
