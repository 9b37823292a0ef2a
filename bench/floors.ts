/** The bare programs that the product is held against, compiled as it is, in a folder that is removed afterwards. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const COMPILE = ["build", "--compile", "--minify", "--bytecode", "--no-compile-autoload-dotenv"];
export const PROGRAMS = join(import.meta.dir, "programs");

export class Floors implements AsyncDisposable {
  private constructor(readonly folder: string) {}

  static async open(): Promise<Floors> {
    return new Floors(await mkdtemp(join(tmpdir(), "dispatchd-bench-")));
  }

  /** The path of the compiled program. */
  async compile(name: string): Promise<string> {
    const target = join(this.folder, name);
    const source = join(PROGRAMS, `${name}.ts`);
    const build = Bun.spawn({
      cmd: [process.execPath, ...COMPILE, "--no-compile-autoload-bunfig", "--outfile", target, source],
      stdout: "ignore",
      stderr: "pipe",
    });
    if ((await build.exited) !== 0) throw new Error(`${name} cannot be compiled: ${await build.stderr.text()}`);
    return target;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.folder, { recursive: true, force: true });
  }
}

/** A running copy server, ended with its block. */
export class CopyServer implements AsyncDisposable {
  private constructor(
    private readonly child: ChildProcess,
    readonly port: number,
  ) {}

  static async start(binary: string, command: readonly string[]): Promise<CopyServer> {
    const env = { COPY_CMD: JSON.stringify(command), PATH: "/usr/bin:/bin" };
    const child = spawn(binary, { env, stdio: ["ignore", "pipe", "inherit"] });
    const [line] = await once(createInterface({ input: child.stdout }), "line");
    return new CopyServer(child, JSON.parse(String(line)).port);
  }

  get pid(): number {
    return this.child.pid ?? -1;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const exited = once(this.child, "exit");
    this.child.kill("SIGKILL");
    await exited;
  }
}

/** The most memory that the process has had in use, in MiB. */
export async function peakRssMib(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  return Number(/^VmHWM:\s+(\d+) kB/m.exec(status)?.[1]) / 1024;
}
