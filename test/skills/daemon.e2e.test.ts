/** Skills through the compiled daemon: what a run gets, what it is told, and what is there for the next pod. */
import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { TurnDocument } from "../../src/harness/port.ts";
import { TestDaemon } from "../support/daemon.ts";
import { CLOSE, FINISHED, OPEN, type Step } from "../support/scripted-harness.ts";
import { Sidecar } from "../support/sidecar.ts";
import { skillText } from "../support/skills-pod.ts";
import { mountsMissing } from "../support/wedgefs/index.ts";

const needsMount = test.skipIf(mountsMissing !== undefined && process.env.CI === undefined);

async function plant(volume: string, path: string, text: string): Promise<void> {
  await mkdir(join(volume, path), { recursive: true });
  await writeFile(join(volume, path, "SKILL.md"), text);
}

function sh(script: string): Step {
  return { sh: script, wait: true };
}

test("a run has the org's skills and sets; what it writes and leaves behind is on the volume, and on the next pod", async () => {
  await using sidecar = await Sidecar.start();
  const home = await sidecar.provide("home");
  const shared = await sidecar.provide("public");
  await plant(home, "skills/gardens", skillText("gardens"));
  await plant(shared, "tools/rockets", skillText("rockets"));
  await mkdir(join(sidecar.appRoot, "repo"));
  const document = join(sidecar.appRoot, "document.json");
  const write = (dir: string) => `mkdir -p ${dir} && echo from the agent > ${dir}/SKILL.md`;
  {
    await using daemon = await TestDaemon.start({ env: sidecar.env });
    const frames = await daemon.run({
      runId: "r1",
      steps: [
        OPEN,
        { touch: document, document: true },
        sh(`cat $HOME/.claude/skills/gardens/SKILL.md > ${sidecar.appRoot}/read`),
        sh(write("$HOME/.claude/skills/weaving")),
        sh(write(".agent/skills/baking")),
        CLOSE,
        FINISHED,
      ],
    });
    expect(frames[0]?.preparation).toMatchObject({ home: "ready", skills: "ready" });
    expect(await readFile(join(sidecar.appRoot, "read"), "utf8")).toBe(skillText("gardens"));
    const { skills } = JSON.parse(await readFile(document, "utf8")) as TurnDocument;
    expect(skills?.missing).toBeUndefined();
    const [set = ""] = skills?.pluginDirs ?? [];
    expect(await readFile(join(set, "skills/rockets/SKILL.md"), "utf8")).toBe(skillText("rockets"));
    for (const name of ["weaving", "baking"]) {
      expect(await readFile(join(home, "skills", name, "SKILL.md"), "utf8")).toBe("from the agent\n");
    }
    expect(daemon.log.find(({ event }) => event === "skills returned")).toMatchObject({ adopted: ["baking"] });
    await daemon.stop();
  }
  await rm(sidecar.env.STATE_DIR ?? "", { recursive: true });
  await using next = await TestDaemon.start({ env: sidecar.env });
  await next.run({
    runId: "r2",
    steps: [OPEN, sh(`ls $HOME/.claude/skills > ${sidecar.appRoot}/read`), CLOSE, FINISHED],
  });
  expect(await readFile(join(sidecar.appRoot, "read"), "utf8")).toBe("baking\ngardens\nweaving\n");
}, 20_000);

needsMount(
  "a skill whose read hangs is missing, the run is told so, and starts",
  async () => {
    await using sidecar = await Sidecar.start();
    const home = await sidecar.mount("home");
    await plant(home.backing, "skills/gardens", skillText("gardens"));
    await plant(home.backing, "skills/stuck", skillText("stuck"));
    await home.hold({ ops: ["read"], path: "skills/stuck/**" });
    const document = join(sidecar.appRoot, "document.json");
    await using daemon = await TestDaemon.start({
      env: { ...sidecar.env, ORG_READY_BUDGET_MS: "7000", ORG_RETRY_EVERY_MS: "1000" },
    });
    const steps = [OPEN, { touch: document, document: true } as const, CLOSE, FINISHED];
    const frames = await daemon.run({ runId: "r1", steps });
    expect(frames[0]?.preparation).toMatchObject({ home: "ready", skills: "ready" });
    expect(frames[0]?.preparation?.reason).toContain("1 skill could not be loaded: stuck");
    const told = JSON.parse(await readFile(document, "utf8")) as TurnDocument;
    expect(told.skills?.missing).toContain("stuck");
    expect(existsSync(join(daemon.folder, ".claude/skills/gardens/SKILL.md"))).toBe(true);
    expect(existsSync(join(daemon.folder, ".claude/skills/stuck"))).toBe(false);
    await home.release();
  },
  30_000,
);
