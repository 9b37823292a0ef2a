/** The org's own skills reach the pod whole, and what cannot be had costs nothing else. */
import { expect, test } from "bun:test";
import { chmodSync, chownSync, mkdirSync, readlinkSync, symlinkSync } from "node:fs";
import { lstat, readdir, readFile, rm, stat, symlink, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { HASH_FILE } from "../../src/orgfs/skills/hash-file.ts";
import { MAX_SKILL_BYTES, MAX_VOLUME_BYTES } from "../../src/orgfs/skills/limits.ts";
import { diskFiles, type VolumeFiles } from "../../src/orgfs/skills/volume-files.ts";
import { needsRoot } from "../support/needs-root.ts";
import { SkillsPod, skillText, treeOf } from "../support/skills-pod.ts";

test("skills are copied with all their files, and linked into the config folder", async () => {
  await using pod = await SkillsPod.open();
  await pod.plant("rockets", { "SKILL.md": skillText("rockets"), "scripts/launch.sh": "#!/bin/sh\necho go\n" });
  await pod.plant("gardens", { "SKILL.md": skillText("gardens"), ".git/config": "no part of it" });
  await pod.plant("no-skill", { "README.md": "nothing" });
  const brought = await pod.bring();
  expect(brought).toMatchObject({ hung: false, leftOut: [], count: 2, link: "linked" });
  expect(await treeOf(pod.skills)).toEqual({
    "gardens/SKILL.md": skillText("gardens"),
    "rockets/SKILL.md": skillText("rockets"),
    "rockets/scripts/launch.sh": "#!/bin/sh\necho go\n",
  });
  expect((await stat(join(pod.skills, "rockets/scripts/launch.sh"))).mode & 0o111).toBe(0o111);
  expect((await stat(join(pod.skills, "rockets/SKILL.md"))).mode & 0o111).toBe(0);
});

test("what did not change is not read again", async () => {
  await using pod = await SkillsPod.open();
  for (let i = 0; i < 200; i++) await pod.plant(`skill-${i}`, { "SKILL.md": skillText(`number ${i}`) });
  const read: string[] = [];
  const watched: VolumeFiles = {
    ...diskFiles,
    read: (path, maxBytes) => {
      read.push(path);
      return diskFiles.read(path, maxBytes);
    },
  };
  expect((await pod.bring({}, watched)).count).toBe(200);
  expect(read.length).toBe(200);
  await pod.plant("skill-7", { "SKILL.md": skillText("another number") });
  read.length = 0;
  expect(await pod.bring({}, watched)).toMatchObject({ changed: ["skill-7"], count: 200 });
  expect(read).toEqual([join(pod.volume, "skills/skill-7/SKILL.md")]);
  expect(await readFile(join(pod.skills, "skill-7/SKILL.md"), "utf8")).toContain("another number");
});

test("a skill that is gone from the volume goes, unless the agent changed it", async () => {
  await using pod = await SkillsPod.open();
  for (const name of ["stays", "goes", "edited"]) await pod.plant(name, { "SKILL.md": skillText(name) });
  await pod.bring();
  await pod.write("edited", { "SKILL.md": skillText("by the agent") });
  for (const name of ["goes", "edited"]) await rm(join(pod.volume, "skills", name), { recursive: true });
  expect((await pod.bring()).removed).toEqual(["goes"]);
  expect(Object.keys(await treeOf(pod.skills))).toEqual(["edited/SKILL.md", "stays/SKILL.md"]);
  // A mount that lost its content is no reason to throw skills away.
  await rm(join(pod.volume, "skills"), { recursive: true });
  expect((await pod.bring()).removed).toEqual([]);
  expect(Object.keys(await treeOf(pod.skills))).toEqual(["edited/SKILL.md", "stays/SKILL.md"]);
});

const ODD_NAMES = ["new\nline", "x".repeat(200), "back\\slash"];

test("a skill whose name cannot stand in a listing is left out, and said", async () => {
  await using pod = await SkillsPod.open();
  for (const name of [...ODD_NAMES, "good", ".hidden"]) await pod.plant(name, { "SKILL.md": skillText("it") });
  await pod.plant("no\nskill", { "README.md": "nothing" });
  const brought = await pod.bring();
  expect(Object.keys(await treeOf(pod.skills))).toEqual(["good/SKILL.md"]);
  const reason = "its name has over 128 characters, or one that cannot stand in a listing";
  // The model is told the names: none of them may bring a line of its own.
  const told = ["back?slash", "new?line", "x".repeat(128)].map((name) => ({ name, reason, kept: false }));
  expect(brought).toMatchObject({ count: 1, leftOut: told });
  // And of those that the agent made.
  for (const name of ODD_NAMES) await pod.write(name, { "SKILL.md": skillText("the agent's") });
  const returned = await pod.giveBack();
  expect(returned.leftOut).toEqual(told.map((each) => ({ ...each, kept: true })));
  expect(await readFile(join(pod.volume, "skills", "new\nline", "SKILL.md"), "utf8")).toBe(skillText("it"));
});

test("what the agent deleted comes back: deletions are not carried over", async () => {
  await using pod = await SkillsPod.open();
  await pod.plant("rockets", { "SKILL.md": skillText("rockets") });
  await pod.bring();
  await rm(join(pod.skills, "rockets"), { recursive: true });
  await pod.giveBack();
  await pod.bring();
  expect(await treeOf(pod.skills)).toEqual({ "rockets/SKILL.md": skillText("rockets") });
});

test("one unreadable skill does not take the others, and keeps its earlier copy", async () => {
  await using pod = await SkillsPod.open();
  for (let i = 0; i < 20; i++) await pod.plant(`skill-${i}`, { "SKILL.md": skillText(`number ${i}`) });
  const failing: VolumeFiles = {
    ...diskFiles,
    read: (path, maxBytes) =>
      path.includes("skill-7/")
        ? Promise.reject(Object.assign(new Error("a bad sector"), { code: "EIO" }))
        : diskFiles.read(path, maxBytes),
  };
  const brought = await pod.bring({}, failing);
  expect(brought).toMatchObject({ hung: false, count: 19 });
  expect(brought.leftOut).toEqual([{ name: "skill-7", reason: "it cannot be read: EIO", kept: false }]);
  expect((await pod.bring()).count).toBe(20);
  await pod.plant("skill-7", { "SKILL.md": skillText("newer") });
  expect((await pod.bring({}, failing)).leftOut).toMatchObject([{ name: "skill-7", kept: true }]);
  expect(await readFile(join(pod.skills, "skill-7/SKILL.md"), "utf8")).toBe(skillText("number 7"));
});

test("a call that hangs ends the attempt; the next one does without it, and tries it later", async () => {
  await using pod = await SkillsPod.open();
  for (let i = 10; i < 40; i++) await pod.plant(`skill-${i}`, { "SKILL.md": skillText(`number ${i}`) });
  const hanging: VolumeFiles = {
    ...diskFiles,
    read: (path, maxBytes) => (path.includes("skill-12/") ? new Promise(() => {}) : diskFiles.read(path, maxBytes)),
  };
  const first = await pod.bring({ callMs: 400 }, hanging);
  expect(first.hung).toBe(true);
  expect(first.leftOut.map(({ name }) => name)).toContain("skill-12");
  const second = await pod.bring({ callMs: 400 }, hanging);
  expect(second).toMatchObject({ hung: false, count: 29 });
  expect(second.leftOut).toEqual([{ name: "skill-12", reason: "reading it took too long before", kept: false }]);
  pod.nowMs += 61_000;
  expect(await pod.bring({ callMs: 400 }, hanging)).toMatchObject({ hung: true, count: 29 });
  pod.nowMs += 61_000;
  expect(await pod.bring()).toMatchObject({ hung: false, count: 30, leftOut: [] });
});

test("a skill whose read hangs keeps the copy that was read before", async () => {
  await using pod = await SkillsPod.open();
  await pod.plant("rockets", { "SKILL.md": skillText("old") });
  await pod.bring();
  await pod.plant("rockets", { "SKILL.md": skillText("newer") });
  const hanging: VolumeFiles = { ...diskFiles, read: () => new Promise(() => {}) };
  expect(await pod.bring({ callMs: 400 }, hanging)).toMatchObject({
    hung: true,
    leftOut: [{ name: "rockets", kept: true }],
  });
  expect(await treeOf(pod.skills)).toEqual({ "rockets/SKILL.md": skillText("old") });
});

test("a skill that does not agree with its hashes is not taken, until it does", async () => {
  await using pod = await SkillsPod.open();
  await using other = await pod.neighbour();
  await pod.bring();
  await pod.write("rockets", { "SKILL.md": skillText("whole"), "notes.md": "notes" });
  await pod.giveBack();
  const target = join(pod.volume, "skills/rockets/notes.md");
  await writeFile(target, "no");
  expect((await other.bring()).leftOut).toMatchObject([{ name: "rockets", kept: false }]);
  await writeFile(target, "notes");
  expect(await other.bring()).toMatchObject({ leftOut: [], count: 1 });
  await writeFile(target, "nodes");
  expect((await other.bring()).leftOut).toMatchObject([{ name: "rockets", kept: true }]);
  expect(await readFile(join(other.skills, "rockets/notes.md"), "utf8")).toBe("notes");
});

test("changed on both sides: the volume's takes the place, the agent's goes on beside it", async () => {
  await using pod = await SkillsPod.open();
  await pod.plant("rockets", { "SKILL.md": skillText("first") });
  await pod.bring();
  await pod.write("rockets", { "SKILL.md": skillText("by the agent") });
  await pod.plant("rockets", { "SKILL.md": skillText("by a person") });
  const { conflicts } = await pod.bring();
  expect(conflicts).toEqual([{ name: "rockets", keptAs: expect.stringMatching(/^rockets-[0-9a-f]{8}$/) }]);
  const [{ keptAs = "" } = {}] = conflicts;
  const both = {
    "rockets/SKILL.md": skillText("by a person"),
    [`${keptAs}/SKILL.md`]: skillText("by the agent"),
  };
  expect(await treeOf(pod.skills)).toEqual(both);
  expect((await pod.giveBack()).returned).toEqual([keptAs]);
  expect(await treeOf(join(pod.volume, "skills"))).toMatchObject(both);
});

test("what two pods wrote into one another is given up after a while, and each one's version goes on beside it", async () => {
  await using pod = await SkillsPod.open();
  await using other = await pod.neighbour();
  await pod.plant("rockets", { "SKILL.md": skillText("old") });
  for (const each of [pod, other]) await each.bring();
  // As on mounts that show neither the other's claim nor its files: the text of one, the hashes of the other.
  await pod.write("rockets", { "SKILL.md": skillText("of this pod") });
  await pod.giveBack();
  const hashes = join(pod.volume, "skills/rockets", HASH_FILE);
  const mine = await readFile(hashes);
  await pod.plant("rockets", { "SKILL.md": skillText("old") });
  await rm(hashes);
  await other.write("rockets", { "SKILL.md": skillText("of the other pod") });
  expect((await other.giveBack()).returned).toEqual(["rockets"]);
  await writeFile(hashes, mine);

  for (const each of [pod, other]) {
    expect(await each.bring()).toMatchObject({ conflicts: [], leftOut: [{ name: "rockets", kept: true }] });
    each.nowMs += 61_000;
    const { conflicts } = await each.bring();
    expect(conflicts).toMatchObject([{ name: "rockets" }]);
    expect((await each.giveBack()).returned).toEqual([conflicts[0]?.keptAs ?? ""]);
    expect((await each.bring()).conflicts).toEqual([]);
  }
  await using next = await pod.neighbour();
  await next.bring();
  expect(Object.values(await treeOf(next.skills)).sort()).toEqual([
    skillText("of the other pod"),
    skillText("of this pod"),
  ]);
});

test("a skill that this disk does not take costs no other", async () => {
  await using pod = await SkillsPod.open();
  for (const name of ["a", "b", "c"]) await pod.plant(name, { "SKILL.md": skillText(name) });
  const long = "x".repeat(256);
  const files: VolumeFiles = {
    ...diskFiles,
    // A name that is one character too long for a file.
    list: async (path) => (path.endsWith("/b") ? ["SKILL.md", long] : diskFiles.list(path)),
    look: async (path) => (path.endsWith(long) ? { size: 1, mtimeMs: 1 } : diskFiles.look(path)),
    read: async (path, maxBytes) => (path.endsWith(long) ? Buffer.from("x") : diskFiles.read(path, maxBytes)),
  };
  const brought = await pod.bring({}, files);
  expect(brought.leftOut).toEqual([{ name: "b", reason: "it cannot be put in place: ENAMETOOLONG", kept: false }]);
  expect(Object.keys(await treeOf(pod.skills))).toEqual(["a/SKILL.md", "c/SKILL.md"]);
});

test("a skills folder of the image's own wins; an empty one does not", async () => {
  await using pod = await SkillsPod.open();
  await pod.plant("rockets", { "SKILL.md": skillText("rockets") });
  mkdirSync(pod.skills, { recursive: true });
  expect((await pod.bring()).link).toBe("linked");
  await rm(pod.skills);
  await pod.plant("own", { "SKILL.md": skillText("own") }, pod.skills);
  expect((await pod.bring()).link).toBe("own-folder");
  expect((await lstat(pod.skills)).isDirectory()).toBe(true);
  await rm(pod.skills, { recursive: true });
  mkdirSync(join(pod.root, "elsewhere"));
  symlinkSync(join(pod.root, "elsewhere"), pod.skills);
  expect((await pod.bring()).link).toBe("own-folder");
  await rm(join(pod.root, "elsewhere"), { recursive: true });
  expect((await pod.bring()).link).toBe("linked");
  expect(readlinkSync(pod.skills)).toStartWith(pod.stateDir);
});

test("a config folder that the image made a link is used as it is", async () => {
  await using pod = await SkillsPod.open();
  await pod.plant("rockets", { "SKILL.md": skillText("rockets") });
  const elsewhere = join(pod.root, "elsewhere");
  mkdirSync(elsewhere);
  symlinkSync("elsewhere", pod.configDir);
  expect(await pod.bring()).toMatchObject({ link: "linked", count: 1, leftOut: [] });
  expect(await treeOf(join(elsewhere, "skills"))).toEqual({ "rockets/SKILL.md": skillText("rockets") });
});

test("a config folder that is none, or cannot be made, costs its link and no skill", async () => {
  await using pod = await SkillsPod.open();
  await pod.plant("rockets", { "SKILL.md": skillText("rockets") });
  symlinkSync("nothing", pod.configDir);
  expect(await pod.bring()).toMatchObject({ link: "no-folder", count: 1, leftOut: [] });
  expect(await readdir(pod.root)).not.toContain("nothing");
  await rm(pod.configDir);
  await writeFile(pod.configDir, "");
  expect(await pod.bring()).toMatchObject({ link: "no-folder", count: 1 });
  expect(await pod.bring({ configDir: join(pod.configDir, "below") })).toMatchObject({ link: "no-folder", count: 1 });
  const tooLong = join(pod.root, "x".repeat(300));
  expect(await pod.bring({ configDir: tooLong })).toMatchObject({ link: "unwritable", count: 1, leftOut: [] });
  await rm(pod.configDir);
  expect((await pod.bring()).link).toBe("linked");
  expect((await stat(pod.configDir)).mode & 0o777).toBe(0o700);
});

/** Whose pod it is: everything in it can be passed through by the agent. */
function openUp(pod: SkillsPod): void {
  mkdirSync(pod.stateDir, { recursive: true });
  for (const path of [pod.root, pod.stateDir]) chmodSync(path, 0o711);
}

needsRoot("nothing is written where a link of the agent's points", async () => {
  await using pod = await SkillsPod.open();
  await pod.plant("rockets", { "SKILL.md": skillText("rockets") });
  openUp(pod);
  const agent = { uid: 61_001, gid: 61_001 };
  const [elsewhere, agents] = [join(pod.root, "elsewhere"), join(pod.root, "agents")];
  mkdirSync(join(elsewhere, "skills"), { recursive: true });
  mkdirSync(agents);
  chownSync(agents, agent.uid, agent.gid);
  symlinkSync(elsewhere, join(agents, "link"));
  for (const configDir of [join(agents, "link"), join(agents, "link/deeper/config")]) {
    expect(await pod.bring({ agent, configDir })).toMatchObject({ link: "no-folder", count: 1, leftOut: [] });
  }
  // An empty folder would have been replaced.
  expect((await lstat(join(elsewhere, "skills"))).isDirectory()).toBe(true);
  expect(await readdir(elsewhere)).toEqual(["skills"]);
  await rm(elsewhere, { recursive: true });
  expect((await pod.bring({ agent, configDir: join(agents, "link") })).link).toBe("no-folder");
  expect(await readdir(pod.root)).not.toContain("elsewhere");
  // One of the pod's owner is followed.
  symlinkSync(agents, join(pod.root, "owners"));
  expect((await pod.bring({ agent, configDir: join(pod.root, "owners/config") })).link).toBe("linked");
  expect(await stat(join(agents, "config"))).toMatchObject(agent);
});

test("links, pipes and too large skills on a volume are not followed, waited for or copied", async () => {
  await using pod = await SkillsPod.open();
  const root = join(pod.volume, "skills");
  await pod.plant("rockets", { "SKILL.md": skillText("rockets") });
  await symlink("/etc/passwd", join(root, "rockets/passwd"));
  await symlink("/etc", join(root, "linked"));
  await pod.plant("large", { "SKILL.md": skillText("large"), data: "x".repeat((16 << 20) + 1) });
  await pod.plant("piped", { "SKILL.md": skillText("piped") });
  await Bun.$`mkfifo ${join(root, "piped/pipe")}`.quiet();
  const brought = await pod.bring();
  const byName = brought.leftOut.toSorted((one, other) => (one.name < other.name ? -1 : 1));
  expect(byName).toEqual([
    { name: "large", reason: "it is too large", kept: false },
    { name: "linked", reason: "it is a link", kept: false },
  ]);
  expect(Object.keys(await treeOf(pod.skills))).toEqual(["piped/SKILL.md", "rockets/SKILL.md"]);
});

/** Things that lie where a file is expected, and how they are told. */
const IN_THE_WAY = {
  pipe: (path: string) => Bun.$`mkfifo ${path}`.quiet(),
  folder: (path: string) => mkdirSync(join(path, "deeper"), { recursive: true }),
  link: (path: string) => symlinkSync("/etc/passwd", path),
  "link to nothing": (path: string) => symlinkSync("nothing", path),
} as const;

for (const [what, make] of Object.entries(IN_THE_WAY)) {
  for (const file of ["SKILL.md", HASH_FILE]) {
    test(`a ${what} in the place of ${file} costs that skill alone`, async () => {
      await using pod = await SkillsPod.open();
      await pod.plant("a", { "SKILL.md": skillText("a") });
      await pod.plant("odd", { "SKILL.md": skillText("odd"), "a.md": "a" });
      await rm(join(pod.volume, "skills/odd", file), { force: true });
      await make(join(pod.volume, "skills/odd", file));
      await pod.plant("z", { "SKILL.md": skillText("z") });
      expect(await pod.bring()).toMatchObject({
        hung: false,
        leftOut: [{ name: "odd", reason: `${file} is no file`, kept: false }],
      });
      expect(Object.keys(await treeOf(pod.skills))).toEqual(["a/SKILL.md", "z/SKILL.md"]);
    });
  }
}

test("a large skill pushes out no smaller one behind it", async () => {
  await using pod = await SkillsPod.open();
  const sparse = async (name: string, bytes: number): Promise<void> => {
    await pod.plant(name, { "SKILL.md": skillText(name), data: "" });
    await truncate(join(pod.volume, "skills", name, "data"), bytes);
  };
  const full = MAX_VOLUME_BYTES / MAX_SKILL_BYTES;
  for (let n = 0; n < full; n++) await sparse(`large-${n}`, MAX_SKILL_BYTES - 4096);
  await sparse("large-one-more", 1 << 20);
  await pod.plant("small", { "SKILL.md": skillText("small") });
  // They are looked at together: the small one is to come last.
  let seen = 0;
  const largeSeen = Promise.withResolvers<void>();
  const files: VolumeFiles = {
    ...diskFiles,
    async look(path) {
      const found = await diskFiles.look(path);
      if (path.endsWith("/data") && ++seen === full + 1) setTimeout(largeSeen.resolve);
      return found;
    },
    async list(path) {
      if (path.endsWith("/small")) await largeSeen.promise;
      return diskFiles.list(path);
    },
  };
  const { leftOut, count } = await pod.bring({}, files);
  expect(leftOut).toMatchObject([{ reason: `the volume's skills are over ${MAX_VOLUME_BYTES} bytes` }]);
  expect(leftOut[0]?.name).toStartWith("large-");
  expect(count).toBe(full + 1);
});

needsRoot("the agent's user gets copies of its own", async () => {
  await using pod = await SkillsPod.open();
  await pod.plant("rockets", { "SKILL.md": skillText("rockets") });
  const agent = { uid: 61_001, gid: 61_001 };
  openUp(pod);
  await pod.bring({ agent });
  expect((await stat(join(pod.skills, "rockets/SKILL.md"))).uid).toBe(agent.uid);
  const script = `echo changed > "${pod.skills}/rockets/SKILL.md" && mkdir "${pod.skills}/new" && cat "${pod.skills}/rockets/SKILL.md"`;
  const shell = Bun.spawn(["/bin/sh", "-c", script], { uid: agent.uid, gid: agent.gid, stdout: "pipe" } as object);
  expect(await new Response(shell.stdout as ReadableStream).text()).toBe("changed\n");
});
