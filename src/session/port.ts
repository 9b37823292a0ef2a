/**
 * The conversation of a thread, around one run:
 *
 *     begin → noteSession … → startCheckpoints → … → save
 *
 * - `begin` finds what the run goes on from: this pod's session, the one on the volume, or none. It is bounded, and a
 *   volume that hangs costs the turn its history, never the run. Only a failing disk of the pod makes it throw.
 * - `noteSession` is called with every id that the harness gives. The pointer is written at once: a daemon that is killed
 *   in mid-turn must not forget the conversation. `pointerWritten` resolves when the newest is.
 * - `startCheckpoints` once the harness runs; `save` ends them. When the volume was at fault it is tried again by itself,
 *   every `ORG_RETRY_EVERY_MS`, until it works, the thread has its next run, or `stop`.
 * - `claimSuspension` is called before anything of a suspension is carried out, once `begin` has found what other runs
 *   used. The same run may claim again: its pod may have died. `used` is final.
 * - Nothing throws after `begin`, but for a claim that the pod's own disk does not take.
 */
import type { SessionState, Settled } from "../frames/frame.ts";
import type { Harness } from "../harness/port.ts";

export interface Sessions {
  begin(order: BeginOrder, signal: AbortSignal): Promise<SessionRun>;
  /** By the monotonic clock: until then what was saved may still be on its way to the backend. 0 when nothing was. */
  writeBackUntil(): number;
  /** Runs whose last save failed are not saved any more. */
  stop(): void;
}

export interface BeginOrder {
  readonly threadId: string;
  readonly runId: string;
  readonly harness: Harness;
  readonly input: SessionInput;
}

/** What of a dispatch's input is about the session. What is not understood counts as not given. */
export interface SessionInput {
  readonly harness?: { readonly sessionId?: string | null | undefined } | null | undefined;
  readonly userMessage?: unknown;
  /** A whole number that grows with each of the thread's runs. */
  readonly fence?: unknown;
  /** The newest generation that the caller knows of. */
  readonly sessionGeneration?: unknown;
}

export interface FoundSession {
  /** The conversation to go on with. */
  readonly id?: string;
  readonly state: SessionState;
  /** The save that it is, or that it went on from. */
  readonly generation?: string;
  readonly reason?: string;
}

export interface ClaimOptions {
  /** When the suspension expires, in seconds since the epoch. */
  readonly exp: number;
  /** For the volume: past it the claim is the pod's alone. */
  readonly deadlineMs: number;
  readonly signal?: AbortSignal;
}

/**
 * `pod`: other pods cannot know of it yet, and why; the run's next save tells them. `again`: this very run has claimed it
 * before, on this pod or on one whose saves were seen.
 */
export type ClaimResult =
  | { readonly type: "claimed"; readonly again: boolean; readonly durable: "volume" | "pod"; readonly reason?: string }
  | { readonly type: "used"; readonly by: string };

export interface SessionRun {
  readonly found: FoundSession;
  /** `id` is the suspension's, of 64 characters at most. */
  claimSuspension(id: string, runId: string, options: ClaimOptions): Promise<ClaimResult>;
  noteSession(sessionId: string): void;
  /** Resolves when the pointer of the newest noted session is written, or cannot be. */
  pointerWritten(): Promise<void>;
  startCheckpoints(): void;
  /**
   * Resolves within `deadlineMs`; within about 2 s where an earlier flight of the thread hangs, but not once `last` has
   * aborted: then nothing is tried after it.
   */
  save(options: {
    readonly deadlineMs: number;
    readonly last?: AbortSignal;
    readonly signal?: AbortSignal;
  }): Promise<Settled>;
  /** Ends the checkpoints of a run that is not saved. */
  stop(): void;
}
