/** Skills over real mounts, in real flights: hanging, failing, full, gone, late and cut short. */
import { expect, setDefaultTimeout, test } from "bun:test";
import { existsSync } from "node:fs";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { skillText, treeOf } from "../support/skills-pod.ts";
import { mountsMissing, type WedgeFs } from "../support/wedgefs/index.ts";
import { pod } from "./start-pod.ts";

setDefaultTimeout(30_000);

const needsMount = test.skipIf(mountsMissing !== undefined && process.env.CI === undefined);

/** At the backend, past the mount. */
async function plant(mount: WedgeFs, path: string, text: string): Promise<void> {
  const target = join(mount.backing, path, "SKILL.md");
  await mkdir(join(target, ".."), { recursive: true });
  await writeFile(target, text);
}

const nameOf = (i: number): string => `skill-${String(i).padStart(3, "0")}`;

needsMount(
  "of 200 skills one is unreadable and one hangs: the others are there, and it is tried again later",
  async () => {
    await using own = await pod(["home"]);
    const home = await own.sidecar.mount("home");
    for (let i = 0; i < 200; i++) await plant(home, `skills/${nameOf(i)}`, skillText(`number ${i}`));
    await home.fail({ ops: ["read"], path: "skills/skill-050/**", errno: "EIO" });
    await home.hold({ ops: ["read"], path: "skills/skill-100/**" });
    const startedAt = performance.now();
    const first = await own.skills.bring();
    expect(performance.now() - startedAt).toBeLessThan(4000);
    expect(first).toMatchObject({ state: "timeout", reason: expect.stringContaining("the volume does not answer") });
    const second = await own.skills.bring();
    expect(second.state).toBe("ready");
    expect(second.reason).toBe("2 skills could not be loaded: skill-050, skill-100");
    expect(Object.keys(await treeOf(own.seen)).length).toBe(198);
    expect(own.skills.forRun()).toMatchObject({ pluginDirs: [], missing: second.reason });
    await home.release();
    await home.heal();
    own.pass(61_000);
    expect(await own.skills.bring()).toEqual({ state: "ready" });
    expect(Object.keys(await treeOf(own.seen)).length).toBe(200);
    // Also after it was read before.
    await plant(home, "skills/skill-100", skillText("another version"));
    await home.hold({ ops: ["read"], path: "skills/skill-100/**" });
    expect((await own.skills.bring()).state).toBe("timeout");
    expect(await readFile(join(own.seen, "skill-100/SKILL.md"), "utf8")).toBe(skillText("number 100"));
    await home.release();
  },
);

needsMount("a folder of a name that is no skill's costs no other skill its place, also when it hangs", async () => {
  await using own = await pod(["home", "public"]);
  const [home, shared] = [await own.sidecar.mount("home"), await own.sidecar.mount("public")];
  const odd = "x".repeat(200);
  await plant(home, "skills/rockets", skillText("rockets"));
  await plant(home, `skills/${odd}`, skillText("odd"));
  for (const path of ["set/gardens", `set/${odd}`, `${odd}/skill`]) await plant(shared, path, skillText("a set's"));
  await home.hold({ ops: ["opendir"], path: `skills/${odd}` });
  await shared.hold({ ops: ["opendir"], path: `**/${odd}` });
  await shared.hold({ ops: ["opendir"], path: odd });
  for (let n = 0; n < 3; n++) {
    const startedAt = performance.now();
    const brought = await own.skills.bring();
    expect(brought).toEqual({ state: "ready", reason: expect.stringContaining("x".repeat(128)) });
    expect(Object.keys(await treeOf(own.seen))).toEqual(["rockets/SKILL.md"]);
    expect(own.skills.forRun()?.pluginDirs).toHaveLength(1);
    // Each that hangs is waited for once.
    if (n === 2) expect(performance.now() - startedAt).toBeLessThan(1000);
    own.pass(61_000);
  }
  await Promise.all([home.release(), shared.release()]);
});

needsMount("dozens of folders whose names are no skill's are looked at side by side", async () => {
  await using own = await pod(["home"]);
  const home = await own.sidecar.mount("home");
  await plant(home, "skills/rockets", skillText("rockets"));
  for (let i = 0; i < 100; i++) await plant(home, `skills/${"x".repeat(200)}${i}`, skillText("odd"));
  await home.delay({ ms: 10 });
  const startedAt = performance.now();
  expect((await own.skills.bring()).state).toBe("ready");
  expect(performance.now() - startedAt).toBeLessThan(2500);
});

