/** Volumes lie below folders that may be the agent's: what it puts in their place leads the daemon's workers nowhere. */
import { expect, test } from "bun:test";
import { chmod, chown, mkdir, mkdtemp, readdir, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { TestDaemon } from "../support/daemon.ts";
import { needsRoot } from "../support/needs-root.ts";
import { treeOf } from "../support/skills-pod.ts";
import { mountsMissing, WedgeFs } from "../support/wedgefs/index.ts";

const ROOT = process.getuid?.() === 0;
const AGENT = { uid: 34567, gid: 34568 };

/** As the image has it: the folder that the checkout and the volumes lie in belongs to the agent. */
class Pod implements AsyncDisposable {
  private constructor(readonly folder: string) {}
  static async open(): Promise<Pod> {
    const pod = new Pod(await mkdtemp(join(tmpdir(), "dispatchd-pod-")));
    await chmod(pod.folder, 0o711);
    for (const path of [pod.app, pod.home]) {
      await mkdir(path);
      await chown(path, AGENT.uid, AGENT.gid);
    }
    await mkdir(pod.secret, { mode: 0o700 });
    await mkdir(join(pod.secret, "skills/private"), { recursive: true });
    await writeFile(join(pod.secret, "skills/private/SKILL.md"), "what only root may read");
    return pod;
  }
  get app(): string {
    return join(this.folder, "app");
  }
  get home(): string {
    return join(this.folder, "home");
  }
  get secret(): string {
    return join(this.folder, "of-root");
  }
  org(...parts: string[]): string {
    return join(this.app, "org", ...parts);
  }
  /** Says what is mounted, and starts a daemon whose harness is this script, as the agent. */
  async start(volumes: readonly string[], script: string): Promise<TestDaemon> {
    const statusPath = join(this.folder, "status.json");
    const mounts = volumes.map((volume) => ({ volume, mountPath: this.org(volume) }));
    await writeFile(statusPath, JSON.stringify({ mounts }));
    return TestDaemon.start({
      harness: ["/bin/sh", "-c", `cat > /dev/null; set -e; ${script}`],
      env: {
        AGENT_USER: `${AGENT.uid}:${AGENT.gid}`,
        APP_ROOT: this.app,
        STATE_DIR: join(this.folder, "state"),
        HOME: this.home,
        ORGFS_SIDECAR_STATUS_PATH: statusPath,
        ORG_READY_BUDGET_MS: "1000",
        SESSION_IO_BUDGET_MS: "2000",
        ORG_RETRY_EVERY_MS: "300",
        ORG_WRITE_BACK_MS: "0",
        HARNESS_CAPABILITIES: '{"resume":true,"sessionFiles":{"main":"s/<id>","side":"d/<id>"}}',
      },
    });
  }
  /** Nothing was written there, nothing read, nothing given away. */
  async expectUntouched(): Promise<void> {
    expect(await treeOf(this.secret)).toEqual({ "skills/private/SKILL.md": "what only root may read" });
    expect(await readdir(this.secret)).toEqual(["skills"]);
    for (const path of [this.secret, join(this.secret, "skills")]) expect((await stat(path)).uid).toBe(0);
    expect(Object.keys(await treeOf(join(this.folder, "state/agent/skills/home")))).not.toContain("private/SKILL.md");
  }
  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.folder, { recursive: true, force: true });
  }
}

const WRITES_A_SKILL = "mkdir -p ~/.claude/skills/evil; echo evil > ~/.claude/skills/evil/SKILL.md";

needsRoot(
  "a link in the place of the folder of volumes, or of one of them, is not followed",
  async () => {
    for (const [what, swap] of [
      [
        "the folder",
        (pod: Pod) => `mkdir fake; ln -s ${pod.secret} fake/home; ln -s ${pod.secret} fake/.outputs; ln -s fake org`,
      ],
      ["a volume", (pod: Pod) => `mkdir org; ln -s ${pod.secret} org/home; ln -s ${pod.secret} org/.outputs`],
    ] as const) {
      await using pod = await Pod.open();
      for (const volume of ["home", ".outputs"]) await mkdir(pod.org(volume), { recursive: true });
      const script = `cd ${pod.app}; [ -e old ] || { mv org old; ${swap(pod)}; }; ${WRITES_A_SKILL}`;
      await using daemon = await pod.start(["home", ".outputs"], script);
      // The first has the volume when it begins, and not when what it made is returned.
      for (const runId of ["r1", "r2"]) {
        const frames = await daemon.run({ runId, threadId: "a-thread" });
        expect([what, frames.find(({ outcome }) => outcome)?.outcome?.type]).toEqual([what, "finished"]);
      }
      await pod.expectUntouched();
      const told = daemon.log.find(({ event }) => event === "skills not returned");
      expect(String(told?.reason)).toContain("ELOOP");
    }
  },
  20_000,
);

needsRoot(
  "a link of the pod's owner in the place of a volume is followed",
  async () => {
    await using pod = await Pod.open();
    const volume = join(pod.folder, "volumes/home");
    for (const path of [volume, pod.org()]) await mkdir(path, { recursive: true });
    await symlink(volume, pod.org("home"));
    await using daemon = await pod.start(["home"], WRITES_A_SKILL);
    const frames = await daemon.run({ runId: "r1" });
    expect(frames[0]?.preparation).toMatchObject({ home: "ready", skills: "ready" });
    expect(Object.keys(await treeOf(join(volume, "skills")))).toContain("evil/SKILL.md");
  },
  20_000,
);

const needsMount = test.skipIf((!ROOT || mountsMissing !== undefined) && process.env.CI === undefined);

needsMount(
  "a mount works, and may hang, below a folder of the agent's",
  async () => {
    await using pod = await Pod.open();
    await mkdir(pod.org("home"), { recursive: true });
    await using mount = await WedgeFs.mount(pod.org("home"), {});
    await using daemon = await pod.start(["home"], WRITES_A_SKILL);
    const frames = await daemon.run({ runId: "r1" });
    expect(frames[0]?.preparation).toMatchObject({ home: "ready", skills: "ready" });
    expect(Object.keys(await treeOf(join(mount.backing, "skills")))).toContain("evil/SKILL.md");
    await mount.hold();
    const hung = await daemon.run({ runId: "r2" });
    expect(hung[0]?.preparation).toMatchObject({ home: "timeout" });
    expect(hung.find(({ outcome }) => outcome)?.outcome?.type).toBe("finished");
    await mount.release();
  },
  30_000,
);
