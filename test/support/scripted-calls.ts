/**
 * The scripted harness's calls of the run's tools, as an agent makes them: announced on stdout, then made over MCP by the
 * shim that the document names. It reports each output as an agent does, and shows what a model would read in a
 * `data-result` chunk. A result that ends the turn ends it when all calls of its message have theirs.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { DEFAULT_SHIM_DIALECT, type TurnDocument } from "../../src/harness/port.ts";

export interface ScriptedCall {
  readonly id: string;
  readonly name: string;
  readonly input?: unknown;
  /** What the call is announced with, where it is something else; null: nobody is told of it. */
  readonly announced?: unknown;
  /** The call whose subagent makes it. */
  readonly parent?: string;
}

export interface CallResult {
  readonly id: string;
  readonly text: string;
  readonly isError: boolean;
  readonly endsTurn: boolean;
}

interface Reply {
  readonly id?: unknown;
  readonly result?: {
    readonly content?: readonly { readonly text: string }[];
    readonly isError?: boolean;
    readonly _meta?: Readonly<Record<string, unknown>>;
  };
  readonly error?: { readonly message: string };
}

export function announcementOf({ id, name, input = {}, announced, parent }: ScriptedCall): object {
  return {
    ...{ type: "tool-input-available", toolCallId: id, toolName: name, input: announced ?? input, dynamic: true },
    ...(parent === undefined ? {} : { providerMetadata: { dispatchd: { parentToolCallId: parent } } }),
  };
}

export class ScriptedCalls {
  #child: ChildProcess | undefined;
  #ready: Promise<unknown> | undefined;
  #lastId = 0;
  readonly #waiting = new Map<unknown, (reply: Reply) => void>();

  constructor(
    private readonly shim: TurnDocument["shim"],
    private readonly print: (chunks: readonly object[]) => void,
  ) {}

  /** True when the turn is to end. */
  async make(calls: readonly ScriptedCall[]): Promise<boolean> {
    this.#ready ??= this.#start();
    await this.#ready;
    const results = await Promise.all(calls.map((call) => this.#make(call)));
    return results.some(({ endsTurn }) => endsTurn);
  }

  async #make(call: ScriptedCall): Promise<CallResult> {
    const { id, name, input = {}, announced } = call;
    if (announced !== null) this.print([announcementOf(call)]);
    const _meta = { [DEFAULT_SHIM_DIALECT.toolCallIdMeta]: id };
    const { result, error } = await this.#request("tools/call", { name, arguments: input, _meta });
    const text = result?.content?.[0]?.text ?? error?.message ?? "";
    const isError = error !== undefined || result?.isError === true;
    const endsTurn = Object.keys(DEFAULT_SHIM_DIALECT.endTurnMeta).every((key) => result?._meta?.[key] === true);
    const output = isError
      ? { type: "tool-output-error", toolCallId: id, errorText: text, dynamic: true }
      : { type: "tool-output-available", toolCallId: id, output: text, dynamic: true };
    const data = { id, text, isError, endsTurn };
    this.print([...(announced === null ? [] : [output]), { type: "data-result", data }]);
    return data;
  }

  async #start(): Promise<void> {
    if (!this.shim) throw new Error("the run has no tools");
    const child = spawn(this.shim.command, [...this.shim.args], { stdio: ["pipe", "pipe", "inherit"] });
    this.#child = child;
    child.on("exit", () => {
      for (const lose of this.#waiting.values()) lose({ error: { message: "the connection to the tools is lost" } });
    });
    createInterface({ input: child.stdout }).on("line", (line) => {
      const reply = JSON.parse(line) as Reply;
      this.#waiting.get(reply.id)?.(reply);
      this.#waiting.delete(reply.id);
    });
    const clientInfo = { name: "scripted", version: "0" };
    await this.#request("initialize", { protocolVersion: "2025-06-18", capabilities: {}, clientInfo });
    this.#send({ method: "notifications/initialized" });
  }

  #request(method: string, params: object): Promise<Reply> {
    const id = ++this.#lastId;
    const replied = new Promise<Reply>((resolve) => this.#waiting.set(id, resolve));
    this.#send({ id, method, params });
    return replied;
  }

  #send(message: object): void {
    this.#child?.stdin?.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
  }
}