needsMount("a volume that hangs altogether, or went away, leaves what was brought before", async () => {
  await using own = await pod(["home", "public"]);
  const home = await own.sidecar.mount("home");
  const shared = await own.sidecar.mount("public");
  await plant(home, "skills/rockets", skillText("rockets"));
  await plant(shared, "flat/gardens", skillText("gardens"));
  expect(await own.skills.bring()).toEqual({ state: "ready" });
  await shared.hold();
  expect((await own.skills.bring()).state).toBe("timeout");
  const run = own.skills.forRun();
  expect(run?.pluginDirs.map((dir) => dir.split("/").at(-1))).toEqual(["flat"]);
  expect(await treeOf(run?.pluginDirs[0] ?? "")).toEqual({ "skills/gardens/SKILL.md": skillText("gardens") });
  await shared.release();
  await home.vanish();
  const gone = await own.skills.bring();
  expect(gone).toMatchObject({ state: "failed", reason: expect.stringContaining("ENOTCONN") });
  expect(await treeOf(own.seen)).toEqual({ "rockets/SKILL.md": skillText("rockets") });
  run?.release();
});

needsMount("a wait that is cut short goes on for the others", async () => {
  await using own = await pod(["home"]);
  const home = await own.sidecar.mount("home");
  await plant(home, "skills/rockets", skillText("rockets"));
  await home.delay({ ops: ["read"], ms: 300 });
  const cut = new AbortController();
  const one = own.skills.bring(cut.signal);
  const other = own.skills.bring();
  cut.abort();
  expect(await one).toMatchObject({ state: "timeout" });
  expect(await other).toEqual({ state: "ready" });
  expect(own.log.said.filter(({ event }) => event === "skills ready").length).toBe(1);
});

needsMount("a return that hangs is gone on with when the volume answers again", async () => {
  await using own = await pod(["home"]);
  const home = await own.sidecar.mount("home");
  await plant(home, "skills/rockets", skillText("old"));
  await own.skills.bring();
  await writeFile(join(own.seen, "rockets/notes.md"), "notes");
  await writeFile(join(own.seen, "rockets/SKILL.md"), skillText("new"));
  await home.hold({ ops: ["write"], path: "skills/rockets/SKILL.md" });
  const cut = new AbortController();
  const first = own.skills.afterRun({ checkout: own.checkout, signal: cut.signal });
  await home.untilHeld({ ops: ["write"], path: "skills/rockets/SKILL.md" });
  cut.abort();
  await first;
  await own.skills.afterRun({ checkout: own.checkout });
  expect(own.log.said.filter(({ event }) => event === "skills not returned").length).toBe(1);
  await home.release();
  await own.skills.afterRun({ checkout: own.checkout });
  expect(await treeOf(join(home.backing, "skills"))).toMatchObject({
    "rockets/SKILL.md": skillText("new"),
    "rockets/notes.md": "notes",
  });
  expect(own.log.said.filter(({ event }) => event === "skill changed on both sides")).toEqual([]);
});

needsMount("a full volume costs the skill that does not fit, until there is room", async () => {
  await using own = await pod(["home"]);
  const home = await own.sidecar.mount("home");
  await own.skills.bring();
  await mkdir(join(own.seen, "large"));
  await writeFile(join(own.seen, "large/SKILL.md"), skillText("x".repeat(100_000)));
  await home.space(10_000);
  await own.skills.afterRun({ checkout: own.checkout });
  const told = own.log.said.find(({ event }) => event === "skills not returned");
  expect(JSON.stringify(told?.fields)).toContain("it cannot be written: ENOSPC");
  await home.space(null);
  await own.skills.afterRun({ checkout: own.checkout });
  expect(own.log.said.at(-1)).toMatchObject({ event: "skills returned", fields: { returned: ["large"] } });
});

needsMount("files that reach the backend late, or cut short, are not taken by another pod", async () => {
  await using own = await pod(["home"]);
  await using other = await pod(["home"]);
  const mine = await own.sidecar.mount("home", { writeBackMs: 60_000 });
  const theirs = await other.sidecar.mount("home", { backing: mine.backing });
  await plant(mine, "skills/rockets", skillText("old"));
  await own.skills.bring();
  await other.skills.bring();
  await writeFile(join(own.seen, "rockets/SKILL.md"), skillText("a version that is longer than the old one"));
  await own.skills.checkpoint({ checkout: own.checkout });
  await own.skills.afterRun({ checkout: own.checkout });
  expect(own.log.said.at(-1)).toMatchObject({ event: "skills returned", fields: { returned: ["rockets"] } });
  await theirs.forgetListings();
  expect(await other.skills.bring()).toEqual({ state: "ready" });
  // A pod that is killed while it writes back.
  expect(await mine.writeBack(0.5)).toBeGreaterThan(0);
  await theirs.forgetListings();
  await other.skills.bring();
  expect(await treeOf(other.seen)).toEqual({ "rockets/SKILL.md": skillText("old") });
  expect(other.log.said.at(-1)).toMatchObject({ event: "skills incomplete" });
});

