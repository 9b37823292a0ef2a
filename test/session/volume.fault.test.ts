/** Sessions over real workers and real mounts that hang, fail, run full, lag behind and go away. */
import { expect, test } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "../../src/clock/system.ts";
import { fileNameOf } from "../../src/disk.ts";
import type { OrgFs } from "../../src/orgfs/port.ts";
import { createOrgFs } from "../../src/orgfs/supervisor.ts";
import { eventually } from "../support/daemon.ts";
import { RcloneVolume, rcloneMissing } from "../support/rclone.ts";
import { recordingLog, silentMetrics } from "../support/silent.ts";
import { type MountSetup, mountsMissing, WedgeFs } from "../support/wedgefs/index.ts";
import { DiskPod } from "./pod-disk.ts";

const needsMount = test.skipIf(mountsMissing !== undefined && process.env.CI === undefined);

function realFlights(home: string) {
  return createOrgFs({
    clock: systemClock,
    log: recordingLog(),
    metrics: silentMetrics(),
    workerArgv: [process.execPath, join(import.meta.dir, "../orgfs/real-worker.ts")],
    mountPathOf: () => home,
  });
}

/** A pod with a mount of its own of the volume that `backing` is. */
class MountedPod implements AsyncDisposable {
  private constructor(
    readonly pod: DiskPod,
    readonly mount: WedgeFs,
    private readonly folder: string,
    readonly orgFs: OrgFs,
  ) {}

  static async start(setup: MountSetup = {}, env: Record<string, string> = {}): Promise<MountedPod> {
    const folder = await mkdtemp(join(tmpdir(), "dispatchd-mounted-"));
    const home = join(folder, "home");
    const mount = await WedgeFs.mount(home, setup);
    const orgFs = realFlights(home);
    const pod = await DiskPod.create({ home }, { env: { SESSION_IO_BUDGET_MS: "2000", ...env }, orgFs });
    return new MountedPod(pod, mount, folder, orgFs);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.orgFs.stop();
    await this.mount[Symbol.asyncDispose]();
    await this.pod[Symbol.asyncDispose]();
    await rm(this.folder, { recursive: true, force: true });
  }
}

needsMount("two pods, two mounts, one volume: the conversation goes back and forth", async () => {
  await using a = await MountedPod.start();
  await using b = await MountedPod.start({ backing: a.mount.backing });
  expect((await a.pod.turn("thread", "one\n")).settled.saved).toBe(true);
  expect((await b.pod.turn("thread", "two\n")).found.state).toBe("restored");
  expect((await a.pod.turn("thread", "three\n")).found.state).toBe("restored");
  expect(await a.pod.read("projects/p/s1.jsonl")).toBe("one\ntwo\nthree\n");
});

needsMount(
  "a save that hangs is given up, and does not undo a newer one when it wakes",
  async () => {
    await using a = await MountedPod.start();
    await using b = await MountedPod.start({ backing: a.mount.backing });
    await a.pod.turn("thread", "one\n", { fence: 1 });
    const run = await a.pod.begin("thread", { fence: 2 });
    await a.pod.say(run, "s1", "of the pod that hangs\n");
    await a.mount.hold({ ops: ["create", "write"] });
    const startedAt = performance.now();
    const settled = await run.save({ deadlineMs: 800 });
    expect(settled).toMatchObject({ saved: false, reason: "the org volume did not take the save in time" });
    expect(performance.now() - startedAt).toBeLessThan(1500);
    expect((await b.pod.turn("thread", "two\n", { fence: 3 })).found.state).toBe("restored");
    await a.mount.release();
    await using c = await MountedPod.start({ backing: a.mount.backing });
    expect((await c.pod.begin("thread", { fence: 4 })).found.state).toBe("restored");
    expect(await c.pod.read("projects/p/s1.jsonl")).toBe("one\ntwo\n");
  },
  20_000,
);

