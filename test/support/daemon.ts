/**
 * The compiled daemon as a pod would start it: its own folders, an environment of its own, port 0. Everything that a
 * test starts with it ends with it (`await using`).
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { chown, mkdtemp, readdir, readFile, readlink, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Frame } from "../../src/frames/frame.ts";
import type { Step } from "./scripted-harness.ts";

export const BINARY = join(import.meta.dir, "../../dist/dispatchd");
const HARNESS = join(import.meta.dir, "scripted-harness.ts");

export interface DaemonSetup {
  /** On top of, or (undefined) taken out of, the environment that it starts with. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** The program that performs turns; the scripted one by default, null for the built-in one. */
  readonly harness?: readonly string[] | null;
  readonly binary?: string;
  readonly cwd?: string;
  readonly token?: string;
  /** Whom the daemon runs as, and whose its folder is then. Needs root. */
  readonly user?: { readonly uid: number; readonly gid: number };
}

export type LogLine = Readonly<Record<string, unknown>> & { readonly event: string; readonly level: string };

/** What tests dispatch: the steps are the prompt of the scripted harness. */
export interface Dispatch {
  readonly runId: string;
  readonly threadId?: string;
  readonly steps?: readonly Step[];
  readonly after?: number;
  readonly attempt?: number;
  readonly input?: Readonly<Record<string, unknown>>;
  readonly signal?: AbortSignal;
  readonly headers?: Readonly<Record<string, string>>;
}

export class TestDaemon {
  readonly token: string;
  readonly log: LogLine[] = [];
  /** What it wrote that is no JSON, and its stderr. */
  readonly noise: string[] = [];
  url = "";
  port = 0;
  #child: ChildProcess | undefined;
  #waiting: (() => void)[] = [];

  private constructor(
    readonly folder: string,
    private readonly setup: DaemonSetup,
  ) {
    this.token = setup.token ?? "a-token-of-the-tests";
  }

  static async start(setup: DaemonSetup = {}): Promise<TestDaemon> {
    const daemon = new TestDaemon(await mkdtemp(join(tmpdir(), "dispatchd-test-")), setup);
    try {
      if (setup.user) await chown(daemon.folder, setup.user.uid, setup.user.gid);
      await daemon.launch();
    } catch (error) {
      await daemon[Symbol.asyncDispose]();
      throw error;
    }
    return daemon;
  }

  get pid(): number {
    return this.#child?.pid ?? -1;
  }
  get stateDir(): string {
    return this.setup.env?.STATE_DIR ?? join(this.folder, ".dispatchd");
  }
  path(...parts: string[]): string {
    return join(this.folder, ...parts);
  }

  environment(): Record<string, string> {
    const { harness } = this.setup;
    const env: Record<string, string | undefined> = {
      PATH: "/usr/bin:/bin",
      HOME: this.folder,
      APP_ROOT: this.folder,
      DAEMON_HOST: "127.0.0.1",
      DAEMON_TOKEN: this.token,
      PROXY_PORT: "0",
      RUN_ENV_ALLOW: "PATH,HOME,HARNESS_*,IS_SANDBOX",
      HARNESS_STARTS: this.path("starts"),
      HARNESS_RUNNER_CMD: harness === null ? undefined : JSON.stringify(harness ?? [process.execPath, HARNESS]),
      ...this.setup.env,
    };
    return Object.fromEntries(Object.entries(env).filter((entry): entry is [string, string] => entry[1] !== undefined));
  }

