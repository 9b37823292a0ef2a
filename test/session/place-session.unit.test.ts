/** A restored session is put in place where the folders belong to somebody else, who lays links about. */
import { expect, test } from "bun:test";
import { chmod, chown, lstat, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { stagedPath } from "../../src/session/disk-staging.ts";
import { placeSession } from "../../src/session/place-session.ts";

const ROOT = process.getuid?.() === 0;
const AGENT = { uid: 34567, gid: 34568 };
const SESSION_FILES = { main: "projects/*/<id>.jsonl", side: "projects/*/<id>" };
const MAIN = "projects/p/s.jsonl";
const SIDE = "projects/p/s/a/b.jsonl";

interface Bench extends AsyncDisposable {
  readonly home: string;
  readonly elsewhere: string;
  place(configDir: string, owner?: typeof AGENT): Promise<Awaited<ReturnType<typeof placeSession>>>;
}

async function open(): Promise<Bench> {
  const folder = await mkdtemp(join(tmpdir(), "dispatchd-place-"));
  await chmod(folder, 0o711);
  const [home, elsewhere, staging] = ["home", "elsewhere", "staging"].map((name) => join(folder, name));
  if (!home || !elsewhere || !staging) throw new Error("no names");
  for (const path of [home, elsewhere, staging]) await mkdir(path, { mode: 0o755 });
  if (ROOT) await chown(home, AGENT.uid, AGENT.gid);
  return {
    home,
    elsewhere,
    async place(configDir, owner) {
      const files = [MAIN, SIDE].map((path) => ({
        path,
        inode: 0,
        changedAt: 0,
        bytes: 4,
        segments: [],
        tailHash: "",
      }));
      for (const number of files.keys()) await writeFile(stagedPath(staging, number), "new\n");
      const order = { configDir, sessionFiles: SESSION_FILES, sessionId: "s", files, staging };
      return placeSession({ ...order, owner: owner ?? null });
    },
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true, force: true }),
  };
}

for (const owner of ROOT ? [undefined, AGENT] : [undefined]) {
  const whose = owner ? "another user's" : "our own";
  test(`what is there goes, what comes is ${whose}, folders included`, async () => {
    await using bench = await open();
    const configDir = join(bench.home, ".config", "x");
    await bench.place(configDir, owner);
    await writeFile(join(configDir, MAIN), "old\n");
    await writeFile(join(configDir, "projects/p/s/stale.jsonl"), "old\n");
    const { files, leftOut } = await bench.place(configDir, owner);
    expect(leftOut).toEqual([]);
    expect(files.map(({ path }) => path)).toEqual([MAIN, SIDE]);
    expect(await readFile(join(configDir, MAIN), "utf8")).toBe("new\n");
    expect((await readdir(configDir, { recursive: true })).sort()).toEqual(
      ["projects", "projects/p", "projects/p/s", MAIN, "projects/p/s/a", SIDE].sort(),
    );
    for (const path of ["", "projects", "projects/p/s/a", MAIN, SIDE]) {
      const { uid } = await lstat(join(configDir, path));
      expect(uid).toBe(owner?.uid ?? process.getuid?.() ?? -1);
    }
  });

  test(`a link in the place of a folder of it is not followed, with folders that are ${whose}`, async () => {
    // Of the agent's own user: a link above its folder leads nowhere that it could not go by itself.
    for (const link of owner ? [".config", ".config/x", ".config/x/projects"] : [".config/x", ".config/x/projects"]) {
      await using bench = await open();
      const path = join(bench.home, link);
      await mkdir(join(path, ".."), { recursive: true });
      if (owner)
        for (const each of [".config", ".config/x"])
          await chown(join(bench.home, each), owner.uid, owner.gid).catch(() => {});
      await symlink(bench.elsewhere, path);
      await expect(bench.place(join(bench.home, ".config", "x"), owner)).rejects.toMatchObject({ code: "ENOTDIR" });
      expect(await readdir(bench.elsewhere)).toEqual([]);
      expect((await lstat(bench.elsewhere)).uid).toBe(process.getuid?.() ?? -1);
    }
  });
}
