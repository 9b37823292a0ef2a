/**
 * One start of Claude Code: starting → ready (it answered `initialize`) → the prompt is sent → running (`init`) → ended.
 * The prompt is held back until it is asked for, so that a start that is not good enough can be ended without a trace
 * in the conversation. Stdin stays open to the end: with it closed, Claude Code would wait for background shells.
 */
import { randomUUID } from "node:crypto";
import type {
  McpServerStatus,
  Options,
  Query,
  SDKMessage,
  SDKSystemMessage,
  SDKUserMessage,
  SpawnedProcess,
  SpawnOptions,
} from "@anthropic-ai/claude-agent-sdk/core";
import { messageOf } from "../../errors.ts";
import type { PromptBlock } from "./prompt.ts";
import type { CliProcess } from "./spawn-cli.ts";

/** An idle Claude Code answers a question within milliseconds. */
const CONTROL_BUDGET_MS = 10_000;
/** A hook of the checkout that runs at the start of a session may install things: no start hangs because of it. */
const HOOK_BUDGET_MS = 600_000;

export type StartFailure =
  /** Nothing was heard of it within the budget. */
  | { readonly type: "stalled" }
  /** It ended, or said that it cannot start. */
  | { readonly type: "refused"; readonly reason: string };

/** What a turn needs of a start. Called in this order; `end` at any time, and again. */
export interface TurnSession {
  /** Of the user message: results name the prompt that they answer. Undefined: Claude Code goes on by itself. */
  readonly promptId: string | undefined;
  /** Undefined when it is ready for the prompt. Budgets begin anew with every sign of life. */
  ready(budgetMs: number): Promise<StartFailure | undefined>;
  mcpServers(): Promise<McpServerStatus[]>;
  sendPrompt(): void;
  /** The `init` that begins the turn. */
  init(budgetMs: number): Promise<SDKSystemMessage | StartFailure>;
  /** What follows `init`. Undefined when it ended; throws when it ended badly. */
  next(): Promise<SDKMessage | undefined>;
  /** Ends the process, and resolves when it is gone. It may leave by itself for `quietMs`. */
  end(quietMs: number): Promise<void>;
}

export class CliSession implements TurnSession {
  readonly promptId: SDKUserMessage["uuid"];
  /** Resolves when the turn may begin; true unless it ended before. */
  readonly released: Promise<boolean>;
  readonly #query: Query;
  readonly #releasePrompt: () => void;
  readonly #closeInput: () => void;
  #mayWork = false;
  #process: CliProcess | undefined;
  /** A message that is being waited for: whoever reads next takes it over. */
  #pending: Promise<IteratorResult<SDKMessage, void>> | undefined;
  readonly #runningHooks = new Set<string>();

