/** A daemon whose scripted harness calls the run's tools, the callback that carries some of them out, and who answers. */
import type { Chunk, Frame } from "../../src/frames/frame.ts";
import type { Waiting } from "../../src/tools/open-questions.ts";
import type { AnswerEntry } from "../../src/tools/port.ts";
import { parseFrames, TestDaemon } from "./daemon.ts";
import { Follower } from "./follow.ts";
import { OPEN, SESSION_FILES, type Step } from "./scripted-harness.ts";
import { type CallbackSeen, type Suspended, suspendedOf } from "./tools-pod.ts";

export const PICK = {
  name: "pick",
  description: "Lets the person pick one.",
  kind: "client",
  inputSchema: { type: "object", properties: { from: { type: "array", items: { type: "string" } } } },
  responseSchema: { type: "object", properties: { picked: { type: "string" } }, required: ["picked"] },
} as const;
export const LOOK_UP = {
  name: "look_up",
  description: "Looks up a key.",
  kind: "callback",
  inputSchema: { type: "object", properties: { key: { type: "string" } } },
} as const;
export const ERASE = {
  name: "erase",
  description: "Erases something.",
  kind: "callback",
  permission: "ask",
  inputSchema: { type: "object", properties: { what: { type: "string" } } },
} as const;
export const ASKED_TOOLS = [PICK, LOOK_UP, ERASE] as const;

/** A key as `SUSPENSION_KEYS` lists it. */
export const keyOf = (id: string, letter: string): string => `${id}:${Buffer.alloc(32, letter).toString("base64url")}`;

const CALLBACK_SECRET = "callback-secret-0123456789";

export interface AskingSetup {
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly clientTools?: "shim" | "native" | "none";
}

export interface Turn {
  readonly runId: string;
  readonly threadId?: string;
  readonly steps?: readonly Step[];
  readonly input?: Readonly<Record<string, unknown>>;
  readonly signal?: AbortSignal;
}

export class AskingPod {
  readonly callbacks: CallbackSeen[] = [];
  reply: (seen: CallbackSeen) => Response | Promise<Response> = () => Response.json({ text: "done" });
  /** A call that never gets a reply, until its caller leaves. */
  hang: { readonly toolCallId: string; readonly onAbort: () => void } | undefined;
  readonly #callback: Bun.Server<undefined>;

  private constructor(readonly daemon: TestDaemon) {
    this.#callback = Bun.serve({
      port: 0,
      hostname: "127.0.0.1",
      fetch: async (request) => {
        const body = (await request.json()) as Record<string, unknown>;
        const seen = { body, headers: Object.fromEntries(request.headers) };
        this.callbacks.push(seen);
        const { hang } = this;
        if (!hang || hang.toolCallId !== body.toolCallId) return this.reply(seen);
        return new Promise<Response>(() => request.signal.addEventListener("abort", hang.onAbort));
      },
    });
  }

  static async start({ env, clientTools = "shim" }: AskingSetup = {}): Promise<AskingPod> {
    const capabilities = JSON.stringify({ resume: true, clientTools, sessionFiles: SESSION_FILES });
    const short = { KILL_GRACE_MS: "500", EXIT_GRACE_MS: "500", EOF_GRACE_MS: "300", KEEPALIVE_MS: "300" };
    return new AskingPod(
      await TestDaemon.start({
        env: { ...short, HARNESS_CAPABILITIES: capabilities, SUSPENSION_KEYS: keyOf("k1", "a"), ...env },
      }),
    );
  }

  /** Sends a dispatch; without steps it has no message. */
  dispatch({ runId, threadId = "thread", steps, input, signal }: Turn): Promise<Response> {
    const url = `http://127.0.0.1:${this.#callback.port}/tools`;
    return this.daemon.dispatch({
      ...{ runId, threadId },
      input: {
        userMessage: steps && JSON.stringify(steps),
        tools: ASKED_TOOLS,
        callback: { url, headers: { "X-Secret": CALLBACK_SECRET } },
        ...input,
      },
      ...(signal ? { signal } : {}),
    });
  }

  async turn(turn: Turn): Promise<Frame[]> {
    const response = await this.dispatch(turn);
    const text = await response.text();
    if (response.status !== 200) throw new Error(`${response.status} ${text}`);
    return parseFrames(text);
  }

  /** A turn that waits for a person, once it does; `questions` at once. */
  async holds(turn: Turn, questions = 1): Promise<Follower> {
    const input = { clientTools: { holdSeconds: 600 }, ...turn.input };
    const response = await this.dispatch({ ...turn, input });
    if (response.status !== 200) throw new Error(`${response.status} ${await response.text()}`);
    const body = new Follower(response);
    await body.until(({ frames }) => waitingOf(frames)?.interrupts.length === questions);
    return body;
  }

  /** A turn that ends with questions. */
  async asks(turn: Turn): Promise<Suspended & { readonly frames: readonly Frame[] }> {
    const frames = await this.turn(turn);
    return { ...suspendedOf(frames), frames };
  }

  async answer(runId: string, answers: readonly AnswerEntry[]): Promise<{ status: number; body: unknown }> {
    const body = JSON.stringify({ answers });
    const response = await this.daemon.fetch(`/runs/${runId}/answers`, { method: "POST", body });
    return { status: response.status, body: await response.json() };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.daemon[Symbol.asyncDispose]();
    await this.#callback.stop(true);
  }
}

/** The newest frame that waits. */
export function waitingOf(frames: readonly Frame[]): Waiting | undefined {
  return frames.findLast(({ waiting }) => waiting)?.waiting as Waiting | undefined;
}

export function chunksIn(frames: readonly Frame[], type?: string): Chunk[] {
  return frames.flatMap(({ chunks }) => chunks).filter((chunk) => type === undefined || chunk.type === type);
}

/** Everything that a reader hears of a call, by type. */
export function typesOf(frames: readonly Frame[], toolCallId: string): string[] {
  return chunksIn(frames).flatMap((chunk) => (chunk.toolCallId === toolCallId ? [chunk.type] : []));
}

/** What the model reads as a call's result. */
export function resultOf(frames: readonly Frame[], id: string): { readonly text: string; readonly isError: boolean } {
  const data = chunksIn(frames, "data-result").map(
    (chunk) => chunk.data as { id: string; text: string; isError: boolean },
  );
  const [found, ...more] = data.filter((result) => result.id === id);
  if (!found || more.length > 0) throw new Error(`${id} has ${found ? "several results" : "no result"}`);
  return { text: found.text, isError: found.isError };
}

/** A turn that makes calls, all at once, and ends by itself if it may. */
export function calling(...calls: readonly { id: string; name: string; input?: unknown }[]): Step[] {
  const finish = { chunks: [{ type: "finish-step" }, { type: "finish", finishReason: "stop" }] };
  const start = { chunks: OPEN.chunks.slice(0, 2) };
  return [start, { calls: [...calls] }, finish, { json: { chunks: [], outcome: { type: "finished" } } }];
}