needsMount(
  "the claim of a suspension: seen through another mount; a volume that hangs bounds it, and the late save tells",
  async () => {
    const claim = { exp: Math.floor(Date.now() / 1000) + 3600, deadlineMs: 800 };
    await using a = await MountedPod.start();
    await using b = await MountedPod.start({ backing: a.mount.backing });
    await a.pod.turn("thread", "one\n", { fence: 1 });
    const run = await a.pod.begin("thread", { fence: 2 });
    expect(await run.claimSuspension("first", "r1", claim)).toEqual({
      type: "claimed",
      again: false,
      durable: "volume",
    });
    const other = await b.pod.begin("thread", { fence: 3 });
    expect(await other.claimSuspension("first", "r2", claim)).toEqual({ type: "used", by: "r1" });

    await b.mount.hold({ ops: ["create", "write"] });
    const startedAt = performance.now();
    const reason = "the org volume did not take the save in time";
    expect(await other.claimSuspension("second", "r2", claim)).toEqual({
      type: "claimed",
      again: false,
      durable: "pod",
      reason,
    });
    expect(performance.now() - startedAt).toBeLessThan(1500);
    await b.mount.release();
    expect(await other.save({ deadlineMs: 5000 })).toMatchObject({ saved: true });
    const late = await a.pod.begin("thread", { fence: 4 });
    expect(await late.claimSuspension("second", "r3", claim)).toEqual({ type: "used", by: "r2" });
    expect(await a.pod.read("projects/p/s1.jsonl")).toBe("one\n");
  },
  20_000,
);

needsMount(
  "a volume that hangs in the restore costs the budget and the history, and comes back",
  async () => {
    await using a = await MountedPod.start();
    await a.pod.turn("thread", "one\n");
    await using b = await MountedPod.start({ backing: a.mount.backing }, { SESSION_IO_BUDGET_MS: "600" });
    await b.mount.hold();
    const startedAt = performance.now();
    const run = await b.pod.begin("thread");
    expect(run.found).toEqual({ state: "fresh", reason: "the org volume did not answer in time" });
    expect(performance.now() - startedAt).toBeLessThan(1500);
    run.stop();
    await b.mount.release();
    await using c = await MountedPod.start({ backing: a.mount.backing });
    expect((await c.pod.begin("thread")).found.state).toBe("restored");
  },
  20_000,
);

needsMount(
  "while a flight of the thread hangs, its next run looks at the store for a moment, and so does its save",
  async () => {
    const within = async <T>(ms: number, work: Promise<T>): Promise<T> => {
      const startedAt = performance.now();
      const result = await work;
      expect(performance.now() - startedAt).toBeLessThan(ms);
      return result;
    };
    await using a = await MountedPod.start({}, { SESSION_IO_BUDGET_MS: "30000" });
    await a.pod.turn("thread", "one\n");
    const run = await a.pod.begin("thread");
    await a.pod.say(run, "s1", "two\n");
    await a.mount.hold();
    // The next message comes while the last save hangs, which is given up for it, and cannot be ended.
    const superseded = new AbortController();
    const settling = run.save({ deadlineMs: 30_000, signal: superseded.signal });
    await a.mount.untilHeld();
    const begun = within(5000, a.pod.begin("thread"));
    superseded.abort();
    expect((await settling).saved).toBe(false);
    const next = await begun;
    const reason = "the org volume has not answered the thread's last run yet, and this one not in time";
    expect(next.found).toMatchObject({ id: "s1", state: "stale-session", reason });
    await a.pod.say(next, "s1", "three\n");
    const settled = await within(5000, next.save({ deadlineMs: 30_000 }));
    expect(settled).toMatchObject({ saved: false, reason: "the org volume did not take the save in time" });
    // Another thread has all of the time: what hangs is none of its.
    const other = a.pod.begin("another thread");
    await a.mount.release();
    expect((await other).found).toEqual({ state: "fresh" });
    await eventually(() => !a.orgFs.isStuck(`session ${fileNameOf("thread")}`));
    const last = await a.pod.turn("thread", "four\n");
    expect([last.found.state, last.settled.saved]).toEqual(["local", true]);
    await using b = await MountedPod.start({ backing: a.mount.backing });
    await b.pod.begin("thread");
    expect(await b.pod.read("projects/p/s1.jsonl")).toBe("one\ntwo\nthree\nfour\n");
  },
  30_000,
);

