/** Skills on what deployments have: rclone's mount of a WebDAV server, which keeps no times and gets files late. */
import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { HASH_FILE } from "../../src/orgfs/skills/hash-file.ts";
import { eventually } from "../support/daemon.ts";
import { RcloneVolume, rcloneMissing } from "../support/rclone.ts";
import { skillText, treeOf } from "../support/skills-pod.ts";
import { pod } from "./start-pod.ts";

const needsRclone = test.skipIf(rcloneMissing !== undefined && process.env.CI === undefined);

needsRclone(
  "skills come, change, go back and come again, and a backend that stops costs no more than the wait",
  async () => {
    await using own = await pod(["home"], 2000);
    await using home = await RcloneVolume.mount(own.sidecar.path("home"));
    const { skills, seen, checkout, log } = own;
    const stored = join(home.backing, "skills/rockets");
    await mkdir(stored, { recursive: true });
    await writeFile(join(stored, "SKILL.md"), skillText("old"));
    await eventually(async () => (await skills.bring()).state === "ready" && existsSync(join(seen, "rockets")));
    for (const label of ["second", "third"]) {
      await writeFile(join(seen, "rockets/SKILL.md"), skillText(label));
      await skills.afterRun({ checkout });
      await eventually(async () => (await readFile(join(stored, "SKILL.md"), "utf8")) === skillText(label));
      await eventually(() => existsSync(join(stored, HASH_FILE)));
      expect(await skills.bring()).toEqual({ state: "ready" });
    }
    expect(log.said.filter(({ event }) => event.includes("both sides"))).toEqual([]);
    const seenBefore = await treeOf(seen);

    home.stopBackend();
    await eventually(async () => (await skills.bring()).state === "timeout");
    expect(await treeOf(seen)).toEqual(seenBefore);
    await mkdir(join(seen, "gardens"));
    await writeFile(join(seen, "gardens/SKILL.md"), skillText("gardens"));
    await skills.afterRun({ checkout });
    home.continueBackend();
    await eventually(async () => (await skills.bring()).state === "ready");
    await skills.afterRun({ checkout });
    const arrived = join(home.backing, "skills/gardens/SKILL.md");
    await eventually(() => existsSync(arrived) && existsSync(join(arrived, "..", HASH_FILE)));
    expect(await readFile(arrived, "utf8")).toBe(skillText("gardens"));

    // Another pod, after this one.
    const before = await treeOf(seen);
    await rm(join(seen, "../../state"), { recursive: true });
    await eventually(async () => {
      await skills.bring();
      return Object.keys(await treeOf(seen)).length === 2;
    });
    expect(await treeOf(seen)).toEqual(before);
    const claims = join(home.backing, "skills/.dispatchd-claims");
    await eventually(async () => (await readdir(claims)).length === 0);
    expect(log.said.filter(({ event }) => event.includes("both sides"))).toEqual([]);
  },
  60_000,
);
