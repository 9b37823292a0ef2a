/** Runs with tools of their own on the real Claude Code: the daemon, a scripted model, a callback, and what each saw. */
import { randomUUID } from "node:crypto";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { UIMessage } from "ai";
import type { Frame } from "../../src/frames/frame.ts";
import type { InterruptReason } from "../../src/harness/port.ts";
import type { AnswerEntry, Interrupt } from "../../src/tools/port.ts";
import { parseFrames, TestDaemon } from "./daemon.ts";
import { readMessage } from "./read-message.ts";
import { type ReceivedRequest, type ScriptedModel, startScriptedModel } from "./scripted-model/index.ts";

export const TOOLS = [
  {
    name: "connect_account",
    description: "Asks the person to connect an account.",
    inputSchema: { type: "object", properties: { service: { type: "string" } }, required: ["service"] },
    kind: "client",
  },
  {
    name: "look_up",
    description: "Looks something up.",
    inputSchema: { type: "object", properties: { key: { type: "string" } } },
    kind: "callback",
  },
  {
    name: "delete_all",
    description: "Deletes everything.",
    inputSchema: { type: "object" },
    kind: "callback",
    permission: "ask",
  },
  {
    name: "forbidden",
    description: "Not for you.",
    inputSchema: { type: "object" },
    kind: "callback",
    permission: "deny",
  },
] as const;

export interface Suspended {
  readonly interrupts: readonly Interrupt[];
  readonly suspension: string;
}

export interface CallbackSeen {
  readonly body: Record<string, unknown>;
  readonly headers: Readonly<Record<string, string>>;
}

export class ToolsPod {
  /** What reached the callback, and how it replies. */
  readonly callbacks: CallbackSeen[] = [];
  reply: (seen: CallbackSeen) => Response | Promise<Response> = () => Response.json({ text: "done" });

  private constructor(
    readonly daemon: TestDaemon,
    readonly model: ScriptedModel,
    private readonly ownsModel: boolean,
    private callback: Bun.Server<undefined> | undefined,
  ) {}

  static async start(
    env: Readonly<Record<string, string | undefined>> = {},
    shared?: ScriptedModel,
  ): Promise<ToolsPod> {
    const model = shared ?? (await startScriptedModel());
    const stateDir = await mkdtemp(join(tmpdir(), "dispatchd-tools-"));
    const daemon = await TestDaemon.start({
      harness: null,
      token: `token-${randomUUID()}`,
      // Never that of an earlier pod: two that share an org volume share nothing else.
      env: { IS_SANDBOX: "1", KILL_GRACE_MS: "1000", KEEPALIVE_MS: "1000", ...env, STATE_DIR: stateDir },
    });
    await mkdir(daemon.path("repo"));
    const pod = new ToolsPod(daemon, model, shared === undefined, undefined);
    pod.callback = Bun.serve({
      port: 0,
      hostname: "127.0.0.1",
      fetch: async (request) => {
        const seen = {
          body: (await request.json()) as Record<string, unknown>,
          headers: Object.fromEntries(request.headers),
        };
        pod.callbacks.push(seen);
        return pod.reply(seen);
      },
    });
    return pod;
  }

  input(more: Readonly<Record<string, unknown>> = {}): Record<string, unknown> {
    return {
      env: { ANTHROPIC_BASE_URL: this.model.url, ANTHROPIC_API_KEY: "sk-scripted-model-key" },
      tools: TOOLS,
      callback: { url: `http://127.0.0.1:${this.callback?.port}/tools`, headers: { "X-Secret": "callback-secret-1" } },
      ...more,
    };
  }

  dispatch(threadId: string, runId: string, more: Readonly<Record<string, unknown>> = {}): Promise<Response> {
    return this.daemon.dispatch({ runId, threadId, input: this.input(more) });
  }

  /** A turn of the thread, read to its end. */
  async turn(threadId: string, runId: string, more: Readonly<Record<string, unknown>> = {}): Promise<Frame[]> {
    const response = await this.dispatch(threadId, runId, more);
    const text = await response.text();
    if (response.status !== 200) throw new Error(`${response.status} ${text}`);
    return parseFrames(text);
  }

  /** The next run of the thread, with an answer for each question, and no message unless `more` has one. */
  resume(
    threadId: string,
    runId: string,
    { suspension }: Suspended,
    answers: readonly AnswerEntry[],
    more: Readonly<Record<string, unknown>> = {},
  ): Promise<Frame[]> {
    return this.turn(threadId, runId, { userMessage: undefined, answers, suspension, ...more });
  }

  answer(runId: string, answers: readonly AnswerEntry[]): Promise<Response> {
    return this.daemon.fetch(`/runs/${runId}/answers`, { method: "POST", body: JSON.stringify({ answers }) });
  }

  /** Model calls of the conversation itself. */
  get asked(): ReceivedRequest[] {
    return this.model.requests.filter(({ kind }) => kind === "main");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.daemon[Symbol.asyncDispose]();
    await this.callback?.stop(true);
    if (this.ownsModel) await this.model.stop();
    await rm(this.daemon.stateDir, { recursive: true, force: true });
  }
}

export function outcomeOf(frames: readonly Frame[]): Frame["outcome"] {
  return frames.find(({ outcome }) => outcome)?.outcome;
}

/** Throws when the run did not end with questions. */
export function suspendedOf(frames: readonly Frame[]): Suspended {
  const outcome = outcomeOf(frames);
  if (outcome?.type !== "interrupt") throw new Error(`no interrupt: ${JSON.stringify(outcome)}`);
  return outcome as unknown as Suspended;
}

export function chunksOf(frames: readonly Frame[], type?: string): Frame["chunks"][number][] {
  return frames.flatMap(({ chunks }) => chunks).filter((chunk) => type === undefined || chunk.type === type);
}

/** The message that a reader of these frames alone is left with. Throws when it does not accept them. */
export async function messageOf(frames: readonly Frame[]): Promise<UIMessage | undefined> {
  const { message, errors } = await readMessage(chunksOf(frames));
  if (errors.length > 0) throw new Error(errors.join("; "));
  return message;
}

/** What the model was given as results of calls: by the call's id, in order, each as a text. */
export function resultsIn(request: ReceivedRequest | undefined): [string, string][] {
  return (request?.messages ?? []).flatMap(({ content }) =>
    (Array.isArray(content) ? content : []).flatMap((block: Record<string, unknown>): [string, string][] =>
      block.type === "tool_result" ? [[String(block.tool_use_id), textIn(block.content)]] : [],
    ),
  );
}

function textIn(content: unknown): string {
  if (typeof content === "string") return content;
  return Array.isArray(content) ? content.map((block) => String(block.text)).join("\n") : "";
}

export const resolved = (interrupt: Interrupt | undefined, payload: unknown): AnswerEntry => ({
  interruptId: interrupt?.id ?? "none",
  status: "resolved",
  payload,
});

export const REASONS = {
  client: "dispatchd:client_tool",
  approval: "tool_call",
  question: "input_required",
  plan: "confirmation",
} as const satisfies Record<string, InterruptReason>;
