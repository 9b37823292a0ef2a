/**
 * The built-in harness: one turn of Claude Code. Reads a turn document, writes frames, and gives exactly one outcome,
 * unless it is told to stop: whoever stops it knows the outcome.
 */
import type { McpServerStatus, Options } from "@anthropic-ai/claude-agent-sdk/core";
import { cutMessage, messageOf } from "../../errors.ts";
import type { Chunk } from "../../frames/frame.ts";
import { cliEnvironment, secretValues, withoutSecrets } from "./cli-environment.ts";
import { CliSession } from "./cli-session.ts";
import { EarlyStart } from "./early-start.ts";
import { findClaudeCode } from "./find-claude-code.ts";
import { hasTranscript } from "./find-session.ts";
import { interruptOf } from "./own-questions.ts";
import { prepareTurn } from "./prepare-turn.ts";
import { queryOptions, turnSettings } from "./query-options.ts";
import { type QuestionCallbacks, questionCallbacks } from "./question-callbacks.ts";
import { readOnlyHook } from "./read-only-hook.ts";
import { writeReadOnlySettings } from "./read-only-settings.ts";
import { type EndedTurn, runTurn } from "./run-turn.ts";
import { passOverKnownWarnings } from "./sdk-warnings.ts";
import { firstChoice, type StartChoice, startTurn } from "./start-turn.ts";
import { MessageTranslator } from "./translate-message.ts";
import { TurnFailure } from "./turn-failure.ts";
import { present, readTurnRequest, type TurnRequest } from "./turn-request.ts";

/** How long Claude Code may take to write the end of its transcript and leave, before it is told to. */
const LEAVE_MS = 300;
const STOPPED_EXIT_CODE = 143;

export interface HarnessIo {
  /** All of stdin. */
  readonly stdin: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Takes one line, newline included; the next one waits until it resolves. */
  readonly write: (line: string) => Promise<void> | void;
  /** A line for people, without newline. */
  readonly log: (line: string) => void;
  /** Ends Claude Code at once; no outcome is written then. */
  readonly signal?: AbortSignal;
  /** This program, to look for Claude Code beside it. */
  readonly execPath?: string;
}

/** Performs the turn, and resolves with the exit code when Claude Code is gone. */
export async function runClaudeCodeHarness(io: HarnessIo): Promise<number> {
  const stop = stopper(io.signal);
  let secrets = secretValues(io.env);
  try {
    const turn = readTurnRequest(io.stdin);
    secrets = secretValues(io.env, turn.mcp?.headers);
    const ended = await Promise.race([performTurn(turn, io, stop), stop.requested]);
    if (ended === STOPPED) return STOPPED_EXIT_CODE;
    await writeLine(io, { chunks: [], outcome: outcomeOf(ended) });
    return 0;
  } catch (error) {
    if (io.signal?.aborted) return STOPPED_EXIT_CODE;
    const failure = error instanceof TurnFailure ? error : undefined;
    if (!failure) io.log(`internal error: ${error instanceof Error ? error.stack : messageOf(error)}`);
    const message = failure?.message ?? "the harness failed";
    await writeLine(io, {
      chunks: [],
      outcome: {
        type: "failed",
        error: {
          code: failure?.code ?? "turn_failed",
          message: cutMessage(withoutSecrets(message, secrets)),
        },
        ...present("usage", failure?.usage),
      },
    });
    return 1;
  } finally {
    await stop.endSession();
  }
}

function outcomeOf({ usage, deferred }: EndedTurn): object {
  if (!deferred) return { type: "finished", usage };
  return { type: "interrupt", interrupts: [interruptOf(deferred)], usage };
}

