/** What the agent makes of the org's skills outlives the pod, and overwrites nobody's work. */
import { expect, test } from "bun:test";
import { linkSync, mkdirSync, symlinkSync, utimesSync } from "node:fs";
import { appendFile, readFile, rm, symlink, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { HASH_FILE, parseHashFile } from "../../src/orgfs/skills/hash-file.ts";
import { MAX_SKILL_BYTES, MAX_VOLUME_BYTES } from "../../src/orgfs/skills/limits.ts";
import { diskFiles, type VolumeFiles } from "../../src/orgfs/skills/volume-files.ts";
import { SkillsPod, skillText, treeOf } from "../support/skills-pod.ts";

async function onVolume(pod: SkillsPod): Promise<Record<string, string>> {
  const all = await treeOf(join(pod.volume, "skills"));
  return Object.fromEntries(Object.entries(all).filter(([path]) => !path.endsWith(HASH_FILE)));
}

/** Skills' own files alone, not the claims. */
function watching(written: string[], before?: (path: string) => void): VolumeFiles {
  return {
    ...diskFiles,
    write: async (path, bytes) => {
      before?.(path);
      await diskFiles.write(path, bytes);
      if (!path.includes("/.dispatchd-claims/")) written.push(path);
    },
  };
}

test("a skill that the agent wrote is on the volume, its hashes written last, and on the next pod", async () => {
  await using pod = await SkillsPod.open();
  await using next = await pod.neighbour();
  await pod.bring();
  await pod.write("rockets", { "SKILL.md": skillText("rockets"), "a.md": "a", "scripts/launch.sh": "#!/bin/sh\n" });
  await pod.write("rockets", { "__pycache__/x.pyc": "no part of it" });
  const written: string[] = [];
  expect(await pod.giveBack({}, watching(written))).toMatchObject({ returned: ["rockets"], leftOut: [], hung: false });
  const dir = join(pod.volume, "skills/rockets");
  expect(written.map((path) => path.slice(dir.length + 1))).toEqual([
    HASH_FILE,
    "a.md",
    "scripts/launch.sh",
    "SKILL.md",
    HASH_FILE,
  ]);
  const hashes = parseHashFile(await readFile(join(dir, HASH_FILE), "utf8"));
  expect(Object.keys(hashes?.files ?? {})).toEqual(["SKILL.md", "a.md", "scripts/launch.sh"]);
  await next.bring();
  expect(await treeOf(next.skills)).toEqual({
    "rockets/SKILL.md": skillText("rockets"),
    "rockets/a.md": "a",
    "rockets/scripts/launch.sh": "#!/bin/sh\n",
  });
  written.length = 0;
  expect((await pod.giveBack({}, watching(written))).returned).toEqual([]);
  expect((await pod.bring()).changed).toEqual([]);
  expect(written).toEqual([]);
});

test("a changed skill goes back with the files that changed alone", async () => {
  await using pod = await SkillsPod.open();
  await pod.plant("rockets", { "SKILL.md": skillText("old"), "large.txt": "x".repeat(10_000) });
  await pod.bring();
  await pod.write("rockets", { "SKILL.md": skillText("new") });
  const written: string[] = [];
  await pod.giveBack({}, watching(written));
  expect(written.map((path) => path.split("/").at(-1))).toEqual([HASH_FILE, "SKILL.md", HASH_FILE]);
  expect(await onVolume(pod)).toEqual({
    "rockets/SKILL.md": skillText("new"),
    "rockets/large.txt": "x".repeat(10_000),
  });
});

test("only what changed is written again once the volume has hashes", async () => {
  await using pod = await SkillsPod.open();
  await pod.bring();
  await pod.write("rockets", { "SKILL.md": skillText("first"), "a.md": "a" });
  await pod.giveBack();
  await pod.write("rockets", { "SKILL.md": skillText("second") });
  const written: string[] = [];
  await pod.giveBack({}, watching(written));
  expect(written.map((path) => path.split("/").at(-1))).toEqual(["SKILL.md", HASH_FILE]);
});

test("files and skills may have any name that objects of the language have", async () => {
  await using pod = await SkillsPod.open();
  await using next = await pod.neighbour();
  await pod.bring();
  const names = ["__proto__", "constructor", "toString"];
  const files = Object.fromEntries(["SKILL.md", ...names].map((name) => [name, `about ${name}`]));
  for (const name of names) await pod.write(name, files);
  expect((await pod.giveBack()).returned.toSorted()).toEqual(names.toSorted());
  expect(await next.bring()).toMatchObject({ count: 3, leftOut: [] });
  expect(await treeOf(next.skills)).toEqual(await treeOf(pod.skills));
  expect(Object.keys(await treeOf(next.skills)).length).toBe(12);
  // One that the hashes do not name is taken as it is, one that they name and that is gone is missed.
  await writeFile(join(pod.volume, "skills/toString/valueOf"), "by hand");
  await rm(join(pod.volume, "skills/constructor/constructor"));
  expect(await next.bring()).toMatchObject({ changed: ["toString"], leftOut: [{ name: "constructor", kept: true }] });

  const set = join(pod.root, "org/public");
  await pod.plant("set", { "one/SKILL.md": "one" }, set);
  await pod.bringSets("public");
  for (const name of names) await pod.plant("set", { [`${name}/SKILL.md`]: "x".repeat(17 << 20) }, set);
  expect(await pod.bringSets("public")).toMatchObject({ sets: [{ count: 1 }], leftOut: [{}, {}, {}] });
  for (const name of names) await pod.plant("set", { [`${name}/SKILL.md`]: "small" }, set);
  expect(await pod.bringSets("public")).toMatchObject({ sets: [{ count: 4 }], leftOut: [], changed: ["set"] });
  expect(await pod.bringSets("public")).toMatchObject({ sets: [{ count: 4 }], leftOut: [], changed: [] });
});

test("other times on the volume are no change of it", async () => {
  await using pod = await SkillsPod.open();
  await pod.plant("rockets", { "SKILL.md": skillText("old") });
  await pod.bring();
  await pod.write("rockets", { "SKILL.md": skillText("new") });
  await pod.giveBack();
  // As a mount shows them when the files have reached the backend.
  for (const name of ["SKILL.md", HASH_FILE]) utimesSync(join(pod.volume, "skills/rockets", name), 1e9, 1e9);
  await pod.write("rockets", { "SKILL.md": skillText("newest") });
  expect(await pod.giveBack()).toMatchObject({ returned: ["rockets"], conflicts: [] });
  expect(await onVolume(pod)).toEqual({ "rockets/SKILL.md": skillText("newest") });
});

test("changed on both sides: nothing is overwritten, the pod's version is put beside it", async () => {
  await using pod = await SkillsPod.open();
  await using other = await pod.neighbour();
  await pod.plant("rockets", { "SKILL.md": skillText("first") });
  await pod.bring();
  await other.bring();
  await pod.write("rockets", { "SKILL.md": skillText("by this pod") });
  await other.write("rockets", { "SKILL.md": skillText("by another pod") });
  expect((await other.giveBack()).returned).toEqual(["rockets"]);
  const { conflicts } = await pod.giveBack();
  const keptAs = conflicts[0]?.keptAs ?? "";
  expect(conflicts).toEqual([{ name: "rockets", keptAs: expect.stringMatching(/^rockets-[0-9a-f]{8}$/) }]);
  const both = {
    "rockets/SKILL.md": skillText("by another pod"),
    [`${keptAs}/SKILL.md`]: skillText("by this pod"),
  };
  expect(await onVolume(pod)).toEqual(both);
  // Said once, and both pods end with both.
  expect((await pod.giveBack()).conflicts).toEqual([]);
  for (const each of [pod, other]) {
    expect((await each.bring()).conflicts).toEqual([]);
    expect(await treeOf(each.skills)).toEqual(both);
  }
});

test("overwritten by a pod whose mount showed an old listing: both versions go on", async () => {
  await using pod = await SkillsPod.open();
  await using other = await pod.neighbour();
  await pod.plant("rockets", { "SKILL.md": skillText("first") });
  for (const each of [pod, other]) await each.bring();
  const seen = new Map<string, ReturnType<typeof diskFiles.look>>();
  const old: VolumeFiles = {
    ...diskFiles,
    list: async (path) => (await diskFiles.list(path))?.filter((name) => name !== HASH_FILE),
    look: (path) => seen.get(path) ?? diskFiles.look(path),
  };
  const main = join(pod.volume, "skills/rockets/SKILL.md");
  seen.set(
    main,
    diskFiles.look(main).then((found) => found),
  );
  await seen.get(main);
  await pod.write("rockets", { "SKILL.md": skillText("by this pod") });
  await other.write("rockets", { "SKILL.md": skillText("by another pod") });
  expect((await pod.giveBack()).returned).toEqual(["rockets"]);
  expect(await other.giveBack({}, old)).toMatchObject({ returned: ["rockets"], conflicts: [] });
  const { conflicts } = await pod.bring();
  expect(conflicts).toMatchObject([{ name: "rockets" }]);
  expect((await pod.bring()).conflicts).toEqual([]);
  await pod.giveBack();
  expect(Object.values(await onVolume(pod)).sort()).toEqual([skillText("by another pod"), skillText("by this pod")]);
});

test("a version that was made from this pod's replaces it, and later ones too", async () => {
  await using pod = await SkillsPod.open();
  await using other = await pod.neighbour();
  await using third = await pod.neighbour();
  await pod.bring();
  await pod.write("rockets", { "SKILL.md": skillText("first") });
  await pod.giveBack();
  for (const [each, label] of [
    [other, "second"],
    [third, "third"],
  ] as const) {
    await each.bring();
    await each.write("rockets", { "SKILL.md": skillText(label) });
    expect((await each.giveBack()).returned).toEqual(["rockets"]);
  }
  for (const each of [pod, other]) {
    expect(await each.bring()).toMatchObject({ changed: ["rockets"], conflicts: [] });
    expect(await treeOf(each.skills)).toEqual({ "rockets/SKILL.md": skillText("third") });
  }
});

test("a skill in the making waits at a checkpoint, not after the run", async () => {
  await using pod = await SkillsPod.open();
  await pod.bring();
  await pod.write("rockets", { "SKILL.md": skillText("rockets") });
  pod.nowMs = Date.now();
  expect((await pod.giveBack({ quietMs: 2000 })).returned).toEqual([]);
  pod.nowMs += 3000;
  expect((await pod.giveBack({ quietMs: 2000 })).returned).toEqual(["rockets"]);
  await pod.write("gardens", { "SKILL.md": skillText("gardens") });
  expect((await pod.giveBack({ quietMs: 0 })).returned).toEqual(["gardens"]);
});

test("an empty SKILL.md is no skill, and overwrites none", async () => {
  await using pod = await SkillsPod.open();
  await pod.plant("rockets", { "SKILL.md": skillText("rockets") });
  await pod.bring();
  await pod.write("rockets", { "SKILL.md": "" });
  await pod.write("gardens", { "SKILL.md": "", "a.md": "a" });
  expect(await pod.giveBack()).toMatchObject({ returned: [], leftOut: [] });
  await pod.plant("cut", { "SKILL.md": "" });
  expect(await pod.bring()).toMatchObject({ changed: ["rockets"], count: 1 });
  expect(await onVolume(pod)).toEqual({ "cut/SKILL.md": "", "rockets/SKILL.md": skillText("rockets") });
});

test("what the volume lost again is given once more, what it kept and lost later is not", async () => {
  await using pod = await SkillsPod.open();
  await pod.plant("other", { "SKILL.md": skillText("other") });
  await pod.bring();
  await pod.write("rockets", { "SKILL.md": skillText("rockets") });
  await pod.giveBack();
  // A mount that is stopped drops what it has not written back.
  await rm(join(pod.volume, "skills/rockets"), { recursive: true });
  expect((await pod.bring()).removed).toEqual([]);
  expect((await pod.giveBack()).returned).toEqual(["rockets"]);
  pod.nowMs += 61_000;
  await pod.bring();
  await rm(join(pod.volume, "skills/rockets"), { recursive: true });
  expect((await pod.bring()).removed).toEqual(["rockets"]);
});

async function git(pod: SkillsPod, ...args: string[]): Promise<void> {
  const identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"];
  await Bun.$`git ${identity} ${args}`.cwd(pod.checkout).quiet();
}

test("skills left in the checkout are adopted, tracked ones and links are not", async () => {
  await using pod = await SkillsPod.open();
  await pod.bring();
  const below = join(pod.checkout, ".agent/skills");
  await pod.plant("stray", { "SKILL.md": skillText("stray"), "notes.md": "notes" }, below);
  await pod.plant("project", { "SKILL.md": skillText("project") }, below);
  await git(pod, "init", "-q");
  await git(pod, "add", ".agent/skills/project");
  await pod.plant("secret", { "notes.md": "" }, below);
  symlinkSync("/etc/passwd", join(below, "secret/SKILL.md"));
  symlinkSync("/etc", join(below, "linked"));
  const result = await pod.giveBack();
  expect(result).toMatchObject({ adopted: ["stray"], returned: ["stray"], conflicts: [], leftOut: [] });
  expect(await onVolume(pod)).toEqual({ "stray/SKILL.md": skillText("stray"), "stray/notes.md": "notes" });
  expect((await pod.giveBack()).adopted).toEqual([]);
  // Changed later, by the agent, where it left it.
  await pod.plant("stray", { "SKILL.md": skillText("improved") }, below);
  expect(await pod.giveBack()).toMatchObject({ adopted: ["stray"], conflicts: [] });
  expect(await readFile(join(pod.volume, "skills/stray/SKILL.md"), "utf8")).toBe(skillText("improved"));
});

test("where it cannot be told what git tracks nothing is adopted, and that is said", async () => {
  const kinds: Record<string, (pod: SkillsPod) => Promise<void>> = {
    "cut paths": (pod) => git(pod, "update-index", "--index-version", "4"),
    "a split index": (pod) => git(pod, "update-index", "--split-index"),
    "a repository elsewhere": (pod) => git(pod, "init", "-q", "--separate-git-dir", join(pod.root, "repository")),
    "a cut file": (pod) => truncate(join(pod.checkout, ".git/index"), 5),
    "another file": (pod) => writeFile(join(pod.checkout, ".git/index"), "none"),
  };
  for (const [kind, make] of Object.entries(kinds)) {
    await using pod = await SkillsPod.open();
    await pod.bring();
    const below = join(pod.checkout, ".agent/skills");
    await git(pod, "init", "-q");
    for (const name of ["project", "project-two"]) await pod.plant(name, { "SKILL.md": skillText("project") }, below);
    await git(pod, "add", ".");
    await make(pod);
    await pod.plant("no-skill", { "README.md": "" }, below);
    const { adopted, leftOut } = await pod.giveBack();
    expect([kind, adopted]).toEqual([kind, []]);
    const reason = "it may be the project's own: what git tracks there cannot be told";
    expect(leftOut).toMatchObject(["project", "project-two"].map((name) => ({ name, reason })));
  }
  await using fresh = await SkillsPod.open();
  await fresh.bring();
  await git(fresh, "init", "-q");
  await fresh.plant("stray", { "SKILL.md": skillText("stray") }, join(fresh.checkout, ".agent/skills"));
  expect((await fresh.giveBack()).adopted).toEqual(["stray"]);
});

test("a stray whose name is taken is adopted beside it", async () => {
  await using pod = await SkillsPod.open();
  await pod.plant("rockets", { "SKILL.md": skillText("the org's") });
  await pod.bring();
  await pod.plant("rockets", { "SKILL.md": skillText("a stray") }, join(pod.checkout, ".agent/skills"));
  const { adopted, conflicts } = await pod.giveBack();
  expect(conflicts).toEqual([{ name: "rockets", keptAs: adopted[0] ?? "" }]);
  expect(await onVolume(pod)).toEqual({
    "rockets/SKILL.md": skillText("the org's"),
    [`${adopted[0]}/SKILL.md`]: skillText("a stray"),
  });
  expect(await pod.giveBack()).toMatchObject({ adopted: [], conflicts: [], returned: [] });
});

test("links, pipes and files with two names are not read for the agent", async () => {
  await using pod = await SkillsPod.open();
  await pod.bring();
  await pod.write("rockets", { "SKILL.md": skillText("rockets") });
  await symlink("/etc/passwd", join(pod.skills, "rockets/passwd"));
  await Bun.$`mkfifo ${join(pod.skills, "rockets/pipe")}`.quiet();
  await pod.write("doubled", { "SKILL.md": skillText("doubled") });
  linkSync(join(pod.skills, "doubled/SKILL.md"), join(pod.root, "another name"));
  await symlink("/etc", join(pod.skills, "linked"));
  const result = await pod.giveBack();
  expect(result.returned).toEqual(["rockets"]);
  expect(result.leftOut).toMatchObject([{ name: "doubled", reason: "SKILL.md has more than one name" }]);
  expect(await onVolume(pod)).toEqual({ "rockets/SKILL.md": skillText("rockets") });
});

test("a skill that is too large, or does not fit in with the others, holds up none behind it", async () => {
  await using pod = await SkillsPod.open();
  await pod.bring();
  const sparse = async (name: string, bytes: number): Promise<void> => {
    await pod.write(name, { "SKILL.md": skillText(name), data: "" });
    await truncate(join(pod.skills, name, "data"), bytes);
  };
  await sparse("a-huge", MAX_VOLUME_BYTES + 1);
  await pod.write("b-small", { "SKILL.md": skillText("small") });
  expect(await pod.giveBack()).toMatchObject({
    returned: ["b-small"],
    leftOut: [{ name: "a-huge", reason: "it is too large" }],
  });
  const full = Array.from({ length: MAX_VOLUME_BYTES / MAX_SKILL_BYTES }, (_, n) => `c-full-${n}`);
  for (const name of full) await sparse(name, MAX_SKILL_BYTES - 4096);
  await sparse("d-one-more", 1 << 20);
  await pod.write("e-small", { "SKILL.md": skillText("small") });
  // Nothing is quiet yet, so that no more than the sum is looked at.
  const { leftOut } = await pod.giveBack({ quietMs: 60_000 });
  expect(leftOut.map(({ name }) => name)).toEqual(["a-huge", "d-one-more"]);
});

test("a full volume costs one skill, and says so", async () => {
  await using pod = await SkillsPod.open();
  await pod.bring();
  for (const name of ["a", "b", "c"]) await pod.write(name, { "SKILL.md": skillText(name) });
  const full = watching([], (path) => {
    if (path.includes("/b/")) throw Object.assign(new Error("full"), { code: "ENOSPC" });
  });
  const result = await pod.giveBack({}, full);
  expect(result.returned).toEqual(["a", "c"]);
  expect(result.leftOut).toMatchObject([{ name: "b", reason: "it cannot be written: ENOSPC" }]);
  expect((await pod.giveBack()).returned).toEqual(["b"]);
});

test("a half-written skill of a lost flight is gone on with, and not taken for somebody else's", async () => {
  await using pod = await SkillsPod.open();
  await using other = await pod.neighbour();
  await pod.plant("rockets", { "SKILL.md": skillText("old"), "a.md": "old a", "b.md": "old b" });
  for (const each of [pod, other]) await each.bring();
  await pod.write("rockets", { "SKILL.md": skillText("new"), "a.md": "a new one", "b.md": "another b" });
  const lost = watching([], (path) => {
    if (path.endsWith("b.md")) throw new Error("killed");
  });
  await expect(pod.giveBack({}, lost)).rejects.toThrow("killed");
  await truncate(join(pod.volume, "skills/rockets/a.md"), 3);
  expect(await pod.bring()).toMatchObject({ conflicts: [], changed: [] });
  expect(await pod.giveBack()).toMatchObject({ returned: ["rockets"], conflicts: [] });
  await other.bring();
  expect(await treeOf(other.skills)).toEqual({
    "rockets/SKILL.md": skillText("new"),
    "rockets/a.md": "a new one",
    "rockets/b.md": "another b",
  });
  await appendFile(join(pod.volume, "skills/rockets/a.md"), "!");
  expect((await other.bring()).leftOut).toMatchObject([{ name: "rockets", kept: true }]);
});

test("a half-written skill is put right when the agent undoes its change", async () => {
  await using pod = await SkillsPod.open();
  const old = { "SKILL.md": skillText("old"), "a.md": "old a", "b.md": "old b" };
  await pod.plant("rockets", old);
  await pod.bring();
  await pod.write("rockets", { "a.md": "a new one", "b.md": "another b" });
  const lost = watching([], (path) => {
    if (path.endsWith("b.md")) throw new Error("killed");
  });
  await expect(pod.giveBack({}, lost)).rejects.toThrow("killed");
  await pod.write("rockets", old);
  expect(await pod.giveBack()).toMatchObject({ returned: ["rockets"], conflicts: [] });
  await using next = await pod.neighbour();
  expect(await next.bring()).toMatchObject({ leftOut: [], count: 1 });
  expect(await readFile(join(next.skills, "rockets/a.md"), "utf8")).toBe("old a");
});

test("what lies in a file's place on the volume is not written through, and the pod's version goes beside it", async () => {
  await using pod = await SkillsPod.open();
  const outside = join(pod.root, "outside");
  mkdirSync(outside);
  await writeFile(join(outside, "file"), "untouched");
  const at = (...parts: string[]): string => join(pod.volume, "skills", ...parts);
  const odd: Record<string, () => unknown> = {
    "main-piped": () => Bun.$`mkfifo ${at("main-piped/SKILL.md")}`.quiet(),
    "main-linked": () => symlinkSync(join(outside, "file"), at("main-linked/SKILL.md")),
    "hashes-piped": () => Bun.$`mkfifo ${at("hashes-piped", HASH_FILE)}`.quiet(),
    "hashes-linked": () => symlinkSync(join(outside, "file"), at("hashes-linked", HASH_FILE)),
    "hashes-folder": () => mkdirSync(at("hashes-folder", HASH_FILE)),
    "file-piped": () => Bun.$`mkfifo ${at("file-piped/below/b.md")}`.quiet(),
    "file-linked": () => symlinkSync(join(outside, "new"), at("file-linked/below/b.md")),
    "file-folder": () => mkdirSync(at("file-folder/below/b.md")),
    "folder-linked": () => symlinkSync(outside, at("folder-linked/below")),
    "folder-file": () => writeFile(at("folder-file/below"), "a file"),
    "all-linked": () => symlinkSync(outside, at("all-linked")),
  };
  await pod.bring();
  for (const [name, make] of Object.entries(odd)) {
    if (name === "all-linked") mkdirSync(at(), { recursive: true });
    else mkdirSync(name.startsWith("folder-") ? at(name) : at(name, "below"), { recursive: true });
    if (!name.startsWith("main-") && name !== "all-linked") await writeFile(at(name, "SKILL.md"), skillText("old"));
    await make();
    await pod.write(name, { "SKILL.md": skillText(name), "below/b.md": "b" });
  }
  await pod.write("z", { "SKILL.md": skillText("z") });
  const { returned, conflicts, leftOut, hung } = await pod.giveBack();
  expect({ hung, leftOut }).toEqual({ hung: false, leftOut: [] });
  expect(conflicts.map(({ name }) => name)).toEqual(Object.keys(odd).toSorted());
  expect(returned.toSorted()).toEqual([...conflicts.map(({ keptAs }) => keptAs), "z"].toSorted());
  expect(await treeOf(outside)).toEqual({ file: "untouched" });
  for (const { name, keptAs } of conflicts)
    expect(await readFile(at(keptAs, "SKILL.md"), "utf8")).toBe(skillText(name));
});

test("nothing is written through a link in the place of the volume's folder of skills, or of claims", async () => {
  await using pod = await SkillsPod.open();
  const outside = join(pod.root, "outside");
  mkdirSync(outside);
  await pod.bring();
  await pod.write("rockets", { "SKILL.md": skillText("rockets") });
  symlinkSync(outside, join(pod.volume, "skills"));
  expect((await pod.giveBack()).leftOut).toMatchObject([
    { name: "rockets", reason: "the volume's folder of skills is a link" },
  ]);
  await rm(join(pod.volume, "skills"));
  mkdirSync(join(pod.volume, "skills"));
  symlinkSync(outside, join(pod.volume, "skills/.dispatchd-claims"));
  expect((await pod.giveBack()).leftOut).toMatchObject([{ name: "rockets", reason: "it cannot be written: ELOOP" }]);
  expect(await treeOf(outside)).toEqual({});
});
