/**
 * A cable that can be cut: a network namespace, joined to this one by a pair of virtual interfaces. Nothing is left of
 * it when it is disposed of; what a killed test left is removed by the next one.
 */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { promisify } from "node:util";

const run = promisify(execFile);
const NAME = /^dispatchd-cable-(\d+)-(\d+)$/;
let laid = 0;

/** What this machine lacks for a cable; undefined when there is nothing. */
export async function missingForCable(): Promise<string | undefined> {
  if (process.getuid?.() !== 0) return "root";
  try {
    await run("ip", ["netns", "list"]);
    const probe = `dispatchd-probe-${process.pid}`;
    await run("ip", ["netns", "add", probe]);
    await run("ip", ["netns", "delete", probe]);
    return undefined;
  } catch (error) {
    return `ip netns (${(error as Error).message.trim()})`;
  }
}

export class Cable {
  /** Our addresses at the near end, as the far end reaches them: of ranges that nobody routes. */
  readonly v4: string;
  readonly v6: string;
  readonly namespace: string;
  private readonly near: string;
  private readonly far: string;

  private constructor(number: number) {
    const owner = `${process.pid}-${number}`;
    this.namespace = `dispatchd-cable-${owner}`;
    this.near = `dn${owner}`;
    this.far = `df${owner}`;
    this.v4 = `198.18.${number}.1`;
    this.v6 = `fd5d:91:${number}::1`;
  }

  static async lay(): Promise<Cable> {
    if (laid === 0) await removeOldOnes();
    const cable = new Cable(++laid);
    const { namespace, near, far, v4, v6 } = cable;
    try {
      await run("ip", ["netns", "add", namespace]);
      await run("ip", ["link", "add", near, "type", "veth", "peer", "name", far, "netns", namespace]);
      await run("ip", ["address", "add", `${v4}/30`, "dev", near]);
      await run("ip", ["address", "add", `${v6}/64`, "dev", near, "nodad"]);
      await run("ip", ["link", "set", near, "up"]);
      await run("ip", ["-n", namespace, "address", "add", v4.replace(/1$/, "2/30"), "dev", far]);
      await run("ip", ["-n", namespace, "address", "add", v6.replace(/1$/, "2/64"), "dev", far, "nodad"]);
      await run("ip", ["-n", namespace, "link", "set", far, "up"]);
    } catch (error) {
      await cable[Symbol.asyncDispose]();
      throw error;
    }
    return cable;
  }

  /** The command that runs `argv` at the far end. */
  farEnd(argv: readonly string[]): string[] {
    return ["ip", "netns", "exec", this.namespace, ...argv];
  }

  async cut(end: "near" | "far"): Promise<void> {
    if (end === "near") await run("ip", ["link", "set", this.near, "down"]);
    else await run("ip", ["-n", this.namespace, "link", "set", this.far, "down"]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await remove(this.namespace, this.near);
  }
}

async function remove(namespace: string, near: string): Promise<void> {
  // The far end goes with the near one, which may not have come to be.
  await run("ip", ["link", "delete", near]).catch(() => {});
  await run("ip", ["netns", "delete", namespace]).catch(() => {});
}

async function removeOldOnes(): Promise<void> {
  const { stdout } = await run("ip", ["netns", "list"]);
  for (const line of stdout.split("\n")) {
    const name = line.split(" ")[0] ?? "";
    const [, pid, number] = NAME.exec(name) ?? [];
    if (pid !== undefined && !existsSync(`/proc/${pid}`)) await remove(name, `dn${pid}-${number}`);
  }
}
