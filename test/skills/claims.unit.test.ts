/** Claims that pods leave on the volume: whose turn it is, and what becomes of one whose pod was killed. */
import { expect, test } from "bun:test";
import { utimesSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { diskFiles, type VolumeFiles } from "../../src/orgfs/skills/volume-files.ts";
import { SkillsPod, skillText } from "../support/skills-pod.ts";

const claimsOf = (pod: SkillsPod): string => join(pod.volume, "skills/.dispatchd-claims");

/** A pod whose flight is killed while it writes: its claim stays. */
async function killedPod(): Promise<SkillsPod> {
  const pod = await SkillsPod.open();
  await pod.plant("rockets", { "SKILL.md": skillText("old") });
  await pod.bring();
  await pod.write("rockets", { "SKILL.md": skillText("of the killed pod") });
  const killed = (): Promise<never> => Promise.reject(new Error("killed"));
  let isKilled = false;
  const files: VolumeFiles = {
    ...diskFiles,
    write(path, bytes) {
      isKilled = path.endsWith("SKILL.md");
      return isKilled ? killed() : diskFiles.write(path, bytes);
    },
    remove: (path) => (isKilled ? killed() : diskFiles.remove(path)),
  };
  await expect(pod.giveBack({}, files)).rejects.toThrow("killed");
  expect((await readdir(claimsOf(pod))).length).toBe(1);
  return pod;
}

test("a claim is gone when the skill is written", async () => {
  await using pod = await SkillsPod.open();
  await pod.bring();
  await pod.write("rockets", { "SKILL.md": skillText("rockets") });
  expect((await pod.giveBack()).returned).toEqual(["rockets"]);
  expect(await readdir(claimsOf(pod))).toEqual([]);
});

test("a pod goes on with its own claim of a lost flight", async () => {
  await using pod = await killedPod();
  expect(await pod.giveBack()).toMatchObject({ returned: ["rockets"], conflicts: [] });
  expect(await readdir(claimsOf(pod))).toEqual([]);
});

test("while another's claim is there a skill waits at a checkpoint, and is put beside it after the run", async () => {
  await using killed = await killedPod();
  await using pod = await killed.neighbour();
  await pod.bring();
  await pod.write("rockets", { "SKILL.md": skillText("of this pod") });
  pod.nowMs = Date.now() + 60_000;
  expect(await pod.giveBack({ quietMs: 2000 })).toMatchObject({ returned: [], conflicts: [], leftOut: [] });
  const { returned, conflicts } = await pod.giveBack();
  expect(conflicts).toMatchObject([{ name: "rockets" }]);
  expect(returned).toEqual([conflicts[0]?.keptAs ?? ""]);
  // The other's alone is left.
  expect((await readdir(claimsOf(pod))).length).toBe(1);
});

test("a claim of a pod that was killed long ago stops nobody, and is cleared away", async () => {
  await using killed = await killedPod();
  const [left = ""] = await readdir(claimsOf(killed));
  const longAgo = Date.now() / 1000 - 121;
  utimesSync(join(claimsOf(killed), left), longAgo, longAgo);
  await using pod = await killed.neighbour();
  await pod.bring();
  await pod.write("rockets", { "SKILL.md": skillText("of this pod") });
  expect(await pod.giveBack()).toMatchObject({ returned: ["rockets"], conflicts: [] });
  expect(await readdir(claimsOf(pod))).toEqual([]);
});