needsMount(
  "two pods that return a skill before either's files reach the backend: both versions end there",
  async () => {
    await using own = await pod(["home"]);
    await using other = await pod(["home"]);
    const mine = await own.sidecar.mount("home", { writeBackMs: 60_000 });
    const theirs = await other.sidecar.mount("home", { backing: mine.backing, writeBackMs: 60_000 });
    await plant(mine, "skills/rockets", skillText("old"));
    for (const each of [own, other]) await each.skills.bring();
    for (const [each, text] of [
      [own, "of this pod"],
      [other, "of the other pod"],
    ] as const) {
      await writeFile(join(each.seen, "rockets/SKILL.md"), skillText(text));
      await each.skills.afterRun({ checkout: each.checkout });
      expect(each.log.said.at(-1)).toMatchObject({ event: "skills returned", fields: { returned: ["rockets"] } });
    }
    const settle = async (): Promise<void> => {
      for (const mount of [mine, theirs]) await mount.writeBack();
      for (const mount of [mine, theirs]) await mount.forgetListings();
    };
    await settle();
    for (const each of [own, other]) {
      await each.skills.bring();
      await each.skills.afterRun({ checkout: each.checkout });
      await settle();
    }
    const stored = Object.entries(await treeOf(join(mine.backing, "skills")));
    const texts = stored.filter(([path]) => path.endsWith("/SKILL.md")).map(([, text]) => text);
    expect(texts.sort()).toEqual([skillText("of the other pod"), skillText("of this pod")]);
  },
);

needsMount("a thing left in the checkout is adopted, and the next pod has it", async () => {
  await using own = await pod(["home"]);
  const home = await own.sidecar.mount("home");
  await own.skills.bring();
  const stray = join(own.checkout, ".agent/skills/stray");
  await mkdir(stray, { recursive: true });
  await writeFile(join(stray, "SKILL.md"), skillText("stray"));
  await own.skills.afterRun({ checkout: own.checkout });
  expect(await readFile(join(home.backing, "skills/stray/SKILL.md"), "utf8")).toBe(skillText("stray"));
  expect(await readFile(join(own.seen, "stray/SKILL.md"), "utf8")).toBe(skillText("stray"));
});

test("a run keeps the copy of a set that it began with, until it is over", async () => {
  await using own = await pod(["public"]);
  const volume = await own.sidecar.provide("public");
  const skill = join(volume, "flat/gardens/SKILL.md");
  await mkdir(join(skill, ".."), { recursive: true });
  await writeFile(skill, skillText("old"));
  expect(own.skills.forRun()).toBeUndefined();
  await own.skills.bring();
  const [one, two] = [own.skills.forRun(), own.skills.forRun()];
  await writeFile(skill, skillText("a newer one"));
  await own.skills.bring();
  const later = own.skills.forRun();
  const copyOf = (run: typeof one) => treeOf(run?.pluginDirs[0] ?? "");
  expect(await copyOf(later)).toEqual({ "skills/gardens/SKILL.md": skillText("a newer one") });
  one?.release();
  one?.release();
  await own.skills.bring();
  expect(await copyOf(two)).toEqual({ "skills/gardens/SKILL.md": skillText("old") });
  two?.release();
  await own.skills.bring();
  expect(existsSync(two?.pluginDirs[0] ?? "")).toBe(false);
  expect(existsSync(later?.pluginDirs[0] ?? "")).toBe(true);
});

needsMount("a run without changes asks the volume for listings alone", async () => {
  await using own = await pod(["home"]);
  const home = await own.sidecar.mount("home");
  for (let i = 0; i < 50; i++) await plant(home, `skills/${nameOf(i)}`, skillText(`number ${i}`));
  await own.skills.bring();
  await home.counts();
  expect(await own.skills.bring()).toEqual({ state: "ready" });
  const counts = await home.counts();
  expect(counts.bytesRead ?? 0).toBe(0);
  await own.skills.checkpoint({ checkout: own.checkout });
  await own.skills.afterRun({ checkout: own.checkout });
  expect(Object.values(await home.counts()).reduce((sum, count) => sum + count, 0)).toBe(0);
});

test("a skill that changed on both sides is told, also when it is noticed before a run", async () => {
  await using own = await pod(["home"]);
  const skill = join(await own.sidecar.provide("home"), "skills/gardens/SKILL.md");
  await mkdir(join(skill, ".."), { recursive: true });
  await writeFile(skill, skillText("old"));
  await own.skills.bring();
  await writeFile(join(own.seen, "gardens/SKILL.md"), skillText("of the agent"));
  await writeFile(skill, skillText("of somebody else"));
  expect(await own.skills.bring()).toEqual({ state: "ready" });
  const told = own.log.said.filter(({ event }) => event === "skill changed on both sides");
  const keptAs = expect.stringMatching(/^gardens-[0-9a-f]{8}$/);
  expect(told).toMatchObject([{ level: "warn", fields: { name: "gardens", keptAs } }]);
});
