/**
 * Every call on the volume fails once, hangs once, and is the last one of a flight that is killed. After each: a pod has
 * an old version of a skill or a new one, never a mix, and the next attempt gets everything where it belongs.
 */
import { expect, test } from "bun:test";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { diskFiles, type VolumeFiles, VolumeHangs } from "../../src/orgfs/skills/volume-files.ts";
import { SkillsPod, treeOf } from "../support/skills-pod.ts";

const FAULTS = ["fails", "hangs", "is the last one"] as const;
type FaultKind = (typeof FAULTS)[number];

/** The volume's files with a fault at call `n`. A write that is cut short leaves half of the file. */
function faultAt(n: number, kind: FaultKind): { files: VolumeFiles; reached: () => boolean } {
  let calls = 0;
  const killed = new Error("killed");
  async function call<T>(work: () => Promise<T>, half?: () => Promise<T>): Promise<T> {
    calls += 1;
    if (calls < n) return work();
    if (calls > n) {
      if (kind === "is the last one") throw killed;
      // What the time limit makes of it, without the time.
      if (kind === "hangs") throw new VolumeHangs(false);
      return work();
    }
    if (kind === "hangs") throw new VolumeHangs(true);
    if (kind === "fails") throw Object.assign(new Error("bad"), { code: "EIO" });
    await half?.();
    throw killed;
  }
  const files: VolumeFiles = {
    list: (path) => call(() => diskFiles.list(path)),
    look: (path) => call(() => diskFiles.look(path)),
    read: (path, maxBytes) => call(() => diskFiles.read(path, maxBytes)),
    write: (path, bytes) =>
      call(
        () => diskFiles.write(path, bytes),
        () => diskFiles.write(path, bytes.subarray(0, bytes.length >> 1)),
      ),
    makeFolder: (path) => call(() => diskFiles.makeFolder(path)),
    remove: (path) => call(() => diskFiles.remove(path)),
  };
  return { files, reached: () => calls >= n };
}

function version(label: string): Record<string, string> {
  return { "SKILL.md": `${label} skill\n`, "below/b.sh": `#!/bin/sh\necho ${label}\n` };
}

function at(name: string, files: Record<string, string>): Record<string, string> {
  return Object.fromEntries(Object.entries(files).map(([path, text]) => [`${name}/${path}`, text]));
}

/** What a pod has of one skill is one of the versions. */
async function expectWhole(root: string, name: string, allowed: readonly Record<string, string>[]): Promise<void> {
  const all = await treeOf(root);
  const found = Object.fromEntries(Object.entries(all).filter(([path]) => path.startsWith(`${name}/`)));
  expect(allowed.map((files) => at(name, files))).toContainEqual(found);
}

/** Runs `scenario` with a fault at each call, until one comes to its end without reaching it. */
async function atEveryCall(kind: FaultKind, scenario: (fault: ReturnType<typeof faultAt>) => Promise<void>) {
  for (let n = 1; n < 200; n++) {
    const fault = faultAt(n, kind);
    await scenario(fault);
    if (!fault.reached()) {
      expect(n).toBeGreaterThan(5);
      return;
    }
  }
  throw new Error("no end of calls");
}

const ended = async (work: Promise<unknown>): Promise<void> => {
  await work.catch((error: unknown) => {
    if (!(error instanceof Error) || !["killed", "bad"].includes(error.message)) throw error;
  });
};

for (const kind of FAULTS) {
  test(`bringing, when a call ${kind}`, async () => {
    await atEveryCall(kind, async ({ files }) => {
      await using pod = await SkillsPod.open();
      await pod.plant("changed", version("old"));
      await pod.plant("same", version("same"));
      await pod.bring();
      await pod.plant("changed", version("newer"));
      await pod.plant("added", version("added"));
      await ended(pod.bring({}, files));
      await expectWhole(pod.skills, "changed", [version("old"), version("newer")]);
      await expectWhole(pod.skills, "added", [{}, version("added")]);
      await expectWhole(pod.skills, "same", [version("same")]);
      pod.nowMs += 61_000;
      expect(await pod.bring()).toMatchObject({ hung: false, leftOut: [], conflicts: [] });
      const wanted = {
        ...at("changed", version("newer")),
        ...at("same", version("same")),
        ...at("added", version("added")),
      };
      expect(await treeOf(pod.skills)).toEqual(wanted);
    });
  }, 30_000);

  test(`bringing a set, when a call ${kind}`, async () => {
    await atEveryCall(kind, async ({ files }) => {
      await using pod = await SkillsPod.open();
      const volume = join(pod.root, "org/public/flat");
      await pod.plant("changed", version("old"), volume);
      await pod.plant("same", version("same"), volume);
      const before = await pod.bringSets("public");
      await pod.plant("changed", version("newer"), volume);
      const used = before.sets.map(({ dir }) => dir);
      await ended(pod.bringSets("public", { used }, files));
      const old = { ...at("skills/changed", version("old")), ...at("skills/same", version("same")) };
      expect(await treeOf(used[0] ?? "")).toEqual(old);
      pod.nowMs += 61_000;
      const after = await pod.bringSets("public", { used });
      expect(after).toMatchObject({ hung: false, leftOut: [] });
      const wanted = { ...old, ...at("skills/changed", version("newer")) };
      expect(await treeOf(after.sets[0]?.dir ?? "")).toEqual(wanted);
    });
  }, 30_000);

  test(`returning, when a call ${kind}`, async () => {
    await atEveryCall(kind, async ({ files }) => {
      await using pod = await SkillsPod.open();
      await using reader = await pod.neighbour();
      await pod.plant("changed", version("old"));
      await pod.bring();
      await reader.bring();
      await pod.write("changed", version("newer"));
      await pod.write("added", version("added"));
      await ended(pod.giveBack({}, files));
      await reader.bring();
      await expectWhole(reader.skills, "changed", [version("old"), version("newer")]);
      await pod.bring();
      await expectWhole(pod.skills, "changed", [version("newer")]);
      await expectWhole(pod.skills, "added", [version("added")]);
      expect(await pod.giveBack()).toMatchObject({ hung: false, leftOut: [], conflicts: [] });
      expect(await reader.bring()).toMatchObject({ leftOut: [], conflicts: [] });
      const wanted = { ...at("changed", version("newer")), ...at("added", version("added")) };
      expect(await treeOf(reader.skills)).toEqual(wanted);
      expect(await readFile(join(pod.volume, "skills/added/SKILL.md"), "utf8")).toBe("added skill\n");
    });
  }, 30_000);
}

