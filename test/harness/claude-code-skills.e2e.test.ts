/** The org's skills, as the real Claude Code sees them: linked into its config folder, and as local plugins. */
import { expect, test } from "bun:test";
import { chmodSync } from "node:fs";
import { mkdir, readFile, rm } from "node:fs/promises";
import { join, resolve } from "node:path";
import { bringHome } from "../../src/orgfs/skills/bring-home.ts";
import { bringSets } from "../../src/orgfs/skills/bring-sets.ts";
import { returnSkills } from "../../src/orgfs/skills/return-skills.ts";
import { HarnessBench } from "../support/claude-code-harness/run-turn.ts";
import { calls, says } from "../support/scripted-model/index.ts";

async function writeSkill(dir: string, name: string, about: string): Promise<void> {
  await Bun.write(join(dir, "SKILL.md"), `---\nname: ${name}\ndescription: ${about}\n---\nDo it like this: ${about}\n`);
}

function jobsOf(bench: HarnessBench) {
  const org = join(bench.root, "org");
  const input = (volume: string) => ({
    volume,
    mountPath: join(org, volume),
    stateDir: join(bench.root, "state"),
    agent: null,
    callMs: 5000,
    nowMs: Date.now(),
  });
  return {
    org,
    home: () => bringHome({ ...input("home"), configDir: bench.configDir }),
    sets: () => bringSets({ ...input("public"), layout: "many", used: [] }),
    back: () => returnSkills({ ...input("home"), checkouts: [bench.repo], quietMs: 0, patienceMs: 50 }),
  };
}

test("linked skills and sets are offered to the model, and can be used", async () => {
  await using bench = await HarnessBench.open();
  const jobs = jobsOf(bench);
  await writeSkill(join(jobs.org, "home/skills/gardening"), "gardening", "How gardens are kept here.");
  await writeSkill(join(jobs.org, "public/data tools/rocketry"), "rocketry", "How rockets are built here.");
  expect((await jobs.home()).link).toBe("linked");
  const { sets } = await jobs.sets();
  const plugin = sets[0]?.name ?? "";
  bench.model.push(
    calls(["Skill", { skill: "gardening" }, "skill-1"], ["Skill", { skill: `${plugin}:rocketry` }, "skill-2"]),
    says("Used."),
  );
  const turn = await bench.run({ skills: { pluginDirs: sets.map(({ dir }) => dir) } });
  expect(turn.texts).toEqual(["Used."]);
  const [offered, used] = bench.model.requests.filter((request) => request.kind === "main");
  expect(JSON.stringify(offered?.messages)).toContain("gardening: How gardens are kept here.");
  expect(JSON.stringify(offered?.messages)).toContain(`${plugin}:rocketry: How rockets are built here.`);
  for (const text of ["Do it like this: How gardens are kept here.", "Do it like this: How rockets are built here."]) {
    expect(JSON.stringify(used?.messages)).toContain(text);
  }
  expect(offered?.system).not.toContain("Not all skills");
});

test("skills that the agent writes in a turn are on the volume after it", async () => {
  await using bench = await HarnessBench.open();
  const jobs = jobsOf(bench);
  await writeSkill(join(jobs.org, "home/skills/gardening"), "gardening", "How gardens are kept here.");
  await jobs.home();
  const body = (name: string) => `---\\nname: ${name}\\ndescription: of ${name}\\n---\\n`;
  const write = (dir: string, name: string) =>
    `mkdir -p ${dir}/${name} && printf '%b' '${body(name)}' > ${dir}/${name}/SKILL.md`;
  const command = [
    write("$CLAUDE_CONFIG_DIR/skills", "weaving"),
    write(".claude/skills", "baking"),
    "echo more >> $CLAUDE_CONFIG_DIR/skills/gardening/SKILL.md",
  ].join(" && ");
  bench.model.push(calls(["Bash", { command }, "write-1"]), says("Written."));
  expect((await bench.run()).texts).toEqual(["Written."]);
  const returned = await jobs.back();
  expect(returned).toMatchObject({ adopted: ["baking"], conflicts: [], leftOut: [] });
  expect([...returned.returned].sort()).toEqual(["baking", "gardening", "weaving"]);
  const text = await readFile(join(jobs.org, "home/skills/gardening/SKILL.md"), "utf8");
  expect(text).toEndWith("more\n");
  // The next pod.
  for (const path of [join(bench.root, "state"), bench.configDir, bench.repo]) await rm(path, { recursive: true });
  await mkdir(bench.repo);
  await jobs.home();
  bench.model.push(says("Seen."));
  await bench.run();
  const request = bench.model.requests.filter(({ kind }) => kind === "main").at(-1);
  for (const name of ["baking", "weaving"]) expect(JSON.stringify(request?.messages)).toContain(`${name}: of ${name}`);
}, 15_000);

test("what is missing is told to the model, and a start without skills leaves out the plugins", async () => {
  await using bench = await HarnessBench.open();
  const jobs = jobsOf(bench);
  await writeSkill(join(jobs.org, "public/tools/rocketry"), "rocketry", "How rockets are built here.");
  const pluginDirs = (await jobs.sets()).sets.map(({ dir }) => dir);
  const missing = "2 skills could not be loaded: baking, weaving";
  bench.model.push(says("One."), says("Two."));
  await bench.run({ skills: { pluginDirs, missing } });
  const claude = resolve(
    import.meta.dir,
    `../../node_modules/@anthropic-ai/claude-agent-sdk-${process.platform}-${process.arch}/claude`,
  );
  const claudeCodePath = join(bench.root, "claude-stand-in");
  const script = `case "$*" in *plugin-dir*) exec sleep 70003;; *) exec ${claude} "$@";; esac`;
  await Bun.write(claudeCodePath, `#!/bin/sh\n${script}\n`);
  chmodSync(claudeCodePath, 0o755);
  const turn = await bench.run({ skills: { pluginDirs, missing }, settings: { claudeCodePath, startBudgetMs: 3000 } });
  expect(turn.texts).toEqual(["Two."]);
  const [first, second] = bench.model.requests.filter((request) => request.kind === "main");
  expect(first?.system).toContain(`Not all skills of the organization are there for this turn (${missing})`);
  expect(JSON.stringify(first?.messages)).toContain("tools:rocketry");
  expect(JSON.stringify(second?.messages)).not.toContain("tools:rocketry");
  expect(second?.system).toContain("Skills could not be loaded for this turn");
}, 20_000);
