/** Read-only sets: local plugins that change as a whole, and never under a run. */
import { expect, test } from "bun:test";
import { existsSync, symlinkSync } from "node:fs";
import { rm, truncate } from "node:fs/promises";
import { join } from "node:path";
import { pluginName } from "../../src/orgfs/skills/bring-sets.ts";
import type { BroughtSets } from "../../src/orgfs/skills/jobs.ts";
import { MAX_SKILL_BYTES, MAX_VOLUME_BYTES } from "../../src/orgfs/skills/limits.ts";
import { diskFiles, type VolumeFiles } from "../../src/orgfs/skills/volume-files.ts";
import { SkillsPod, skillText, treeOf } from "../support/skills-pod.ts";

function dirOf(brought: BroughtSets, name: string): string {
  return brought.sets.find((set) => set.name === name)?.dir ?? "";
}

function failingAt(part: string, fail: () => Promise<Buffer>): VolumeFiles {
  return {
    ...diskFiles,
    read: (path, maxBytes) => (path.includes(part) ? fail() : diskFiles.read(path, maxBytes)),
  };
}

const eio = (): Promise<Buffer> => Promise.reject(Object.assign(new Error("bad"), { code: "EIO" }));

test("each folder of the public volume, and each other volume, is a plugin with its skills and nothing else", async () => {
  await using pod = await SkillsPod.open();
  const org = join(pod.root, "org");
  await pod.plant("flat", { "one/SKILL.md": skillText("one"), "two/SKILL.md": skillText("two") }, join(org, "public"));
  await pod.plant("nested", { "skills/three/SKILL.md": skillText("three") }, join(org, "public"));
  await pod.plant("nested", { "hooks/hooks.json": "{}", ".mcp.json": "{}" }, join(org, "public"));
  await pod.plant("single", { "SKILL.md": skillText("single") }, join(org, "public"));
  await pod.plant("empty", { "README.md": "" }, join(org, "public"));
  await pod.plant("team", { "four/SKILL.md": skillText("four") }, org);
  const brought = await pod.bringSets("public");
  expect(brought.sets.map(({ name, count }) => [name, count])).toEqual([
    ["flat", 2],
    ["nested", 1],
    ["single", 1],
  ]);
  expect(await treeOf(dirOf(brought, "flat"))).toEqual({
    "skills/one/SKILL.md": skillText("one"),
    "skills/two/SKILL.md": skillText("two"),
  });
  expect(await treeOf(dirOf(brought, "nested"))).toEqual({ "skills/three/SKILL.md": skillText("three") });
  expect(await treeOf(dirOf(brought, "single"))).toEqual({ "skills/single/SKILL.md": skillText("single") });
  const team = await pod.bringSets("team");
  expect(await treeOf(dirOf(team, "team"))).toEqual({ "skills/four/SKILL.md": skillText("four") });
});

test("a set, and a skill of one, whose name cannot stand in a listing is left out, and said", async () => {
  await using pod = await SkillsPod.open();
  const org = join(pod.root, "org/public");
  await pod.plant("flat", { "one/SKILL.md": skillText("one"), "two\nlines/SKILL.md": skillText("two") }, org);
  await pod.plant("a\nset", { "three/SKILL.md": skillText("three") }, org);
  const brought = await pod.bringSets("public");
  expect(brought.sets.map(({ name, count }) => [name, count])).toEqual([["flat", 1]]);
  expect(brought.leftOut.map(({ name }) => name)).toEqual(["a?set", "flat/two?lines"]);
});

test("a set that changed is published anew; a run's copy stays until it is released", async () => {
  await using pod = await SkillsPod.open();
  const set = join(pod.root, "org/public");
  await pod.plant("flat", { "one/SKILL.md": skillText("one"), "two/SKILL.md": skillText("two") }, set);
  const first = await pod.bringSets("public");
  const old = dirOf(first, "flat");
  expect(await pod.bringSets("public")).toMatchObject({ sets: first.sets, changed: [] });
  await pod.plant("flat", { "two/SKILL.md": skillText("another two") }, set);
  await rm(join(set, "flat/one"), { recursive: true });
  const read: string[] = [];
  const second = await pod.bringSets(
    "public",
    { used: [old] },
    {
      ...diskFiles,
      read: (path, maxBytes) => {
        read.push(path);
        return diskFiles.read(path, maxBytes);
      },
    },
  );
  expect(read).toEqual([join(set, "flat/two/SKILL.md")]);
  expect(second.changed).toEqual(["flat"]);
  expect(await treeOf(dirOf(second, "flat"))).toEqual({ "skills/two/SKILL.md": skillText("another two") });
  expect(Object.keys(await treeOf(old))).toEqual(["skills/one/SKILL.md", "skills/two/SKILL.md"]);
  await pod.bringSets("public");
  expect(existsSync(old)).toBe(false);
  await rm(join(set, "flat"), { recursive: true });
  expect((await pod.bringSets("public")).sets).toEqual([]);
  expect(existsSync(dirOf(second, "flat"))).toBe(false);
});

