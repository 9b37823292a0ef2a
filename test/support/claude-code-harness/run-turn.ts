/**
 * One turn of the real Claude Code in a harness process of its own, with a home and a config folder of its own, against
 * a scripted model. Gives everything that came out, and what `ai` makes of it.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, globSync, readFileSync } from "node:fs";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readUIMessageStream, type UIMessage, type UIMessageChunk } from "ai";
import type { Chunk, Outcome } from "../../../src/frames/frame.ts";
import type { TurnDocument } from "../../../src/harness/port.ts";
import {
  type ReceivedRequest,
  type ScriptedModel,
  type ScriptedModelOptions,
  startScriptedModel,
} from "../scripted-model/index.ts";
import type { FakeCall, FakeTools } from "./fake-shim.ts";

export interface HarnessLine {
  readonly chunks?: readonly Chunk[];
  readonly session?: { readonly id: string };
  readonly outcome?: Outcome;
}

export interface FinishedTurn {
  readonly lines: readonly HarnessLine[];
  readonly chunks: readonly Chunk[];
  readonly outcome: Outcome | undefined;
  readonly sessionId: string | undefined;
  readonly exitCode: number | null;
  readonly stderr: string;
  /** What a reader is left with. Reading it throws where the chunks break the grammar. */
  readonly message: UIMessage | undefined;
  /** All text parts, in order. */
  readonly texts: readonly string[];
}

export interface TurnChoices {
  readonly input?: Record<string, unknown>;
  readonly settings?: Record<string, unknown>;
  readonly session?: TurnDocument["session"];
  readonly env?: Record<string, string>;
  readonly attempt?: number;
  readonly shim?: TurnDocument["shim"];
  readonly answers?: TurnDocument["answers"];
  readonly skills?: TurnDocument["skills"];
  /** Without it: the bench's `repo`. */
  readonly cwd?: string;
}

export interface RunningTurn {
  readonly child: ChildProcess;
  readonly lines: HarnessLine[];
  /** When each of the lines arrived: milliseconds since the epoch. */
  readonly arrivals: readonly number[];
  /** Resolves when a line fulfils the condition. Rejects when the harness ends before. */
  seen(condition: (line: HarnessLine) => boolean): Promise<HarnessLine>;
  readonly finished: Promise<FinishedTurn>;
}

/** A pod's worth of folders and a model, removed at the end of the block (`await using`). */
export class HarnessBench implements AsyncDisposable {
  private constructor(
    readonly model: ScriptedModel,
    readonly root: string,
  ) {}

  static async open(options: ScriptedModelOptions = {}): Promise<HarnessBench> {
    const root = await mkdtemp(join(tmpdir(), "claude-code-harness-"));
    const bench = new HarnessBench(await startScriptedModel(options), root);
    for (const folder of [bench.home, bench.repo, bench.runDir]) await mkdir(folder, { recursive: true });
    return bench;
  }

  get home(): string {
    return join(this.root, "home");
  }

  get configDir(): string {
    return join(this.home, ".claude");
  }

  get repo(): string {
    return join(this.root, "repo");
  }

  get runDir(): string {
    return join(this.root, "run");
  }

