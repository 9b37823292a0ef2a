/** Skills of an agent that is another user than the daemon: it may change its copies, and reaches nothing else by them. */
import { expect } from "bun:test";
import { chmod, chown, mkdir, readFile, readlink, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { HASH_FILE } from "../../src/orgfs/skills/hash-file.ts";
import { TestDaemon } from "../support/daemon.ts";
import { needsRoot } from "../support/needs-root.ts";
import { Sidecar } from "../support/sidecar.ts";
import { skillText, treeOf } from "../support/skills-pod.ts";

const AGENT = { uid: 34567, gid: 34568 };
const SECRET = "what only root may read";

interface Pod extends AsyncDisposable {
  readonly sidecar: Sidecar;
  readonly volume: string;
  readonly home: string;
  /** A turn whose harness is this script, as the agent, in its checkout. */
  turn(runId: string, script: string): Promise<TestDaemon>;
}

/** The home and the checkout are the agent's; the volume and a secret beside it are closed to it. */
async function openPod(): Promise<Pod> {
  const sidecar = await Sidecar.start();
  const base = join(sidecar.appRoot, "..");
  const home = join(base, "home");
  const volume = await sidecar.provide("home");
  for (const path of [base, sidecar.appRoot]) await chmod(path, 0o711);
  await chmod(volume, 0o700);
  for (const path of [home, join(sidecar.appRoot, "repo")]) {
    await mkdir(path, { mode: 0o700 });
    await chown(path, AGENT.uid, AGENT.gid);
  }
  await mkdir(join(base, "of-root"), { mode: 0o700 });
  await writeFile(join(base, "of-root/SKILL.md"), SECRET);
  const env = {
    ...sidecar.env,
    AGENT_USER: `${AGENT.uid}:${AGENT.gid}`,
    HOME: home,
    ORG_WRITE_BACK_MS: "0",
    HARNESS_CAPABILITIES: '{"resume":true,"sessionFiles":{"main":"s/<id>","side":"d/<id>"}}',
  };
  return {
    sidecar,
    volume,
    home,
    async turn(runId, script) {
      await using daemon = await TestDaemon.start({
        harness: ["/bin/sh", "-c", `cat > /dev/null; set -e; cd "$HOME/.claude/skills"; ${script}`],
        env,
      });
      const frames = await daemon.run({ runId });
      expect(frames.find(({ outcome }) => outcome)?.outcome).toEqual({ type: "finished" });
      expect(frames[0]?.preparation).toMatchObject({ home: "ready", skills: "ready" });
      return daemon;
    },
    [Symbol.asyncDispose]: () => sidecar[Symbol.asyncDispose](),
  };
}

/** Without the hashes. */
async function onVolume({ volume }: Pod): Promise<Record<string, string>> {
  const all = Object.entries(await treeOf(join(volume, "skills")));
  return Object.fromEntries(all.filter(([path]) => !path.endsWith(HASH_FILE)));
}

needsRoot(
  "what the agent makes of the org's skills is on the volume, and the next pod's agent may change it",
  async () => {
    await using pod = await openPod();
    await mkdir(join(pod.volume, "skills/gardens"), { recursive: true, mode: 0o700 });
    await writeFile(join(pod.volume, "skills/gardens/SKILL.md"), skillText("gardens"), { mode: 0o600 });
    const stray = join(pod.sidecar.appRoot, "repo/.agent/skills/baking");
    const first = await pod.turn(
      "r1",
      `cat gardens/SKILL.md; echo changed > gardens/SKILL.md
     mkdir -p weaving/below "${stray}"; echo weaving > weaving/SKILL.md; echo b > weaving/below/b.md
     echo baking > "${stray}/SKILL.md"`,
    );
    const told = first.log.find(({ event }) => event === "skills returned");
    expect(told).toMatchObject({ returned: ["baking", "gardens", "weaving"], adopted: ["baking"] });
    const all = {
      "baking/SKILL.md": "baking\n",
      "gardens/SKILL.md": "changed\n",
      "weaving/SKILL.md": "weaving\n",
      "weaving/below/b.md": "b\n",
    };
    expect(await onVolume(pod)).toEqual(all);

    // Another pod, of which nothing is left but the volume.
    await rm(pod.sidecar.env.STATE_DIR ?? "", { recursive: true });
    await rm(join(pod.home, ".claude"), { recursive: true });
    const second = await pod.turn(
      "r2",
      `echo more >> weaving/below/b.md; rm -r baking; mkdir new; echo new > new/SKILL.md`,
    );
    expect(second.log.find(({ event }) => event === "skills returned")).toMatchObject({ returned: ["new", "weaving"] });
    expect(await onVolume(pod)).toEqual({ ...all, "new/SKILL.md": "new\n", "weaving/below/b.md": "b\nmore\n" });
    const copies = await readlink(join(pod.home, ".claude/skills"));
    expect(await stat(join(copies, "weaving/below/b.md"))).toMatchObject(AGENT);
  },
  20_000,
);

needsRoot(
  "by its skills the agent reads nothing that is closed to it, and writes nowhere else",
  async () => {
    await using pod = await openPod();
    const secret = join(pod.sidecar.appRoot, "../of-root");
    const stray = join(pod.sidecar.appRoot, "repo/.agent/skills");
    const { log } = await pod.turn(
      "r1",
      `mkdir linked below whole "${stray}" -p
     ln -s "${secret}/SKILL.md" linked/SKILL.md
     echo below > below/SKILL.md; ln -s "${secret}" below/folder; ln -s "${secret}/SKILL.md" below/file; mkfifo below/pipe
     ln -s "${secret}" itself; ln -s "${secret}" "${stray}/stray"; mkfifo whole/SKILL.md`,
    );
    expect(await onVolume(pod)).toEqual({ "below/SKILL.md": "below\n" });
    expect(log.find(({ event }) => event === "skills returned")).toMatchObject({ returned: ["below"], adopted: [] });

    // The folders that lead there are the agent's too: it puts links in their place, and changes come by its next turn.
    await writeFile(join(pod.volume, "skills/below/SKILL.md"), "of another pod");
    await rm(join(pod.volume, "skills/below", HASH_FILE));
    await pod.turn("r2", `rm -r below; ln -s "${secret}" below; cd ..; rm skills; ln -s "${secret}" skills`);
    await writeFile(join(pod.volume, "skills/below/SKILL.md"), "of another pod, and longer");
    await using daemon = await TestDaemon.start({
      harness: ["/bin/sh", "-c", "cat > /dev/null"],
      env: { ...pod.sidecar.env, AGENT_USER: `${AGENT.uid}:${AGENT.gid}`, HOME: pod.home, ORG_WRITE_BACK_MS: "0" },
    });
    await daemon.run({ runId: "r3" });
    expect(await treeOf(secret)).toEqual({ "SKILL.md": SECRET });
    expect(await stat(secret)).toMatchObject({ uid: 0, gid: 0 });
    expect(await onVolume(pod)).toEqual({ "below/SKILL.md": "of another pod, and longer" });
    const copies = join(pod.sidecar.env.STATE_DIR ?? "", "agent/skills/home");
    expect(await readFile(join(copies, "below/SKILL.md"), "utf8")).toBe("of another pod, and longer");
  },
  20_000,
);
