/** A pod's folders and an org volume, as far as skills are concerned; the jobs run in the test's own process. */
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { Glob } from "bun";
import { bringHome } from "../../src/orgfs/skills/bring-home.ts";
import { bringSets } from "../../src/orgfs/skills/bring-sets.ts";
import type {
  BroughtHome,
  BroughtSets,
  HomeInput,
  ReturnedSkills,
  ReturnInput,
  SetsInput,
} from "../../src/orgfs/skills/jobs.ts";
import { returnSkills } from "../../src/orgfs/skills/return-skills.ts";
import type { VolumeFiles } from "../../src/orgfs/skills/volume-files.ts";

export class SkillsPod implements AsyncDisposable {
  /** Moves by itself only when a test says so. */
  nowMs = Date.now();

  private constructor(
    readonly root: string,
    /** Where `home` is mounted. */
    readonly volume: string,
    private readonly removed: readonly string[],
  ) {}

  static async open(volume?: string): Promise<SkillsPod> {
    const root = await mkdtemp(join(tmpdir(), "skills-pod-"));
    const pod = new SkillsPod(root, volume ?? join(root, "org", "home"), [root]);
    for (const dir of [pod.volume, pod.checkout]) await mkdir(dir, { recursive: true });
    return pod;
  }

  /** Another pod on the same volume. */
  neighbour(): Promise<SkillsPod> {
    return SkillsPod.open(this.volume);
  }

  get stateDir(): string {
    return join(this.root, "state");
  }
  get configDir(): string {
    return join(this.root, "config");
  }
  get checkout(): string {
    return join(this.root, "repo");
  }
  /** What the agent sees. */
  get skills(): string {
    return join(this.configDir, "skills");
  }

  bring(options: Partial<HomeInput> = {}, files?: VolumeFiles): Promise<BroughtHome> {
    return bringHome({ ...this.#input("home", this.volume), configDir: this.configDir, ...options }, files);
  }

  bringSets(volume: string, options: Partial<SetsInput> = {}, files?: VolumeFiles): Promise<BroughtSets> {
    const layout = volume === "public" ? "many" : "one";
    const input = this.#input(volume, join(this.root, "org", volume));
    return bringSets({ ...input, layout, used: [], ...options }, files);
  }

  giveBack(options: Partial<ReturnInput> = {}, files?: VolumeFiles): Promise<ReturnedSkills> {
    const input = { ...this.#input("home", this.volume), checkouts: [this.checkout], quietMs: 0, patienceMs: 20 };
    return returnSkills({ ...input, ...options }, files);
  }

  /** On the volume, or where `below` says. */
  async plant(name: string, files: Record<string, string>, below = join(this.volume, "skills")): Promise<void> {
    for (const [path, text] of Object.entries(files)) {
      const target = join(below, name, path);
      await mkdir(dirname(target), { recursive: true });
      await writeFile(target, text);
    }
  }

  /** As the agent does it. */
  write(name: string, files: Record<string, string>): Promise<void> {
    return this.plant(name, files, this.skills);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const path of this.removed) await rm(path, { recursive: true, force: true });
  }

  #input(volume: string, mountPath: string) {
    return { volume, mountPath, stateDir: this.stateDir, agent: null, callMs: 60_000, nowMs: this.nowMs };
  }
}

/** All files below, with their text. */
export async function treeOf(root: string): Promise<Record<string, string>> {
  const paths = await Array.fromAsync(new Glob("**/*").scan({ cwd: root, dot: true, followSymlinks: false }));
  const entries = paths.sort().map(async (path) => [path, await readFile(join(root, path), "utf8")] as const);
  return Object.fromEntries(await Promise.all(entries));
}

export function skillText(about: string): string {
  return `---\nname: a-skill\ndescription: ${about}\n---\n${about}\n`;
}
