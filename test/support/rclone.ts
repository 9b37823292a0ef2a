/**
 * A volume as deployments have it: rclone's mount of a WebDAV server, here one on loopback whose process can be stopped.
 * Everything of it ends with `await using`.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { RequestCounter } from "./request-counter.ts";
import { mountsMissing } from "./wedgefs/index.ts";
import { unmount } from "./wedgefs/native.ts";

/** Why there can be no such volume here; undefined when there can. */
export const rcloneMissing: string | undefined =
  mountsMissing ??
  (["rclone", "fusermount3"].find((name) => !Bun.which(name)) && "rclone or fusermount3 is not installed");

export class RcloneVolume {
  private constructor(
    readonly mountPoint: string,
    /** What the server has. */
    readonly backing: string,
    private readonly folder: string,
    private readonly server: ChildProcess,
    private readonly mounter: ChildProcess,
    /** What the mount asks of the backend. */
    readonly requests: RequestCounter,
  ) {}

  static async mount(mountPoint: string, listings = "1s"): Promise<RcloneVolume> {
    if (rcloneMissing) throw new Error(rcloneMissing);
    const folder = await mkdtemp(join(tmpdir(), "rclone-"));
    const backing = join(folder, "backing");
    for (const path of [mountPoint, backing]) await mkdir(path, { recursive: true });
    const server = rclone(folder, "serve", "webdav", backing, "--addr", "127.0.0.1:0");
    const requests = await RequestCounter.before(await lineWith(server, /http:\/\/127\.0\.0\.1:\d+\//));
    const caching = ["--vfs-cache-mode", "writes", "--vfs-write-back", "100ms", "--dir-cache-time", listings];
    const once = ["--retries", "1", "--low-level-retries", "1"];
    const mounter = rclone(folder, "mount", ":webdav:", mountPoint, "--webdav-url", requests.url, ...caching, ...once);
    while (!(await isMounted(mountPoint))) {
      if (mounter.exitCode !== null) throw new Error("rclone could not mount");
      await Bun.sleep(10);
    }
    return new RcloneVolume(mountPoint, backing, folder, server, mounter, requests);
  }

  /** From now on the backend takes requests and answers none. */
  stopBackend(): void {
    this.server.kill("SIGSTOP");
  }
  continueBackend(): void {
    this.server.kill("SIGCONT");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const child of [this.mounter, this.server]) {
      const exited = child.exitCode === null && child.signalCode === null ? once(child, "exit") : undefined;
      child.kill("SIGKILL");
      await exited;
    }
    await this.requests[Symbol.asyncDispose]();
    unmount(this.mountPoint);
    await rm(this.folder, { recursive: true, force: true });
  }
}

function rclone(folder: string, ...args: string[]): ChildProcess {
  const own = ["--config", "", "--cache-dir", join(folder, "cache")];
  const env = { PATH: process.env.PATH ?? "", HOME: folder };
  return spawn("rclone", [...args, ...own], { stdio: ["ignore", "ignore", "pipe"], env, cwd: "/" });
}

/** What matches in the first line of stderr in which something does. */
async function lineWith(child: ChildProcess, pattern: RegExp): Promise<string> {
  if (!child.stderr) throw new Error("no stderr");
  const lines: string[] = [];
  for await (const line of createInterface({ input: child.stderr })) {
    const found = pattern.exec(line)?.[0];
    if (found) return found;
    lines.push(line);
  }
  throw new Error(`rclone ended: ${lines.join(" | ")}`);
}

/** Without touching it. */
async function isMounted(mountPoint: string): Promise<boolean> {
  return (await readFile("/proc/self/mountinfo", "utf8")).split("\n").some((line) => line.split(" ")[4] === mountPoint);
}
