/**
 * Plays the sidecar of a pod: says what is mounted in its status file, and takes mount requests from its control file.
 * Volumes are FUSE mounts, or plain folders where a test needs none.
 */
import { mkdir, mkdtemp, readFile, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type MountSetup, WedgeFs } from "./wedgefs/index.ts";

export class Sidecar {
  readonly mounts = new Map<string, WedgeFs>();
  #volumes = new Set<string>();
  #writes = 0;

  private constructor(
    /** The pod's `APP_ROOT`. */
    readonly appRoot: string,
    private readonly folder: string,
  ) {}

  static async start(): Promise<Sidecar> {
    const folder = await mkdtemp(join(tmpdir(), "sidecar-"));
    const appRoot = join(folder, "app");
    await mkdir(join(appRoot, "org"), { recursive: true });
    await mkdir(join(folder, "control"));
    return new Sidecar(appRoot, folder);
  }

  get statusPath(): string {
    return join(this.folder, "control", "status.json");
  }
  get configPath(): string {
    return join(this.folder, "control", "config.json");
  }
  /** For the daemon that it is beside. */
  get env(): Record<string, string> {
    return {
      APP_ROOT: this.appRoot,
      STATE_DIR: join(this.folder, "state"),
      ORGFS_SIDECAR_STATUS_PATH: this.statusPath,
      ORGFS_SIDECAR_CONFIG_PATH: this.configPath,
    };
  }
  path(volume: string, ...parts: string[]): string {
    return join(this.appRoot, "org", volume, ...parts);
  }

  /** Mounts a volume that can be made to hang, and says so. */
  async mount(volume: string, setup: MountSetup = {}): Promise<WedgeFs> {
    const mount = await WedgeFs.mount(this.path(volume), setup);
    this.mounts.set(volume, mount);
    await this.report(volume);
    return mount;
  }

  /** A plain folder in a volume's place. */
  async provide(volume: string): Promise<string> {
    await mkdir(this.path(volume), { recursive: true });
    await this.report(volume);
    return this.path(volume);
  }

  /** Says that these volumes are mounted too. */
  async report(...volumes: string[]): Promise<void> {
    for (const volume of volumes) this.#volumes.add(volume);
    await this.#write();
  }
  async withdraw(volume: string): Promise<void> {
    this.#volumes.delete(volume);
    await this.#write();
  }

  /** The mount request that came last. */
  async request(): Promise<unknown> {
    return JSON.parse(await readFile(this.configPath, "utf8"));
  }

  async #write(): Promise<void> {
    const mounts = [...this.#volumes].map((volume) => ({ volume, mountPath: this.path(volume) }));
    const temporary = `${this.statusPath}.${this.#writes++}`;
    await writeFile(temporary, JSON.stringify({ mounts }));
    await rename(temporary, this.statusPath);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const mount of this.mounts.values()) await mount[Symbol.asyncDispose]();
    await rm(this.folder, { recursive: true, force: true });
  }
}
