/** A relay directory in the hands of somebody who means harm: nothing of it is followed, waited for or believed. */
import { describe, expect, test } from "bun:test";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  appendFile,
  link,
  lstat,
  mkdir,
  readdir,
  readFile,
  rename,
  rm,
  rmdir,
  symlink,
  unlink,
  writeFile,
} from "node:fs/promises";
import { join } from "node:path";
import { systemClock } from "../../src/clock/system.ts";
import { type FileFault, makeFolder, openFolder } from "../../src/tools/relay/folder.ts";
import { followRequests } from "../../src/tools/relay/follow-requests.ts";
import { createSigner } from "../../src/tools/relay/keys.ts";
import { needsRoot } from "../support/needs-root.ts";
import { nameOf, RelayBench, requestContent, until } from "../support/open-relay.ts";
import { recordingLog } from "../support/silent.ts";
import { missingForSmallDisk, SmallDisk } from "../support/small-disk.ts";

const GOOD = JSON.stringify(requestContent());
const OTHER_USER = { uid: 54321, gid: 54321 };
const missingDisk = await missingForSmallDisk();

function makeFifo(path: string): void {
  if (spawnSync("mkfifo", [path]).status !== 0) throw new Error("no FIFO could be made");
}

describe("a file", () => {
  test("that is a link, a FIFO, a folder, has two names or is too large is ignored, once", async () => {
    await using bench = await RelayBench.open();
    const outside = join(bench.folder, "outside.json");
    await writeFile(outside, GOOD);
    await symlink(outside, bench.path(`${nameOf("a")}.req.json`));
    await symlink("/", bench.path(`${nameOf("b")}.req.json`));
    for (const digit of "0123456") makeFifo(bench.path(`${nameOf(digit)}.req.json`));
    await mkdir(bench.path(`${nameOf("c")}.req.json`));
    await writeFile(bench.path("twice"), GOOD);
    await link(bench.path("twice"), bench.path(`${nameOf("d")}.req.json`));
    await writeFile(bench.path("large"), `${GOOD}${" ".repeat(1024 * 1024)}`);
    await rename(bench.path("large"), bench.path(`${nameOf("e")}.req.json`));
    await bench.publish(nameOf("f"), GOOD);
    await until(() => bench.requests.length === 1 && bench.ignored.length === 12);
    const faults: FileFault[] = ["link", "link", "more_than_one_name", "too_large"];
    const sorted = [...faults, ...Array<FileFault>(8).fill("not_regular")].sort();
    expect([...bench.ignored].sort()).toEqual(sorted);
    // Two polls later nothing of it was looked at again.
    await passPoll(bench, nameOf("8"));
    await passPoll(bench, nameOf("9"));
    expect(bench.ignored.length).toBe(12);
    expect(bench.said.filter(({ event }) => event === "relay file ignored").length).toBe(12);
    expect(bench.requests.map(({ name }) => name)).toEqual([nameOf("f"), nameOf("8"), nameOf("9")]);
  });

  test("that is written slowly is a request as soon as it is whole", async () => {
    await using bench = await RelayBench.open();
    const path = bench.path(`${nameOf("a")}.req.json`);
    for (const char of GOOD) {
      await appendFile(path, char);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    await until(() => bench.requests.length === 1);
    expect(bench.ignored).toEqual([]);
  });

  test("that never becomes whole is given up after two seconds, and not read again", async () => {
    await using bench = await RelayBench.open();
    const path = bench.path(`${nameOf("a")}.req.json`);
    const beganAt = performance.now();
    await writeFile(path, "{");
    await until(() => bench.ignored.length === 1);
    expect(performance.now() - beganAt).toBeGreaterThan(1900);
    expect(bench.ignored).toEqual(["no_json"]);
    await writeFile(path, GOOD);
    await bench.publish(nameOf("b"), GOOD);
    await until(() => bench.requests.length > 0);
    expect(bench.requests.map(({ name }) => name)).toEqual([nameOf("b")]);
  });

  test("with something else in it is ignored", async () => {
    await using bench = await RelayBench.open();
    for (const [digit, content] of Object.entries({ a: [], b: { ok: true }, c: requestContent({ pid: "1" }), d: 5 })) {
      await bench.publish(nameOf(digit), content);
    }
    await bench.publish(nameOf("e"), "[".repeat(1024 * 1024));
    await until(() => bench.ignored.length === 5);
    expect(bench.ignored).toEqual(Array(5).fill("misshapen"));
  });

  test("of thousands hides no call, and fills no log", async () => {
    await using bench = await RelayBench.open();
    const files = `for(let i=0;i<6000;i++){const n=i.toString(16).padStart(32,"0");require("fs").writeFileSync(n+".req.json","[]");require("fs").writeFileSync("junk-"+n,"")}`;
    const flood = Bun.spawn([process.execPath, "-e", files], { cwd: bench.directory });
    expect(await flood.exited).toBe(0);
    await bench.publish(nameOf("f"), GOOD);
    await until(() => bench.requests.length === 1);
    await until(() => bench.ignored.length === 6000);
    expect(new Set(bench.ignored)).toEqual(new Set(["misshapen"]));
    await bench.relay.stop();
    const lines = bench.said.filter(({ event }) => event === "relay file ignored");
    expect(lines.length).toBe(20);
    const more = bench.said.filter(({ event }) => event === "relay files ignored");
    expect(more.reduce((sum, { fields }) => sum + Number(fields.files), 0)).toBe(5980);
  }, 30_000);

  test("too many for a listing leave the calls that are seen", async () => {
    await using bench = await RelayBench.open();
    const make = `for(let i=0;i<15000;i++)require("fs").writeFileSync("x".repeat(200)+i,"")`;
    expect(await Bun.spawn([process.execPath, "-e", make], { cwd: bench.directory }).exited).toBe(0);
    await until(() => bench.said.some(({ event }) => event === "relay directory too full"));
    await until(async () => {
      await bench.publish(crypto.randomUUID().replaceAll("-", ""), GOOD);
      await new Promise((resolve) => setTimeout(resolve, 100));
      return bench.requests.length > 0;
    });
    expect(bench.said.filter(({ event }) => event === "relay directory too full").length).toBe(1);
  }, 30_000);
});

describe("the directory", () => {
  test("that was replaced by a link leads nowhere else", async () => {
    await using bench = await RelayBench.open();
    const elsewhere = join(bench.folder, "elsewhere");
    await mkdir(elsewhere);
    await writeFile(join(elsewhere, `${nameOf("a")}.req.json`), GOOD);
    await bench.publish(nameOf("b"), GOOD);
    await until(() => bench.requests.length === 1);
    const moved = join(bench.folder, "moved");
    await rename(bench.directory, moved);
    await symlink(elsewhere, bench.directory);
    await bench.relay.answer(nameOf("b"), { type: "success", text: "private" });
    expect(await readdir(elsewhere)).toEqual([`${nameOf("a")}.req.json`]);
    expect((await readdir(moved)).sort()).toEqual([`${nameOf("b")}.req.json`, `${nameOf("b")}.res.json`, "tools.json"]);
    // What comes into the folder itself is still seen, and nothing of where the link leads.
    await writeFile(join(moved, `${nameOf("c")}.req.json`), GOOD);
    await until(() => bench.requests.length === 2);
    expect(bench.requests.map(({ name }) => name)).toEqual([nameOf("b"), nameOf("c")]);
    await unlink(bench.directory);
  });

  test("is made where a link, a file or a FIFO is in the way", async () => {
    for (const put of [
      (path: string) => symlink("/usr", path),
      (path: string) => writeFile(path, ""),
      async (path: string) => makeFifo(path),
    ]) {
      await using bench = await RelayBench.prepare();
      await put(bench.directory);
      await bench.begin();
      expect((await lstat(bench.directory)).isDirectory()).toBe(true);
      expect(await readdir(bench.directory)).toEqual(["tools.json"]);
    }
    expect(await readdir("/usr")).not.toContain("tools.json");
  });

  needsRoot("belongs to the agent's user, and so does what is written into it", async () => {
    await using bench = await RelayBench.open({ agentUser: OTHER_USER });
    await bench.publish(nameOf("a"), GOOD);
    await until(() => bench.requests.length === 1);
    await bench.relay.answer(nameOf("a"), { type: "pause" });
    for (const file of ["", "tools.json", `${nameOf("a")}.res.json`]) {
      const { uid, gid } = await lstat(bench.path(file));
      expect([file, uid, gid]).toEqual([file, OTHER_USER.uid, OTHER_USER.gid]);
    }
  });

  needsRoot("of somebody else is refused", async () => {
    await using bench = await RelayBench.prepare();
    await mkdir(bench.directory);
    spawnSync("chown", ["12345:12345", bench.directory]);
    await expect(bench.begin({ agentUser: OTHER_USER })).rejects.toThrow("somebody else's");
    expect((await lstat(bench.directory)).uid).toBe(12345);
  });

  test("that is removed withdraws what was asked, and answers fail nobody", async () => {
    await using bench = await RelayBench.open();
    await bench.publish(nameOf("a"), GOOD);
    await bench.publish(nameOf("b"), GOOD);
    await until(() => bench.requests.length === 2);
    await rm(bench.directory, { recursive: true });
    await bench.relay.answer(nameOf("a"), { type: "pause" });
    await until(() => bench.withdrawn.includes(nameOf("b")));
  });
});

test("a disk that does not let go of a dead shim's request is told of, and nothing else comes of it", async () => {
  await using bench = await RelayBench.prepare();
  const folder = await makeFolder(bench.directory, null);
  const remove = () => Promise.reject(Object.assign(new Error("read-only"), { code: "EROFS" }));
  const relay = followRequests(
    {
      isOutside: false,
      clock: systemClock,
      log: recordingLog(bench.said),
      metrics: { relayFileIgnored: () => {} },
      events: { onRequest: () => {}, onWithdrawn: () => {} },
    },
    { ...folder, remove },
    await createSigner("run-1"),
  );
  await bench.publish(nameOf("a"), JSON.stringify(requestContent({ pid: 2 ** 31 - 1 })));
  await until(() => bench.said.some(({ event }) => event === "relay not readable"));
  await relay.stop();
});

describe("an answer", () => {
  test("is written past links, and fails nobody where a folder is in its way", async () => {
    await using bench = await RelayBench.open();
    const outside = join(bench.folder, "outside");
    await writeFile(outside, "untouched");
    await symlink(outside, bench.path(`${nameOf("a")}.res.json`));
    await mkdir(bench.path(`${nameOf("b")}.res.json`));
    await bench.publish(nameOf("a"), GOOD);
    await bench.publish(nameOf("b"), GOOD);
    await until(() => bench.requests.length === 2);
    await bench.relay.answer(nameOf("a"), { type: "success", text: "yes" });
    await bench.relay.answer(nameOf("b"), { type: "success", text: "yes" });
    expect(await readFile(outside, "utf8")).toBe("untouched");
    expect((await lstat(bench.path(`${nameOf("a")}.res.json`))).isFile()).toBe(true);
    expect(bench.said.filter(({ event }) => event === "relay answer not written").length).toBe(1);
    expect((await bench.files()).filter((name) => name.endsWith(".tmp"))).toEqual([]);
    await rmdir(bench.path(`${nameOf("b")}.res.json`));
  });

  test.skipIf(missingDisk !== undefined)("that the disk does not take rejects, and can be given again", async () => {
    await using disk = await SmallDisk.mount(1 << 20);
    await using bench = await RelayBench.open({ directory: join(disk.path, "relay") });
    const directory = join(disk.path, "relay");
    await writeFile(join(directory, `${nameOf("a")}.req.json`), GOOD);
    await until(() => bench.requests.length === 1);
    const text = "x".repeat(2 << 20);
    await expect(bench.relay.answer(nameOf("a"), { type: "success", text })).rejects.toThrow("ENOSPC");
    expect((await readdir(directory)).sort()).toEqual([`${nameOf("a")}.req.json`, "tools.json"]);
    await bench.relay.answer(nameOf("a"), { type: "success", text: "short" });
    expect(await readdir(directory)).toContain(`${nameOf("a")}.res.json`);
    await bench.relay.stop();
  });
});

test("a folder is not entered over a link", async () => {
  await using bench = await RelayBench.open();
  await symlink(bench.directory, join(bench.folder, "link"));
  await expect(openFolder(join(bench.folder, "link"), null)).rejects.toThrow();
});

/** Only the poll finds out that a process has died. */
async function passPoll(bench: RelayBench, name: string): Promise<void> {
  const shim = spawn("sleep", ["60"]);
  await once(shim, "spawn");
  await bench.publish(name, requestContent({ pid: shim.pid }));
  await until(() => bench.requests.some((request) => request.name === name));
  shim.kill("SIGKILL");
  await until(() => bench.withdrawn.includes(name));
}