needsMount(
  "while a flight of the thread hangs, the daemon's end gives the save that is under way all of its time",
  async () => {
    await using a = await MountedPod.start({}, { SESSION_IO_BUDGET_MS: "1000" });
    await a.pod.turn("thread", "one\n");
    await a.mount.hold();
    expect((await a.pod.begin("thread")).found.state).toBe("stale-session");
    await eventually(() => a.orgFs.isStuck(`session ${fileNameOf("thread")}`));
    const run = await a.pod.begin("thread");
    await a.pod.say(run, "s1", "two\n");
    const shutdown = new AbortController();
    const settling = run.save({ deadlineMs: 12_000, last: shutdown.signal });
    await Bun.sleep(500);
    shutdown.abort();
    await Bun.sleep(2500);
    await a.mount.release();
    expect((await settling).saved).toBe(true);
  },
  30_000,
);

needsMount(
  "a save that was given up is tried again as soon as what hung is answered",
  async () => {
    await using a = await MountedPod.start({}, { SESSION_IO_BUDGET_MS: "500", ORG_RETRY_EVERY_MS: "60000" });
    await a.pod.turn("thread", "one\n");
    const run = await a.pod.begin("thread");
    await a.pod.say(run, "s1", "two\n");
    await a.mount.hold();
    expect((await run.save({ deadlineMs: 500 })).saved).toBe(false);
    await eventually(() => a.orgFs.isStuck(`session ${fileNameOf("thread")}`));
    await Bun.sleep(300);
    await a.mount.release();
    const saved = (): number => a.pod.lines.filter(({ event }) => event === "session saved").length;
    await eventually(() => saved() === 2);
  },
  30_000,
);

for (const errno of ["EIO", "ENOSPC"] as const) {
  needsMount(
    `${errno} at request n of a save, for every n: the old session or the new one`,
    async () => {
      await using a = await MountedPod.start();
      await using b = await MountedPod.start({ backing: a.mount.backing });
      let text = "line 0\n";
      await a.pod.turn("thread", text);
      const run = await a.pod.begin("thread");
      for (let skip = 0; ; skip++) {
        const before = text;
        text += `line ${skip + 1} ${"x".repeat(200)}\n`;
        await a.pod.say(run, "s1", text.slice(before.length));
        await a.mount.heal();
        await a.mount.fail({ errno, skip, times: 1 });
        const settled = await run.save({ deadlineMs: 5000 });
        await a.mount.heal();
        await b.pod.begin("thread");
        const read = await b.pod.read("projects/p/s1.jsonl");
        expect([before, text]).toContain(read);
        if (settled.saved) expect(read).toBe(text);
        else expect(settled.reason).toBe(`the save failed: ${errno}`);
        expect((await run.save({ deadlineMs: 5000 })).saved).toBe(true);
        if (settled.saved && skip > 3) break;
      }
    },
    60_000,
  );
}

needsMount(
  "a mount that went away, or takes no more: said, and nothing else is harmed",
  async () => {
    await using a = await MountedPod.start();
    await a.pod.turn("thread", "one\n");
    await a.mount.space(0);
    const run = await a.pod.begin("thread");
    await a.pod.say(run, "s1", "two\n");
    expect(await run.save({ deadlineMs: 5000 })).toMatchObject({ saved: false, reason: "the save failed: ENOSPC" });
    await a.mount.space(null);
    expect((await run.save({ deadlineMs: 5000 })).saved).toBe(true);
    await a.mount.vanish();
    const next = await a.pod.begin("thread");
    expect(next.found).toMatchObject({ state: "stale-session", reason: "the org volume could not be read: ENOTCONN" });
    expect(await next.save({ deadlineMs: 5000 })).toMatchObject({ saved: false, reason: "the save failed: ENOTCONN" });
  },
  20_000,
);