async function performTurn(turn: TurnRequest, io: HarnessIo, stop: Stopper): Promise<EndedTurn> {
  const { paths, session } = turn.document;
  for (const line of turn.ignored) io.log(line);
  const resumable = session.id !== undefined && hasTranscript(paths.configDir, session.id) ? session.id : undefined;
  if (session.id !== resumable) io.log(`session ${session.id} has no transcript on this pod; beginning a new one`);
  const begin = await prepareTurn(turn, resumable);
  const claudeCode = findClaudeCode({
    configured: turn.settings.claudeCodePath,
    execPath: io.execPath ?? process.execPath,
    moduleDir: import.meta.dir,
    path: io.env.PATH,
    home: io.env.HOME,
  });
  const env = cliEnvironment(io.env, paths.configDir);
  const request = begin.leftPlanMode ? { ...turn, plan: false } : turn;
  const own = turnSettings(request);
  const settings = turn.readonly ? writeReadOnlySettings(turn.document, env, own) : own;
  const optionsOf = (choice: StartChoice, callbacks: SessionCallbacks): Options =>
    queryOptions(request, {
      claudeCode,
      env,
      settings,
      spawn: callbacks.spawn,
      sessionLost: choice.sessionLost,
      withoutSkills: choice.withoutSkills,
      readOnlyHook: readOnlyHook(callbacks.servers),
      questions: callbacks.questions,
      ...present("resume", choice.resume),
    });
  const first = firstChoice(turn, resumable);
  const early = new EarlyStart(optionsOf(first, NOT_YET), io.log);
  stop.hold({ end: () => early.drop() });
  const { query } = await import("@anthropic-ai/claude-agent-sdk/core");
  passOverKnownWarnings(process);
  const stale = Promise.withResolvers<never>();
  const open = (choice: StartChoice): CliSession => {
    if (io.signal?.aborted) throw new TurnFailure("turn_failed", "the harness was told to stop");
    const created = new CliSession(
      query,
      ({ spawn, session: self }) => {
        const questions = questionCallbacks(begin.agreed, self.released, (reason) => {
          // Nothing of the turn may happen, and the question stays open.
          stop.hold({ end: () => self.abandon() });
          stale.reject(reason);
        });
        return optionsOf(choice, { spawn, servers: () => self.mcpServers(), questions });
      },
      begin.prompt,
      (asked) => early.take(asked),
      begin.agreed !== undefined,
    );
    stop.hold(created);
    return created;
  };
  const perform = async (): Promise<EndedTurn> => {
    const started = await startTurn(turn, first, { open, sleep: Bun.sleep, now: Date.now, log: io.log });
    const translator = new MessageTranslator(turn.messageId);
    await writeLine(io, { chunks: translator.translate(started.init), session: { id: started.init.session_id } });
    return runTurn(started, translator, (chunks) => writeChunks(io, chunks));
  };
  return Promise.race([perform(), stale.promise]);
}

type SpawnCallback = NonNullable<Options["spawnClaudeCodeProcess"]>;

interface SessionCallbacks {
  readonly spawn: SpawnCallback;
  readonly servers: () => Promise<McpServerStatus[]>;
  readonly questions: QuestionCallbacks;
}

/** In the place of callbacks that only the SDK calls. */
const NOT_YET: SessionCallbacks = {
  spawn: notYet,
  servers: notYet,
  questions: { hook: { hooks: [] }, canUseTool: notYet },
};

function notYet(): never {
  throw new Error("the SDK is not loaded yet");
}

const STOPPED = Symbol("stopped");

interface Stopper {
  /** Resolves when the harness is told to stop. */
  readonly requested: Promise<typeof STOPPED>;
  /** What is to be ended, instead of what was held before. */
  hold(held: Pick<CliSession, "end">): void;
  endSession(): Promise<void>;
}

function stopper(signal: AbortSignal | undefined): Stopper {
  let held: Pick<CliSession, "end"> | undefined;
  const requested = new Promise<typeof STOPPED>((resolve) => {
    const stop = (): void => resolve(STOPPED);
    if (signal?.aborted) stop();
    signal?.addEventListener("abort", stop, { once: true });
  });
  return {
    requested,
    hold: (next) => {
      held = next;
    },
    endSession: async () => held?.end(signal?.aborted ? 0 : LEAVE_MS),
  };
}

async function writeChunks(io: HarnessIo, chunks: readonly Chunk[]): Promise<void> {
  if (chunks.length > 0) await writeLine(io, { chunks });
}

async function writeLine(io: HarnessIo, frame: object): Promise<void> {
  await io.write(`${JSON.stringify(frame)}\n`);
}