test("a volume that holds something else costs a listing of its folders", async () => {
  await using pod = await SkillsPod.open();
  const many = Object.fromEntries(Array.from({ length: 50 }, (_, i) => [`${i}/data/${i}.txt`, "x"]));
  await pod.plant("data", many, join(pod.root, "org"));
  const calls: string[] = [];
  const list = (path: string) => {
    calls.push(path);
    return diskFiles.list(path);
  };
  const look = () => Promise.reject(new Error("looked at"));
  expect(await pod.bringSets("data", {}, { ...diskFiles, list, look })).toMatchObject({ sets: [], leftOut: [] });
  expect(calls.length).toBe(51);
});

test("an unreadable skill keeps its earlier copy, and is read again the next time", async () => {
  await using pod = await SkillsPod.open();
  const set = join(pod.root, "org/public");
  await pod.plant("flat", { "one/SKILL.md": skillText("one"), "two/SKILL.md": skillText("two") }, set);
  const first = await pod.bringSets("public", {}, failingAt("/two/", eio));
  expect(first.leftOut).toEqual([{ name: "flat/two", reason: "it cannot be read: EIO", kept: false }]);
  expect(Object.keys(await treeOf(dirOf(first, "flat")))).toEqual(["skills/one/SKILL.md"]);
  await pod.bringSets("public");
  await pod.plant("flat", { "two/SKILL.md": skillText("newer") }, set);
  const third = await pod.bringSets("public", {}, failingAt("/two/", eio));
  expect(third.leftOut).toMatchObject([{ name: "flat/two", kept: true }]);
  expect((await treeOf(dirOf(third, "flat")))["skills/two/SKILL.md"]).toBe(skillText("two"));
  const fourth = await pod.bringSets("public");
  expect((await treeOf(dirOf(fourth, "flat")))["skills/two/SKILL.md"]).toBe(skillText("newer"));
});

test("a volume that hangs changes no set, and hands over what there was", async () => {
  await using pod = await SkillsPod.open();
  const set = join(pod.root, "org/public");
  await pod.plant("flat", { "one/SKILL.md": skillText("one"), "two/SKILL.md": skillText("two") }, set);
  const first = await pod.bringSets("public");
  await pod.plant("flat", { "one/SKILL.md": skillText("newer"), "two/SKILL.md": skillText("newer") }, set);
  const hanging = failingAt("/two/", () => new Promise(() => {}));
  expect(await pod.bringSets("public", { callMs: 400 }, hanging)).toMatchObject({ hung: true, sets: first.sets });
  expect((await treeOf(dirOf(first, "flat")))["skills/one/SKILL.md"]).toBe(skillText("one"));
  const third = await pod.bringSets("public", { callMs: 400 }, hanging);
  expect(third).toMatchObject({ hung: false, leftOut: [{ name: "flat/two", kept: true }] });
  expect((await treeOf(dirOf(third, "flat")))["skills/one/SKILL.md"]).toBe(skillText("newer"));
});

test("a set that cannot be listed, or is a link, takes no other with it, and keeps its copy", async () => {
  await using pod = await SkillsPod.open();
  const set = join(pod.root, "org/public");
  for (const name of ["a", "b", "c"]) await pod.plant(name, { "one/SKILL.md": skillText(name) }, set);
  await pod.bringSets("public");
  await pod.plant("c", { "one/SKILL.md": skillText("newer") }, set);
  symlinkSync("/etc", join(set, "d"));
  const list = (path: string) => (path.endsWith("/a") ? eio() : diskFiles.list(path));
  const brought = await pod.bringSets("public", {}, { ...diskFiles, list: list as typeof diskFiles.list });
  expect(brought.leftOut).toEqual([
    { name: "a", reason: "it cannot be read: EIO", kept: true },
    { name: "d", reason: "it is a link", kept: false },
  ]);
  expect(brought.sets.map(({ name }) => name)).toEqual(["a", "b", "c"]);
  expect(await treeOf(dirOf(brought, "c"))).toEqual({ "skills/one/SKILL.md": skillText("newer") });
});

test("a large skill pushes out no smaller one behind it, in its set or in another", async () => {
  await using pod = await SkillsPod.open();
  const set = join(pod.root, "org/public");
  const sparse = async (name: string, bytes: number): Promise<void> => {
    await pod.plant(name, { "SKILL.md": skillText(name), data: "" }, join(set, "flat"));
    await truncate(join(set, "flat", name, "data"), bytes);
  };
  for (let n = 0; n < MAX_VOLUME_BYTES / MAX_SKILL_BYTES; n++) await sparse(`a-full-${n}`, MAX_SKILL_BYTES - 4096);
  await sparse("b-one-more", 1 << 20);
  await pod.plant("flat", { "c-small/SKILL.md": skillText("small") }, set);
  await pod.plant("other", { "one/SKILL.md": skillText("one") }, set);
  const { leftOut, sets } = await pod.bringSets("public");
  expect(leftOut).toMatchObject([{ reason: `the volume's skills are over ${MAX_VOLUME_BYTES} bytes`, kept: false }]);
  expect(sets.map(({ name, count }) => [name, count])).toEqual([
    ["flat", MAX_VOLUME_BYTES / MAX_SKILL_BYTES + 1],
    ["other", 1],
  ]);
});

test("a plugin's name is plain, and two sets never share one", () => {
  expect(pluginName("data-tools")).toBe("data-tools");
  const odd = ["Data Tools", "data  tools", "データ", "..", "-"].map(pluginName);
  expect(new Set(odd).size).toBe(odd.length);
  for (const name of odd) expect(name).toMatch(/^[a-z0-9]+(-[a-z0-9]+)*$/);
});