  /** Starts the process (again) and resolves when it has recovered what was there. */
  async launch(): Promise<void> {
    const from = this.log.length;
    const child = spawn(this.setup.binary ?? BINARY, ["serve"], {
      env: this.environment(),
      cwd: this.setup.cwd ?? this.folder,
      stdio: ["ignore", "pipe", "pipe"],
      ...this.setup.user,
    });
    this.#child = child;
    const take = (line: string): void => {
      try {
        this.log.push(JSON.parse(line));
      } catch {
        this.noise.push(line);
      }
      for (const wake of this.#waiting.splice(0)) wake();
    };
    createInterface({ input: child.stdout }).on("line", take);
    createInterface({ input: child.stderr }).on("line", (line) => this.noise.push(line));
    child.on("exit", () => {
      for (const wake of this.#waiting.splice(0)) wake();
    });
    const listening = await this.event("listening", from);
    this.url = String(listening.url);
    this.port = Number(listening.port);
    await this.event("ready", from);
  }

  /** The first line with this event at or after index `from`; waits for it. Rejects when the daemon ends before. */
  async event(name: string, from = 0, fits: (line: LogLine) => boolean = () => true): Promise<LogLine> {
    for (;;) {
      const found = this.log.slice(from).find((line) => line.event === name && fits(line));
      if (found) return found;
      const child = this.#child;
      if (!child || child.exitCode !== null || child.signalCode !== null) {
        throw new Error(`the daemon ended before "${name}": ${this.noise.join(" | ")}`);
      }
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }

  fetch(path: string, init: RequestInit = {}): Promise<Response> {
    const headers = { authorization: `Bearer ${this.token}`, ...(init.headers as Record<string, string>) };
    return fetch(`${this.url}${path}`, { ...init, headers });
  }

  /** `POST /dispatch`. */
  dispatch({ runId, threadId, steps, after, attempt, input, signal, headers }: Dispatch): Promise<Response> {
    const body = {
      runId,
      after,
      attempt,
      input: { threadId: threadId ?? `thread of ${runId}`, userMessage: JSON.stringify(steps ?? []), ...input },
    };
    return this.fetch("/dispatch", {
      method: "POST",
      body: JSON.stringify(body),
      ...(signal ? { signal } : {}),
      ...(headers ? { headers } : {}),
    });
  }

  /** Dispatches and reads to the end of the body. */
  async run(dispatch: Dispatch): Promise<Frame[]> {
    const response = await this.dispatch(dispatch);
    if (response.status !== 200) throw new Error(`${response.status} ${await response.text()}`);
    return parseFrames(await response.text());
  }

  async show(runId: string): Promise<Record<string, unknown>> {
    return (await this.fetch(`/runs/${encodeURIComponent(runId)}`)).json() as Promise<Record<string, unknown>>;
  }

  cancel(runId: string, query = ""): Promise<Response> {
    return this.fetch(`/runs/${encodeURIComponent(runId)}${query}`, { method: "DELETE" });
  }

  /** `runId#attempt` of every turn that a harness was started for. */
  async starts(): Promise<string[]> {
    const text = await readFile(this.path("starts"), "utf8").catch(() => "");
    return text.split("\n").filter(Boolean);
  }

  /** What the process has open: paths of files, and names of sockets and pipes. */
  async openFiles(): Promise<string[]> {
    const folder = `/proc/${this.pid}/fd`;
    // One that was closed since the listing is not open.
    const links = (await readdir(folder)).map((name) => readlink(`${folder}/${name}`).catch(() => undefined));
    return (await Promise.all(links)).filter((path) => path !== undefined);
  }

  /** Sends the signal and resolves with the exit code, or the signal's name. */
  async stop(signal: NodeJS.Signals = "SIGTERM"): Promise<number | string> {
    const child = this.#child;
    if (!child) return 0;
    if (child.exitCode === null && child.signalCode === null) {
      const exited = once(child, "exit");
      child.kill(signal);
      await exited;
    }
    return child.exitCode ?? child.signalCode ?? 0;
  }

  /** What a daemon that was killed left behind, when no later one on its state folder has ended it. */
  async #endLeftovers(): Promise<void> {
    for (const pid of await readdir("/proc")) {
      if (!/^\d+$/.test(pid)) continue;
      const env = await readFile(`/proc/${pid}/environ`, "latin1").catch(() => "");
      if (!env.split("\0").includes(`HARNESS_STARTS=${this.path("starts")}`)) continue;
      try {
        process.kill(Number(pid), "SIGKILL");
      } catch (error) {
        if ((error as { code?: string }).code !== "ESRCH") throw error;
      }
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (typeof (await this.stop("SIGTERM")) === "string") await this.#endLeftovers();
    await rm(this.folder, { recursive: true, force: true });
  }
}

/** The frames of a body: lines split at 0x0A, keepalives left out. */
export function parseFrames(text: string): Frame[] {
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as Frame);
}

/** Reads a body frame by frame. */
export async function* framesOf(response: Response): AsyncGenerator<Frame> {
  const decoder = new TextDecoder();
  let carry = "";
  for await (const piece of response.body ?? []) {
    const lines = (carry + decoder.decode(piece as Uint8Array, { stream: true })).split("\n");
    carry = lines.pop() ?? "";
    for (const line of lines) if (line !== "") yield JSON.parse(line) as Frame;
  }
}

/** Resolves when `test` holds; asks again and again, without a limit of its own (the test has one). */
export async function eventually(test: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await test())) await Bun.sleep(10);
}