  constructor(
    query: (params: { prompt: AsyncIterable<SDKUserMessage>; options: Options }) => Query,
    options: (hooks: { spawn: Options["spawnClaudeCodeProcess"] & {}; session: CliSession }) => Options,
    blocks: readonly PromptBlock[],
    startProcess: (options: SpawnOptions) => CliProcess,
    /** A call that was left for later is under way by itself, and would be recorded as refused by an end that is seen. */
    private readonly beginsWithCall = false,
  ) {
    const released = Promise.withResolvers<boolean>();
    const closed = Promise.withResolvers<void>();
    this.promptId = blocks.length > 0 ? randomUUID() : undefined;
    this.released = released.promise;
    this.#releasePrompt = () => released.resolve(true);
    this.#closeInput = () => {
      released.resolve(false);
      closed.resolve();
    };
    const spawn = (asked: SpawnOptions): SpawnedProcess => {
      this.#process = startProcess(asked);
      return this.#process.spawned;
    };
    this.#query = query({
      prompt: promptStream(this.promptId, blocks, released.promise, closed.promise),
      options: options({ spawn, session: this }),
    });
  }

  async ready(budgetMs: number): Promise<StartFailure | undefined> {
    const answered = this.#query.initializationResult().then((): typeof READY => READY);
    // Whoever waits for it is told; nobody does after a failure that was heard of in another way.
    answered.catch(() => undefined);
    return this.#untilStarted(budgetMs, () => false, answered).then((end) => (end === READY ? undefined : end));
  }

  async mcpServers(): Promise<McpServerStatus[]> {
    const answer = await withTimeout(this.#query.mcpServerStatus(), CONTROL_BUDGET_MS);
    if (answer === TIMEOUT) throw new Error("it does not answer what its MCP servers are");
    return answer;
  }

  sendPrompt(): void {
    this.#mayWork = true;
    this.#releasePrompt();
  }

  async init(budgetMs: number): Promise<SDKSystemMessage | StartFailure> {
    let init: SDKSystemMessage | undefined;
    const end = await this.#untilStarted(budgetMs, (message) => {
      if (message.type === "system" && message.subtype === "init") init = message;
      return init !== undefined;
    });
    return init ?? (end === READY ? { type: "stalled" } : end);
  }

  async next(): Promise<SDKMessage | undefined> {
    const next = await (this.#pending ?? this.#query.next());
    this.#pending = undefined;
    return next.done ? undefined : next.value;
  }

  /** Reads messages until one is the awaited, or `ready` settles, or the start has failed. */
  async #untilStarted(
    budgetMs: number,
    isAwaited: (message: SDKMessage) => boolean,
    ready?: Promise<typeof READY>,
  ): Promise<typeof READY | StartFailure> {
    try {
      for (;;) {
        this.#pending ??= this.#query.next();
        const patienceMs = this.#runningHooks.size > 0 ? HOOK_BUDGET_MS : budgetMs;
        const heard = await withTimeout(Promise.race([this.#pending, ...(ready ? [ready] : [])]), patienceMs);
        if (heard === TIMEOUT) return { type: "stalled" };
        if (heard === READY) return READY;
        this.#pending = undefined;
        if (heard.done) return this.#refusal(undefined);
        const message = heard.value;
        this.#noteHook(message);
        if (isAwaited(message)) return READY;
        if (message.type === "result" && message.is_error) {
          const reason = message.subtype === "success" ? message.result : message.errors.join("; ");
          return { type: "refused", reason };
        }
      }
    } catch (error) {
      return this.#refusal(error);
    }
  }

  #noteHook(message: SDKMessage): void {
    if (message.type !== "system") return;
    if (message.subtype === "hook_started") this.#runningHooks.add(message.hook_id);
    if (message.subtype === "hook_response") this.#runningHooks.delete(message.hook_id);
  }

  async end(quietMs: number): Promise<void> {
    if (this.beginsWithCall && !this.#mayWork) return this.abandon();
    this.#closeInput();
    await this.#process?.end(quietMs);
    this.#query.close();
  }

  /** Ends the process before it can write anything more. */
  async abandon(): Promise<void> {
    await this.#process?.kill();
    this.#closeInput();
    this.#query.close();
  }

  #refusal(error: unknown): StartFailure {
    const stderr = this.#process?.stderrTail().trim();
    return { type: "refused", reason: stderr || (error === undefined ? "it ended" : messageOf(error)) };
  }
}

async function* promptStream(
  uuid: SDKUserMessage["uuid"],
  blocks: readonly PromptBlock[],
  released: Promise<boolean>,
  closed: Promise<void>,
): AsyncGenerator<SDKUserMessage> {
  if (!(await released)) return;
  if (uuid !== undefined) {
    const content = blocks.map((block) => ({ ...block })) as SDKUserMessage["message"]["content"];
    yield { type: "user", uuid, message: { role: "user", content }, parent_tool_use_id: null };
  }
  await closed;
}

const READY = Symbol("ready");
const TIMEOUT = Symbol("timeout");

async function withTimeout<T>(promise: Promise<T>, ms: number): Promise<T | typeof TIMEOUT> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<typeof TIMEOUT>((resolve) => {
    timer = setTimeout(resolve, ms, TIMEOUT);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
