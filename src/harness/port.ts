/**
 * A harness is a program that performs one turn. It is started once per attempt, in its own process group, with one
 * JSON document (`TurnDocument`) on stdin, which is then closed. On stdout it writes lines of JSON:
 *
 *     {"chunks":[…UIMessageChunk], "session"?: {"id"}, "outcome"?: {…}}
 *
 * - A line counts when it is an object with a `chunks` array or an `outcome`; everything else is logged and skipped.
 * - The first `outcome` ends the turn; what comes after it is ignored, the exit status too. Exit 0 without one is
 *   `finished`, any other exit `harness_crashed`.
 * - `session.id` is the id under which the conversation can be resumed; the newest one counts.
 * - `start`, steps and parts are the harness's to open and close. Whatever is still open at the outcome, and the
 *   final `finish`, `abort` or `error`, the daemon adds.
 * - stderr is a log for people: cut at 4 KiB a line and 50 lines a second, secrets replaced.
 * - SIGTERM asks it to end; SIGKILL to everything it started follows.
 *
 * The daemon asks for capabilities and never for a name.
 */
import type { SessionState } from "../frames/frame.ts";

export interface HarnessCapabilities {
  /** Goes on with an earlier conversation, given its session id. */
  readonly resume: boolean;
  /** How a tool that a person answers is parked. */
  readonly clientTools: "shim" | "native" | "none";
  /** Where a session's files are below the config directory; `<id>` stands for the session id. Null: none. */
  readonly sessionFiles: SessionFiles | null;
}

export interface SessionFiles {
  /** One file: the transcript. Without it there is no session. One `*` may stand for one folder. */
  readonly main: string;
  /** A folder of files beside it. */
  readonly side: string;
}

/** A row of the registry: everything the daemon knows of a harness. */
export interface Harness {
  readonly id: string;
  readonly argv: readonly string[];
  readonly capabilities: HarnessCapabilities;
  /** Where the program keeps its own files; handed to it as `paths.configDir`. */
  readonly configDir: string;
  /** What this harness alone understands; handed to it as `settings`. */
  readonly settings: Readonly<Record<string, unknown>>;
  /** What its MCP client and the shim say to each other beside the protocol. Absent: `DEFAULT_SHIM_DIALECT`. */
  readonly shimDialect?: ShimDialect;
  /**
   * What the session says of calls that an earlier run parked, by their ids. Reads files that the agent can write.
   * Absent: the harness finds out for itself, and ends as `stale` where they are not what the answers are for.
   */
  readonly findParked?: (
    session: { readonly configDir: string; readonly id: string },
    calls: readonly ParkedCall[],
  ) => Promise<ReadonlyMap<string, ParkedState>>;
  /** The JSON Schema of an answer to one of its own questions; null: anything. Pure, and the same on every pod. */
  readonly responseSchemaOf?: (toolName: string, input: unknown) => Readonly<Record<string, unknown>> | null;
}

export interface ShimDialect {
  /** The key in `_meta` of `tools/call` under which the client gives its own id of the call. */
  readonly toolCallIdMeta: string;
  /** `_meta` of a result that ends the turn: no further call of the model. */
  readonly endTurnMeta: Readonly<Record<string, unknown>>;
  /** `_meta` of every tool that the shim lists. Absent: none. */
  readonly toolMeta?: Readonly<Record<string, unknown>>;
}

export const DEFAULT_SHIM_DIALECT: ShimDialect = {
  toolCallIdMeta: "dispatchd/toolCallId",
  endTurnMeta: { "dispatchd/endTurn": true },
};

export interface ParkedCall {
  readonly toolCallId: string;
  readonly toolName: string;
  readonly input: unknown;
}

/** `answered`: it has a result that is not the text of a pause. `absent`: no such call, or with another tool or input. */
export type ParkedState = "open" | "answered" | "absent";

/** What one turn gets on stdin. */
export interface TurnDocument {
  readonly runId: string;
  readonly attempt: number;
  /**
   * The dispatch's input without `callback`, `env`, and what it resumes (`suspension`, `answers`, `interrupts`,
   * `approvals`); unknown keys are kept.
   */
  readonly input: Readonly<Record<string, unknown>>;
  readonly paths: {
    readonly appRoot: string;
    readonly cwd: string;
    readonly configDir: string;
    /** A folder of this run alone, empty at the start, removed at the end. */
    readonly runDir: string;
  };
  readonly settings: Readonly<Record<string, unknown>>;
  readonly session: {
    /** The conversation to go on with. Absent: begin a new one. */
    readonly id?: string;
    readonly state: SessionState;
    /** Why the state is not what one would expect, for the model to be told. */
    readonly reason?: string;
  };
  /** Skills beside those in the config directory. Absent: the pod has no org volume. */
  readonly skills?: {
    /** Local plugins: each a folder with a `skills` folder in it, named as the plugin. Read-only. */
    readonly pluginDirs: readonly string[];
    /** What of the organization's skills is not there, and why, for the model to be told. */
    readonly missing?: string;
  };
  /** The MCP shim to launch for the run's tools; null when the run has none. */
  readonly shim: null | {
    readonly command: string;
    readonly args: readonly string[];
    /** How long a call of the shim may take, in ms: the agent's own limit must lie above it. */
    readonly toolTimeoutMs: number;
  };
  /**
   * What became of the calls that an earlier run of the thread parked. Each is the result of its call, and reaches the
   * model as nothing else. Without `input.userMessage` the conversation goes on from them.
   */
  readonly answers: readonly TurnAnswer[];
}

export interface TurnAnswer {
  readonly interruptId: string;
  readonly reason: InterruptReason;
  readonly toolCallId: string;
  readonly toolName: string;
  /** As it was signed: who runs the call itself gives the answer only where tool and input are these. */
  readonly input: unknown;
  readonly status: "resolved" | "cancelled";
  /** What the person gave. Data: never to be run, or read as a prompt. */
  readonly payload?: unknown;
  /** What the model reads as the result of the call. */
  readonly text: string;
  readonly isError: boolean;
}

/**
 * Why a person is asked: to approve a tool before it runs, to answer a question of the agent's own, to agree to its
 * plan, or to do what a client tool is for.
 */
export type InterruptReason = "tool_call" | "input_required" | "confirmation" | "dispatchd:client_tool";

/**
 * A call that the harness parked by itself: in its outcome `{"type":"interrupt","interrupts":[…]}`. The daemon gives it
 * its id, signs it and tells the reader. `input_required` and `confirmation` are the harness's own questions; a client
 * tool of the run is named by its `toolName`.
 */
export interface HarnessInterrupt {
  readonly toolCallId: string;
  readonly toolName: string;
  readonly input: unknown;
  readonly reason?: InterruptReason;
  /** The question in words, for the person. */
  readonly message?: string;
}