needsMount(
  "late write-back: a pod that is told the generation waits for it; a cut one gives the state before",
  async () => {
    await using a = await MountedPod.start({ writeBackMs: 60_000 });
    const first = await a.pod.turn("thread", "one\n");
    await a.mount.writeBack();
    const second = await a.pod.turn("thread", "two\n");
    await using b = await MountedPod.start({ backing: a.mount.backing, listingMs: 200 });
    const begun = b.pod.begin("thread", { sessionGeneration: second.settled.generation });
    await Bun.sleep(300);
    await a.mount.writeBack();
    expect((await begun).found).toMatchObject({ state: "restored", generation: second.settled.generation });
    await a.pod.turn("thread", "three\n");
    await a.mount.writeBack(0.5);
    await using c = await MountedPod.start({ backing: a.mount.backing });
    const found = (await c.pod.begin("thread")).found;
    expect(found).toMatchObject({ state: "stale-session", reason: "the newest save of the thread is not whole" });
    expect(await c.pod.read("projects/p/s1.jsonl")).toBe("one\ntwo\n");
    expect(first.settled.saved).toBe(true);
  },
  20_000,
);

needsMount("a checkpoint is one new file and few requests", async () => {
  await using a = await MountedPod.start();
  await a.pod.turn("thread", "one\n");
  const run = await a.pod.begin("thread");
  await a.pod.say(run, "s1", "two\n");
  await run.save({ deadlineMs: 5000 });
  await a.pod.append("projects/p/s1.jsonl", "three\n");
  await a.mount.counts();
  expect((await run.save({ deadlineMs: 5000 })).saved).toBe(true);
  const counts = await a.mount.counts();
  expect(counts).toMatchObject({ create: 1 });
  expect(counts.mkdir ?? 0).toBe(0);
  expect(counts.rename ?? 0).toBe(0);
});

const needsRclone = test.skipIf(rcloneMissing !== undefined && process.env.CI === undefined);

needsRclone(
  "on rclone's mount: a backend that stops costs budgets, and what the mount took arrives when it goes on",
  async () => {
    const folder = await mkdtemp(join(tmpdir(), "dispatchd-rclone-"));
    try {
      const home = join(folder, "home");
      await using volume = await RcloneVolume.mount(home);
      const orgFs = realFlights(home);
      const env = { SESSION_IO_BUDGET_MS: "1500" };
      await using pod = await DiskPod.create({ home }, { orgFs, env });
      // Another pod, whose mount shows what the backend has at once.
      const others = async (): Promise<string> => {
        await using other = await DiskPod.create({ home: volume.backing });
        const { found } = await other.begin("thread");
        return found.id === undefined ? "" : await other.read("projects/p/s1.jsonl");
      };
      expect((await pod.turn("thread", "one\n")).settled.saved).toBe(true);
      while ((await others()) !== "one\n") await Bun.sleep(50);

      const run = await pod.begin("thread");
      expect(run.found.state).toBe("local");
      await pod.say(run, "s1", "two\n");
      volume.stopBackend();
      const startedAt = performance.now();
      await run.save({ deadlineMs: 1500 });
      const blind = await pod.begin("thread");
      expect(performance.now() - startedAt).toBeLessThan(4500);
      expect(blind.found.id).toBe("s1");
      blind.stop();

      volume.continueBackend();
      await pod.say(blind, "s1", "three\n");
      while (!(await blind.save({ deadlineMs: 1500 })).saved) await Bun.sleep(50);
      while ((await others()) !== "one\ntwo\nthree\n") await Bun.sleep(50);
      orgFs.stop();
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  },
  60_000,
);