/** The volume's files, with something that happens right before call `n`. */
function interruptedAt(n: number, happens: () => Promise<unknown>): { files: VolumeFiles; reached: () => boolean } {
  let calls = 0;
  async function call<T>(work: () => Promise<T>): Promise<T> {
    calls += 1;
    if (calls === n) await happens();
    return work();
  }
  const files: VolumeFiles = {
    list: (path) => call(() => diskFiles.list(path)),
    look: (path) => call(() => diskFiles.look(path)),
    read: (path, maxBytes) => call(() => diskFiles.read(path, maxBytes)),
    write: (path, bytes) => call(() => diskFiles.write(path, bytes)),
    makeFolder: (path) => call(() => diskFiles.makeFolder(path)),
    remove: (path) => call(() => diskFiles.remove(path)),
  };
  return { files, reached: () => calls >= n };
}

for (const known of [true, false]) {
  const what = known ? "a skill that both have" : "a new skill of one name";
  test(`another pod returns ${what} between any two calls: both versions are whole on the volume`, async () => {
    for (let n = 1; ; n++) {
      await using pod = await SkillsPod.open();
      await using other = await pod.neighbour();
      await using reader = await pod.neighbour();
      if (known) await pod.plant("rockets", version("old"));
      for (const each of [pod, other]) await each.bring();
      await pod.write("rockets", version("mine"));
      await other.write("rockets", version("ours"));
      const { files, reached } = interruptedAt(n, () => other.giveBack());
      const conflicts = (await pod.giveBack({}, files)).conflicts;
      if (!reached()) {
        expect(n).toBeGreaterThan(10);
        return;
      }
      expect(await reader.bring()).toMatchObject({ leftOut: [], conflicts: [] });
      const all = Object.entries(await treeOf(reader.skills));
      const mains = all.filter(([path]) => path.endsWith("/SKILL.md"));
      expect(mains.map(([, text]) => text).sort()).toEqual(["mine skill\n", "ours skill\n"]);
      expect(mains.map(([path]) => path)).toContain("rockets/SKILL.md");
      for (const [path, text] of mains) {
        const label = text.split(" ")[0] ?? "";
        await expectWhole(reader.skills, path.split("/")[0] ?? "", [version(label)]);
      }
      // One of the two gave way, and neither does so again.
      const settled = [await pod.bring(), await other.bring(), await pod.giveBack(), await other.giveBack()];
      expect(settled.flatMap((each) => each.conflicts)).toEqual([]);
      expect(conflicts.length).toBeLessThanOrEqual(1);
      for (const each of [pod, other]) expect(await treeOf(each.skills)).toEqual(Object.fromEntries(all));
    }
  }, 30_000);
}

test("pods that return a skill at the same moment: all their versions are on the volume", async () => {
  for (let round = 0; round < 8; round++) {
    await using first = await SkillsPod.open();
    await first.plant("rockets", version("old"));
    const pods = [first, await first.neighbour(), await first.neighbour()];
    try {
      for (const each of pods) await each.bring();
      for (const [index, each] of pods.entries()) await each.write("rockets", version(`number ${index}`));
      await Promise.all(pods.map((each) => each.giveBack({ patienceMs: 5000 })));
      await using reader = await first.neighbour();
      expect(await reader.bring()).toMatchObject({ leftOut: [], count: pods.length });
      const texts = Object.entries(await treeOf(reader.skills)).filter(([path]) => path.endsWith("/SKILL.md"));
      expect(texts.map(([, text]) => text).sort()).toEqual(pods.map((_, index) => `number ${index} skill\n`));
    } finally {
      for (const each of pods.slice(1)) await each[Symbol.asyncDispose]();
    }
  }
}, 30_000);
