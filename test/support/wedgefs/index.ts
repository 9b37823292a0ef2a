/**
 * A FUSE mount that a test makes hang, fail, run full, lag behind or go away. Two mounts of one `backing` are two pods'
 * mounts of one volume. Everything of it ends with `await using`.
 *
 * The test's own process must not touch a path on the mount while it hangs: it would hang too.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { accessSync, constants } from "node:fs";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { unmount } from "./native.ts";
import { type Delay, type Fault, matches, type Where } from "./rules.ts";
import type { Command, ServerSettings, Traced } from "./server.ts";

export type { Op } from "./protocol.ts";
export type { Delay, Fault, Traced, Where };

export interface MountSetup {
  /** The backend's folder; one of its own by default. */
  readonly backing?: string;
  readonly writeBackMs?: number | null;
  readonly listingMs?: number;
}

/** Why there can be no mount here; undefined when there can. */
export const mountsMissing: string | undefined = (() => {
  if (process.getuid?.() !== 0) return "a FUSE mount takes root";
  try {
    accessSync("/dev/fuse", constants.R_OK | constants.W_OK);
    return undefined;
  } catch {
    return "there is no /dev/fuse";
  }
})();

export class WedgeFs {
  #answers: ((line: string) => void)[] = [];

  private constructor(
    readonly mountPoint: string,
    /** What the backend has: to be looked at whatever the mount does. */
    readonly backing: string,
    private readonly folder: string,
    private readonly child: ChildProcess,
  ) {
    if (!child.stdout) throw new Error("no stdout");
    createInterface({ input: child.stdout }).on("line", (line) => this.#answers.shift()?.(line));
    child.on("exit", () => {
      for (const answer of this.#answers.splice(0)) answer("null");
    });
  }

  static async mount(mountPoint: string, setup: MountSetup = {}): Promise<WedgeFs> {
    if (mountsMissing) throw new Error(mountsMissing);
    const folder = await mkdtemp(join(tmpdir(), "wedgefs-"));
    const settings: ServerSettings = {
      mountPoint,
      backing: setup.backing ?? join(folder, "backing"),
      cache: join(folder, "cache"),
      writeBackMs: setup.writeBackMs ?? null,
      listingMs: setup.listingMs ?? 0,
    };
    for (const path of [mountPoint, settings.backing, settings.cache]) await mkdir(path, { recursive: true });
    const argv = [join(import.meta.dir, "server.ts"), JSON.stringify(settings)];
    const child = spawn(process.execPath, argv, { stdio: ["pipe", "pipe", "inherit"], cwd: "/" });
    const mount = new WedgeFs(mountPoint, settings.backing, folder, child);
    const first = await new Promise<string>((resolve) => mount.#answers.push(resolve));
    if (first !== '"mounted"') throw new Error("the mount could not be made");
    return mount;
  }

  /** Requests like these are taken and not answered, until `release`: their callers cannot be killed. */
  async hold(where: Where = {}): Promise<void> {
    await this.#ask({ do: "hold", where });
  }
  /** Nothing is taken any more, until `release`: callers wait, and can be killed. */
  async freeze(): Promise<void> {
    await this.#ask({ do: "freeze" });
  }
  /** Answers everything that was held. Resolves with how many they were. */
  async release(): Promise<number> {
    return (await this.#ask({ do: "release" })) as number;
  }
  async fail(fault: Fault): Promise<void> {
    await this.#ask({ do: "fail", fault });
  }
  async delay(delay: Delay): Promise<void> {
    await this.#ask({ do: "delay", delay });
  }
  /** No more faults, no more delays. */
  async heal(): Promise<void> {
    await this.#ask({ do: "heal" });
  }
  /** Bytes that can still be written; null: any number. */
  async space(bytes: number | null): Promise<void> {
    await this.#ask({ do: "space", bytes });
  }
  /** Everything that waits reaches the backend now, cut to `keep` of its length. Resolves with how many files. */
  async writeBack(keep = 1): Promise<number> {
    return (await this.#ask({ do: "writeBack", keep })) as number;
  }
  async unwritten(): Promise<string[]> {
    return (await this.#ask({ do: "unwritten" })) as string[];
  }
  async forgetListings(): Promise<void> {
    await this.#ask({ do: "forgetListings" });
  }
  async held(): Promise<Traced[]> {
    return (await this.#ask({ do: "held" })) as Traced[];
  }
  /** Resolves when a request like this is held. */
  async untilHeld(where: Where = {}): Promise<void> {
    while (!(await this.held()).some(({ op, path }) => matches(where, op, path))) await Bun.sleep(5);
  }
  /** Requests by their kind, and `bytesRead` and `bytesWritten`, since the last call. */
  async counts(): Promise<Record<string, number>> {
    return (await this.#ask({ do: "counts" })) as Record<string, number>;
  }
  /** From now on who asks for what is noted. */
  async trace(): Promise<void> {
    await this.#ask({ do: "trace", on: true });
  }
  /** The calls since `trace`. The kernel's own, its beginning and its clean-up, are nobody's and are left out. */
  async traced(): Promise<Traced[]> {
    const noted = (await this.#ask({ do: "trace", on: false })) as Traced[];
    return noted.filter(({ op }) => !["init", "release", "releasedir"].includes(op));
  }
  /** Goes away and leaves the mount: "Transport endpoint is not connected". */
  async vanish(): Promise<void> {
    await this.#ask({ do: "vanish" });
    await this.#exited();
  }

  /** Takes the mount away, whatever hangs there. What was not written back is lost. */
  async unmount(): Promise<void> {
    this.child.stdin?.end();
    await this.#exited();
    unmount(this.mountPoint); // If it went without.
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.unmount();
    await rm(this.folder, { recursive: true, force: true });
  }

  async #exited(): Promise<void> {
    const { child } = this;
    if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
  }

  async #ask(command: Command): Promise<unknown> {
    const { child } = this;
    if (child.exitCode !== null || child.signalCode !== null) throw new Error("the mount is gone");
    const answer = new Promise<string>((resolve) => this.#answers.push(resolve));
    child.stdin?.write(`${JSON.stringify(command)}\n`);
    return JSON.parse(await answer);
  }
}