  /** The run's shim, played by a program that answers as it is told. */
  shim(tools: FakeTools, toolTimeoutMs = 60_000): TurnDocument["shim"] & {} {
    const program = join(import.meta.dir, "fake-shim.ts");
    const args = [program, this.#shimLog, JSON.stringify(tools)];
    return { command: process.execPath, args, toolTimeoutMs };
  }

  /** The calls that reached the played shim, in this order. */
  shimCalls(): FakeCall[] {
    if (!existsSync(this.#shimLog)) return [];
    const lines = readFileSync(this.#shimLog, "utf8").trimEnd().split("\n");
    return lines.map((line) => JSON.parse(line) as FakeCall);
  }

  /** What the model was asked in the conversation itself, oldest first. */
  mainRequests(): ReceivedRequest[] {
    return this.model.requests.filter((request) => request.kind === "main");
  }

  /** The transcript of the session; of the only one without an id. */
  transcript(sessionId = "*"): string {
    const [found] = globSync(join(this.configDir, `projects/*/${sessionId}.jsonl`));
    if (!found) throw new Error("there is no transcript");
    return found;
  }

  get #shimLog(): string {
    return join(this.root, "shim-calls.jsonl");
  }

  document(choices: TurnChoices = {}): TurnDocument {
    return {
      runId: "run-1",
      attempt: choices.attempt ?? 1,
      input: { threadId: "thread-1", userMessage: "Say hello.", ...choices.input },
      paths: { appRoot: this.root, cwd: choices.cwd ?? this.repo, configDir: this.configDir, runDir: this.runDir },
      settings: { claudeCodePath: null, model: null, startBudgetMs: 20_000, ...choices.settings },
      session: choices.session ?? { state: "fresh" },
      ...(choices.skills ? { skills: choices.skills } : {}),
      shim: choices.shim ?? null,
      answers: choices.answers ?? [],
    };
  }

  environment(extra: Record<string, string> = {}): Record<string, string> {
    return {
      PATH: "/usr/local/bin:/usr/bin:/bin",
      HOME: this.home,
      ANTHROPIC_BASE_URL: this.model.url,
      ANTHROPIC_API_KEY: "scripted-credential",
      CLAUDE_CODE_MAX_RETRIES: "2",
      ...extra,
    };
  }

  start(choices: TurnChoices = {}): RunningTurn {
    const program = join(import.meta.dir, "../../../src/main.ts");
    const child = spawn(process.execPath, [program, "harness", "claude-code"], {
      env: this.environment(choices.env),
      cwd: this.root,
      stdio: ["pipe", "pipe", "pipe"],
    });
    child.stdin.end(JSON.stringify(this.document(choices)));
    const lines: HarnessLine[] = [];
    const arrivals: number[] = [];
    const wakes = new Set<() => void>();
    let ended = false;
    let stderr = "";
    let rest = "";
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      stderr += text;
    });
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      const parts = (rest + text).split("\n");
      rest = parts.pop() ?? "";
      // Whatever is not JSON fails the test: nothing else may be on stdout.
      lines.push(...parts.map((line) => JSON.parse(line) as HarnessLine));
      while (arrivals.length < lines.length) arrivals.push(Date.now());
      for (const wake of wakes) wake();
    });
    const finished = new Promise<number | null>((resolve) => void child.once("close", resolve)).then(
      async (exitCode) => {
        ended = true;
        for (const wake of wakes) wake();
        // The early start asks for what the SDK asks for, or the time that it is there to win is lost.
        if (stderr.includes("early start was in vain")) throw new Error(stderr);
        if (rest !== "") throw new Error(`stdout ended within a line: ${rest}`);
        return summarize(lines, exitCode, stderr);
      },
    );
    return {
      child,
      lines,
      arrivals,
      finished,
      seen: async (condition) => {
        for (;;) {
          const found = lines.find(condition);
          if (found) return found;
          if (ended) throw new Error(`the harness ended before; stderr: ${stderr}`);
          await new Promise<void>((resolve) => void wakes.add(resolve));
          wakes.clear();
        }
      },
    };
  }

  /** A whole turn. */
  async run(choices: TurnChoices = {}): Promise<FinishedTurn> {
    return this.start(choices).finished;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.model.stop();
    await rm(this.root, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  }
}

async function summarize(
  lines: readonly HarnessLine[],
  exitCode: number | null,
  stderr: string,
): Promise<FinishedTurn> {
  const chunks = lines.flatMap((line) => line.chunks ?? []);
  const message = await readMessage(chunks);
  return {
    lines,
    chunks,
    outcome: lines.find((line) => line.outcome)?.outcome,
    sessionId: lines.findLast((line) => line.session)?.session?.id,
    exitCode,
    stderr,
    message,
    texts: (message?.parts ?? []).flatMap((part) => (part.type === "text" ? [part.text] : [])),
  };
}

/** Throws what `readUIMessageStream` finds wrong with the chunks. */
export async function readMessage(chunks: readonly Chunk[]): Promise<UIMessage | undefined> {
  const stream = new ReadableStream<UIMessageChunk>({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(chunk as unknown as UIMessageChunk);
      controller.close();
    },
  });
  let last: UIMessage | undefined;
  const onError = (error: unknown): never => {
    throw error;
  };
  for await (const message of readUIMessageStream({ stream, onError, terminateOnError: true })) last = message;
  return last;
}
