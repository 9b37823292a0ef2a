import { expect, test } from "bun:test";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Clock } from "../../src/clock/port.ts";
import { Tombstones } from "../../src/dispatch/tombstones.ts";

async function withFolder(use: (folder: string) => Promise<void>): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "dispatchd-tombstones-"));
  try {
    await use(folder);
  } finally {
    await rm(folder, { recursive: true });
  }
}

test("an id is refused for 60 s, in force at once, and then forgotten with its file", () =>
  withFolder(async (folder) => {
    let now = 1_000_000;
    const tombstones = new Tombstones(folder, { now: () => now } as Clock);
    const stored = tombstones.add("../a");
    expect([tombstones.has("../a"), tombstones.has("b")]).toEqual([true, false]);
    await stored;
    now += 59_999;
    expect(tombstones.has("../a")).toBe(true);
    await tombstones.sweep();
    expect((await readdir(folder)).length).toBe(1);
    now += 1;
    expect(tombstones.has("../a")).toBe(false);
    await tombstones.sweep();
    expect(await readdir(folder)).toEqual([]);
  }));

test("a cancel that comes again begins the 60 s anew", () =>
  withFolder(async (folder) => {
    let now = 0;
    const tombstones = new Tombstones(folder, { now: () => now } as Clock);
    await tombstones.add("a");
    now = 50_000;
    await tombstones.add("a");
    now = 109_999;
    expect(tombstones.has("a")).toBe(true);
  }));

test("the next daemon knows it for the rest of its time, and no longer than 60 s whatever the clock did", () =>
  withFolder(async (folder) => {
    let now = 1_000_000;
    const clock = { now: () => now } as Clock;
    await new Tombstones(folder, clock).add("a");
    await writeFile(join(folder, "torn"), '{"runId":"b","un');
    now += 30_000;
    const next = new Tombstones(folder, clock);
    await next.load();
    expect([next.has("a"), next.has("b"), (await readdir(folder)).length]).toEqual([true, false, 1]);
    now += 30_000;
    expect(next.has("a")).toBe(false);

    now = 0;
    const setBack = new Tombstones(folder, clock);
    await setBack.load();
    expect(setBack.has("a")).toBe(true);
    now = 60_000;
    expect(setBack.has("a")).toBe(false);
  }));
