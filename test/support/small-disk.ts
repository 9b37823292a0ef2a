/**
 * A disk of a few MiB: a tmpfs, unmounted when it is disposed of. What a killed test left is removed by the next one.
 */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);
const NAME = /dispatchd-disk-(\d+)-\w+$/;

/** What this machine lacks for one; undefined when there is nothing. */
export async function missingForSmallDisk(): Promise<string | undefined> {
  if (process.getuid?.() !== 0) return "root";
  try {
    await using _disk = await SmallDisk.mount(1 << 20);
    return undefined;
  } catch (error) {
    return `mount -t tmpfs (${(error as Error).message.trim()})`;
  }
}

export class SmallDisk {
  private constructor(readonly path: string) {}

  static async mount(bytes: number): Promise<SmallDisk> {
    await removeOldOnes();
    const disk = new SmallDisk(await mkdtemp(join(tmpdir(), `dispatchd-disk-${process.pid}-`)));
    try {
      await run("mount", ["-t", "tmpfs", "-o", `size=${bytes}`, "tmpfs", disk.path]);
    } catch (error) {
      await rm(disk.path, { recursive: true });
      throw error;
    }
    return disk;
  }

  get #filler(): string {
    return join(this.path, "filler");
  }

  /** Takes all that is left, but for `leaveBytes`. */
  async fill(leaveBytes = 0): Promise<void> {
    const { stdout } = await run("df", ["--output=avail", "-B1", this.path]);
    const free = Number(stdout.split("\n")[1]);
    await writeFile(this.#filler, new Uint8Array(Math.max(0, free - leaveBytes)));
  }

  /** Gives back what `fill` took. */
  async free(): Promise<void> {
    await rm(this.#filler, { force: true });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await unmount(this.path);
  }
}

async function unmount(path: string): Promise<void> {
  // Whatever still holds a file of it: it goes with the last one.
  await run("umount", ["--lazy", path]);
  await rm(path, { recursive: true });
}

async function removeOldOnes(): Promise<void> {
  for (const line of (await readFile("/proc/mounts", "utf8")).split("\n")) {
    const path = line.split(" ")[1] ?? "";
    const pid = NAME.exec(path)?.[1];
    if (pid !== undefined && !existsSync(`/proc/${pid}`)) await unmount(path);
  }
}
