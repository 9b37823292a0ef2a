/** A command runs with the pinned Bun, or not at all. */
import { afterEach, beforeEach, expect, test } from "bun:test";
import { copyFile, mkdir, mkdtemp, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

let folder = "";
beforeEach(async () => {
  folder = await realpath(await mkdtemp(join(tmpdir(), "dispatchd-with-bun-")));
  await mkdir(join(folder, "scripts"));
  await copyFile(join(import.meta.dir, "../../scripts/with-bun.sh"), join(folder, "scripts/with-bun.sh"));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

/** Runs a command behind a set-up that does `setup`. */
async function withBun(setup: string, ...cmd: string[]): Promise<{ exit: number; out: string; err: string }> {
  await writeFile(join(folder, "scripts/setup.sh"), setup);
  const child = Bun.spawn(["sh", join(folder, "scripts/with-bun.sh"), ...cmd], {
    cwd: tmpdir(),
    env: { PATH: "/usr/bin:/bin" },
    stdout: "pipe",
    stderr: "pipe",
  });
  const [out, err] = await Promise.all([child.stdout.text(), child.stderr.text()]);
  return { exit: await child.exited, out, err };
}

test("the folder that the set-up names last is first on PATH, and the command's status is what comes of it", async () => {
  const run = await withBun('echo noise\necho "/the folder/bin"\n', "sh", "-c", 'echo "$PATH"; pwd; exit 7');
  expect(run).toEqual({ exit: 7, out: `/the folder/bin:/usr/bin:/bin\n${folder}\n`, err: "" });
});

test("a set-up that fails ends it with its status, and the command does not run", async () => {
  const run = await withBun("echo /half/way\necho 'no network' >&2\nexit 3\n", "echo", "it ran");
  expect(run).toEqual({ exit: 3, out: "", err: "no network\n" });
});
