/** What the port promises, on every adapter: a folder of a disk, one with an earlier key's folder beside it, the model's. */
import { afterAll, describe, expect, test } from "bun:test";
import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { diskSaveFolder } from "../../src/session/disk-save-folder.ts";
import type { SaveFolder } from "../../src/session/save-folder.ts";
import { Chance } from "./model/chance.ts";
import { Mount } from "./model/mount.ts";

const folder = await mkdtemp(join(tmpdir(), "dispatchd-folder-"));
const opened: AsyncDisposable[] = [];
afterAll(async () => {
  for (const each of opened) await each[Symbol.asyncDispose]();
  await rm(folder, { recursive: true });
});

function onDisk(paths: readonly [string, ...string[]]): SaveFolder {
  const saves = diskSaveFolder(paths);
  opened.push(saves);
  return saves;
}

let made = 0;

const ADAPTERS: Record<string, () => Promise<SaveFolder>> = {
  "a folder of a disk": async () => onDisk([join(folder, `${++made}`, "a", "b")]),
  "two folders of a disk": async () => {
    const older = join(folder, `${++made}`);
    await mkdir(older);
    return onDisk([join(folder, `${++made}`), older]);
  },
  "the model's mount": async () => new Mount(new Map(), { listingTicks: 0, slowTicks: 1 }, () => 0, new Chance(1)),
};

const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString();
const codeOf = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => "no error",
    (error) => error.code,
  );

for (const [name, create] of Object.entries(ADAPTERS)) {
  describe(name, () => {
    test("a folder that is not there has no names", async () => {
      const saves = await create();
      expect(await saves.list()).toEqual([]);
      expect(await saves.stat("x")).toBeUndefined();
      expect(await codeOf(saves.read("x", 0, 1))).toBe("ENOENT");
      await saves.remove("x");
    });

    test("what was written is listed and read, piece by piece", async () => {
      const saves = await create();
      await saves.write("one", [Buffer.from("hello "), new Uint8Array(), Buffer.from("world")]);
      await saves.write("two", []);
      expect([...(await saves.list())].sort()).toEqual(["one", "two"]);
      expect((await saves.stat("one"))?.bytes).toBe(11);
      expect((await saves.stat("two"))?.bytes).toBe(0);
      expect(text(await saves.read("one", 0, 5))).toBe("hello");
      expect(text(await saves.read("one", 6, 100))).toBe("world");
      expect(text(await saves.read("one", 100, 5))).toBe("");
    });

    test("what was removed is gone", async () => {
      const saves = await create();
      await saves.write("one", [Buffer.from("x")]);
      await saves.write("two", [Buffer.from("y")]);
      await saves.remove("one");
      await saves.remove("one");
      expect(await saves.list()).toEqual(["two"]);
      expect(await codeOf(saves.read("one", 0, 1))).toBe("ENOENT");
    });
  });
}

test("on a disk a name is written once, and links and folders are no saves", async () => {
  const place = join(folder, `${++made}`);
  const saves = onDisk([place]);
  await saves.write("one", [Buffer.from("first")]);
  expect(await codeOf(saves.write("one", [Buffer.from("second")]))).toBe("EEXIST");
  expect(text(await saves.read("one", 0, 9))).toBe("first");
  await writeFile(join(folder, "secret"), "of the pod");
  await symlink(join(folder, "secret"), join(place, "link"));
  await mkdir(join(place, "sub"));
  Bun.spawnSync(["mkfifo", join(place, "fifo")]);
  for (const name of ["link", "sub", "fifo"]) expect(await saves.stat(name)).toBeUndefined();
  const server = Bun.listen({ unix: join(place, "socket"), socket: { data() {} } });
  for (const name of ["link", "sub", "fifo", "socket"]) expect(await codeOf(saves.read(name, 0, 9))).toBe("EISDIR");
  server.stop(true);
  // What is in the way of a deletion stays, and keeps nothing else.
  for (const name of ["link", "sub", "fifo"]) await saves.remove(name);
  expect([...(await saves.list())].sort()).toEqual(["one", "sub"]);
});

test("saves of an earlier key's folder are listed, read and removed there; new ones go to the first", async () => {
  const [newer, older] = [join(folder, `${++made}`), join(folder, `${++made}`)];
  await onDisk([older]).write("old", [Buffer.from("x")]);
  const saves = onDisk([newer, older]);
  expect((await saves.stat("old"))?.bytes).toBe(1);
  await saves.list();
  await saves.write("new", [Buffer.from("y")]);
  expect([...(await saves.list())].sort()).toEqual(["new", "old"]);
  expect(text(await saves.read("old", 0, 1))).toBe("x");
  await saves.remove("old");
  expect(await onDisk([older]).list()).toEqual([]);
  expect(await onDisk([newer]).list()).toEqual(["new"]);
});

test("on a disk that takes only a part of a save nothing of it stays, and what was there does", async () => {
  const place = join(folder, `${++made}`);
  const saves = onDisk([place]);
  await saves.write("whole", [Buffer.from("first")]);
  const module = join(import.meta.dir, "../../src/session/disk-save-folder.ts");
  const script = `
    const { diskSaveFolder } = await import(${JSON.stringify(module)});
    const saves = diskSaveFolder([${JSON.stringify(place)}]);
    const codes = [];
    for (const name of ["new", "newer", "whole"])
      codes.push(await saves.write(name, [Buffer.alloc(100_000)]).then(() => "no error", (error) => error.code));
    console.log(JSON.stringify(codes));
  `;
  // No file may be longer than some blocks: the first write takes a part, the next one fails.
  const limited = ["sh", "-c", 'trap "" XFSZ; ulimit -f 8; exec "$0" -e "$1"', process.execPath, script];
  const { stdout } = Bun.spawnSync(limited);
  expect(JSON.parse(stdout.toString())).toEqual(["EFBIG", "EFBIG", "EEXIST"]);
  expect(await saves.list()).toEqual(["whole"]);
  expect(text(await saves.read("whole", 0, 9))).toBe("first");
});
