/**
 * The daemon itself, as a process, with a harness that does what the prompt says, and a proxy in front of it that cuts
 * connections.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { connect, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const MAIN = join(import.meta.dir, "../../src/main.ts");

/** The prompt of the harness, as JSON: what it prints, and for which file it waits. */
export interface Script {
  readonly texts: readonly string[];
  /** Goes on behind the texts when this file is there. */
  readonly until?: string;
  readonly after?: readonly string[];
  readonly exit?: number;
}

const HARNESS = `
const { appendFileSync, existsSync } = require("node:fs");
const turn = JSON.parse(require("node:fs").readFileSync(0, "utf8"));
const message = turn.input.userMessage;
const script = JSON.parse(message.parts?.[0]?.text ?? message);
appendFileSync(__dirname + "/pids", process.pid + "\\n");
appendFileSync(__dirname + "/starts", turn.runId + "#" + turn.attempt + "\\n");
const say = (chunks) => process.stdout.write(JSON.stringify({ chunks }) + "\\n");
const text = (delta) => say([{ type: "text-delta", id: "t", delta }]);
say([{ type: "start", messageId: turn.runId + "-" + turn.attempt }, { type: "start-step" }, { type: "text-start", id: "t" }]);
for (const delta of script.texts) text(delta);
const finish = () => {
  for (const delta of script.after ?? []) text(delta);
  say([{ type: "text-end", id: "t" }, { type: "finish-step" }]);
  process.exitCode = script.exit ?? 0;
};
if (!script.until) finish();
else {
  const timer = setInterval(() => {
    if (!existsSync(script.until)) return;
    clearInterval(timer);
    finish();
  }, 5);
}
`;

export class RealDaemon {
  readonly token = "a-token-of-the-daemons-own";
  #child: ChildProcess | undefined;
  #port = 0;

  private constructor(
    readonly folder: string,
    private readonly env: Readonly<Record<string, string>>,
  ) {}

  static async start(env: Record<string, string> = {}, harness = HARNESS): Promise<RealDaemon> {
    const daemon = new RealDaemon(await mkdtemp(join(tmpdir(), "dispatchd-client-")), env);
    await writeFile(join(daemon.folder, "harness.cjs"), harness);
    await daemon.listen();
    return daemon;
  }

  get port(): number {
    return this.#port;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  /** A file name in the daemon's folder. */
  path(name: string): string {
    return join(this.folder, name);
  }

  /** Starts the process, on the port of the one before. Another `state` is another pod. */
  async listen(state = "state"): Promise<void> {
    const child = spawn(process.execPath, [MAIN, "serve"], {
      env: {
        PATH: process.env.PATH,
        HOME: this.folder,
        APP_ROOT: this.folder,
        STATE_DIR: this.path(state),
        DAEMON_HOST: "127.0.0.1",
        DAEMON_TOKEN: this.token,
        PROXY_PORT: String(this.#port),
        HARNESS_RUNNER_CMD: JSON.stringify([process.execPath, this.path("harness.cjs")]),
        ...this.env,
      },
      stdio: ["ignore", "pipe", "inherit"],
    });
    this.#child = child;
    const lines = createInterface({ input: child.stdout });
    this.#port = await new Promise<number>((resolve, reject) => {
      child.once("exit", (code) => reject(new Error(`the daemon ended with ${code}`)));
      lines.on("line", (line) => {
        const { event, port } = JSON.parse(line);
        if (event === "listening") resolve(port);
      });
    });
  }

  async stop(signal: "SIGTERM" | "SIGKILL" = "SIGTERM"): Promise<void> {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, "exit");
    child.kill(signal);
    await exited;
  }

  /** `runId#attempt` of every turn that a harness was started for. */
  async starts(): Promise<string[]> {
    return (await readFile(this.path("starts"), "utf8")).split("\n").filter(Boolean);
  }

  /** A daemon that was killed, and never started again on its state, leaves its harness behind. */
  async #endHarnesses(): Promise<void> {
    const pids = await readFile(this.path("pids"), "utf8").catch(() => "");
    for (const pid of pids.split("\n").filter(Boolean)) {
      const line = await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "");
      if (line.includes(this.folder)) process.kill(Number(pid), "SIGKILL");
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
    await this.#endHarnesses();
    await rm(this.folder, { recursive: true, force: true });
  }
}

/** Passes bytes on, and cuts each connection after as many bytes of the answer as `budget` says. */
export class CuttingProxy {
  readonly #sockets = new Set<Socket>();
  readonly #server: Server;
  connections = 0;
  open(): number {
    return this.#sockets.size;
  }

  constructor(target: number, budget: () => number) {
    this.#server = createServer((socket) => {
      this.connections++;
      let left = budget();
      const upstream = connect({ host: "127.0.0.1", port: target });
      for (const end of [socket, upstream]) {
        this.#sockets.add(end);
        end.on("error", () => {}); // A cut connection is what it is for.
        end.on("close", () => {
          this.#sockets.delete(end);
          socket.destroy();
          upstream.destroy();
        });
      }
      socket.pipe(upstream);
      upstream.on("data", (bytes) => {
        socket.write((bytes as Buffer).subarray(0, left));
        left -= bytes.length;
        if (left <= 0) socket.end(() => upstream.destroy());
      });
    });
  }

  async listen(): Promise<string> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    return `http://127.0.0.1:${(this.#server.address() as { port: number }).port}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
    await once(this.#server, "close");
  }
}
