/**
 * A client of `dispatchd mcp` that is written by hand: lines of JSON-RPC, and every byte of stdout looked at. It can do
 * what a proper client never does.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { BINARY } from "./daemon.ts";

export interface Message {
  readonly jsonrpc?: unknown;
  readonly id?: unknown;
  readonly method?: string;
  readonly params?: Readonly<Record<string, unknown>>;
  readonly result?: Readonly<Record<string, unknown>>;
  readonly error?: { readonly code: number; readonly message: string };
}

export interface ShimSetup {
  readonly directory: string;
  readonly publicKey: string;
  readonly runId?: string;
  readonly callIdMeta?: string;
  readonly endTurnMeta?: object;
  readonly toolMeta?: object;
  readonly progressMs?: number;
  readonly user?: { readonly uid: number; readonly gid: number };
}

/** What the daemon starts the shim with. */
export function shimArgs(setup: ShimSetup): string[] {
  const args = ["mcp", "--relay", setup.directory, "--run", setup.runId ?? "run-1", "--key", setup.publicKey];
  args.push("--call-id-meta", setup.callIdMeta ?? "client/callId");
  args.push("--end-turn-meta", JSON.stringify(setup.endTurnMeta ?? { "client/endTurn": true }));
  if (setup.toolMeta) args.push("--tool-meta", JSON.stringify(setup.toolMeta));
  if (setup.progressMs !== undefined) args.push("--progress-ms", String(setup.progressMs));
  return args;
}

export class ShimClient {
  /** All lines of stdout, also those that are no JSON. */
  readonly lines: string[] = [];
  readonly messages: Message[] = [];
  readonly exited: Promise<{ readonly code: number | null; readonly signal: string | null }>;
  stderr = "";
  #nextId = 0;
  #changed: (() => void)[] = [];

  private constructor(readonly process: ChildProcess) {
    const { stdout, stderr, stdin } = process;
    if (!stdout || !stderr || !stdin) throw new Error("the shim has no pipes");
    stdin.on("error", () => {}); // It may be gone before it has read all.
    let rest = "";
    stdout.setEncoding("utf8").on("data", (text: string) => {
      // Only at a newline: a reader of lines may part them at U+2028 too.
      const lines = (rest + text).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) this.#take(line);
      for (const tell of this.#changed.splice(0)) tell();
    });
    stdout.on("end", () => {
      if (rest !== "") this.#take(rest);
    });
    stderr.on("data", (chunk) => {
      this.stderr += String(chunk);
      for (const tell of this.#changed.splice(0)) tell();
    });
    this.exited = once(process, "close").then(([code, signal]) => ({ code, signal }));
    process.once("exit", () => {
      for (const tell of this.#changed.splice(0)) tell();
    });
  }

  #take(line: string): void {
    this.lines.push(line);
    try {
      this.messages.push(JSON.parse(line));
    } catch {
      // Whoever looks at the lines sees it.
    }
  }

  static run(args: readonly string[], user: ShimSetup["user"] = undefined): ShimClient {
    return new ShimClient(spawn(BINARY, args, { stdio: ["pipe", "pipe", "pipe"], ...user }));
  }

  static start(setup: ShimSetup): ShimClient {
    return ShimClient.run(shimArgs(setup), setup.user);
  }

  get pid(): number {
    if (this.process.pid === undefined) throw new Error("the shim was not started");
    return this.process.pid;
  }

  write(text: string): void {
    this.process.stdin?.write(text);
  }

  notify(method: string, params: object): void {
    this.write(`${JSON.stringify({ jsonrpc: "2.0", method, params })}\n`);
  }

  /** Sends a request, and resolves with what answers it. */
  async request(method: string, params: object = {}): Promise<Message> {
    const id = this.send(method, params);
    return this.answerOf(id);
  }

  /** The id of the request. */
  send(method: string, params: object = {}): number {
    const id = ++this.#nextId;
    this.write(`${JSON.stringify({ jsonrpc: "2.0", id, method, params })}\n`);
    return id;
  }

  answerOf(id: number): Promise<Message> {
    return this.until(() => this.messages.find((message) => message.id === id && message.method === undefined));
  }

  async initialize(protocolVersion = "2025-11-25"): Promise<Message> {
    const clientInfo = { name: "test", version: "1" };
    const answer = await this.request("initialize", { protocolVersion, capabilities: {}, clientInfo });
    this.notify("notifications/initialized", {});
    return answer;
  }

  /** The text of a call's result, and whether it is an error. */
  async call(name: string, args: unknown = {}, meta: object = {}): Promise<CallOutcome> {
    return outcomeOf(await this.request("tools/call", { name, arguments: args, _meta: meta }));
  }

  async until<T>(look: () => T | undefined): Promise<T> {
    for (;;) {
      const found = look();
      if (found !== undefined) return found;
      if (this.process.exitCode !== null || this.process.signalCode !== null) {
        await this.exited;
        const last = look();
        if (last !== undefined) return last;
        throw new Error(`the shim has ended: ${this.stderr}`);
      }
      await new Promise<void>((resolve) => this.#changed.push(resolve));
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.process.kill("SIGKILL");
    await this.exited;
  }
}

export interface CallOutcome {
  readonly text: string;
  readonly isError: boolean;
  readonly meta: unknown;
}

export function outcomeOf({ result, error }: Message): CallOutcome {
  if (!result) throw new Error(`no result: ${error?.message}`);
  const [content] = result.content as readonly { readonly text: string }[];
  return { text: content?.text ?? "", isError: result.isError === true, meta: result._meta };
}
