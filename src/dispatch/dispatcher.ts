/**
 * All runs of this daemon: claims them, carries them out, recovers those of an earlier daemon, drops old ones, and ends
 * all of them at shutdown. What costs too much for the start of the daemon (schemas, metrics) is handed in by `begin`.
 */
import { readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { fileNameOf } from "../disk.ts";
import { errnoOf, messageOf } from "../errors.ts";
import type { Harness } from "../harness/port.ts";
import type { Metrics } from "../metrics/port.ts";
import { createDetachWatch } from "./detach-watch.ts";
import { EndedRuns } from "./ended-runs.ts";
import { takeOverFolder } from "./give-folder.ts";
import type { DispatchInput } from "./input.ts";
import type { Reader } from "./reader.ts";
import { recoverRuns } from "./recover-runs.ts";
import type { Claim } from "./registry.ts";
import { RunRegistry } from "./registry.ts";
import { dropEndedRuns, dropOldAttempt } from "./retention.ts";
import type { AttemptOrder, Run } from "./run.ts";
import { Attempt } from "./run.ts";
import type { DispatchParts } from "./run-dispatch.ts";
import { runDispatch } from "./run-dispatch.ts";
import { RunLog } from "./run-log.ts";
import { logPath, makeRunFolder, writeRecord } from "./run-record.ts";
import { keepOnlyNonce } from "./state-dir.ts";
import type { Suspensions } from "./suspensions.ts";
import { Tombstones } from "./tombstones.ts";

export interface DispatcherOptions extends Omit<DispatchParts, "metrics" | "configuredEnv" | "shutdown"> {
  /** Mark the processes of this daemon's runs, and of earlier daemons on the state folder. */
  readonly nonce: string;
  readonly earlierNonces: readonly string[];
  /** True when the attempt's owner still has its connection. */
  readonly ownerIsThere: (attempt: Attempt) => boolean;
}

/** Refused dispatches come back to another pod, or to this one after its restart. */
const RETRY_AFTER_S = 5;
/** Often enough for a retention that is shorter, and never often. */
const SWEEP_EVERY_MS = 5000;
const SWEEP_AT_MOST_EVERY_MS = 100;

export class Dispatcher {
  readonly registry: RunRegistry;
  readonly tombstones: Tombstones;
  /** Resolves when the runs of an earlier daemon are known and closed: before, nothing may start. */
  readonly ready: Promise<void>;
  draining = false;
  #configuredEnv: Readonly<Record<string, string>> = {};
  #activeAt: number;
  #metrics: Metrics | undefined;
  #sweeping = false;
  /** Of all attempts, those that a newer one replaced included. */
  readonly #readers = new Set<Reader>();
  readonly #shutdown = new AbortController();
  readonly #becomeReady: () => void;
  readonly #endedRuns: EndedRuns;
  readonly #watchDetached: (attempt: Attempt) => void;
  readonly #stopSweep: () => void;

  constructor(private readonly options: DispatcherOptions) {
    const { config, clock, state } = options;
    this.#activeAt = clock.now();
    this.tombstones = new Tombstones(state.tombstones, clock);
    this.#endedRuns = new EndedRuns(state.endedFile, clock);
    this.#watchDetached = createDetachWatch(clock, config.detachGraceMs);
    ({ promise: this.ready, resolve: this.#becomeReady } = Promise.withResolvers<void>());
    this.registry = new RunRegistry({
      maxRuns: config.maxRuns,
      tombstones: this.tombstones,
      endedRuns: this.#endedRuns,
      draining: () => this.draining,
      retryAfterS: RETRY_AFTER_S,
      ownerIsThere: options.ownerIsThere,
      folderOf: (runId) => join(state.runs, fileNameOf(runId)),
      createAttempt: (run, number) => this.#createAttempt(run, number),
    });
    const sweepMs = Math.max(SWEEP_AT_MOST_EVERY_MS, Math.min(SWEEP_EVERY_MS, config.runRetentionMs));
    this.#stopSweep = clock.every(sweepMs, () => void this.#sweep());
  }

  /**
   * Milliseconds since the epoch of the last frame, keepalive or dispatch; now, while a run is at work or a save may be
   * on its way to the volume's backend.
   */
  get activeAt(): number {
    const { clock, sessions } = this.options;
    const isAtWork = this.registry.liveCount > 0 || sessions.writeBackUntil() > clock.monotonic();
    return isAtWork ? clock.now() : this.#activeAt;
  }

  readers(): readonly Reader[] {
    return [...this.#readers];
  }

  touch(): void {
    this.#activeAt = this.options.clock.now();
  }

  /** Variables for later runs, as a whole. */
  configure(env: Readonly<Record<string, string>>): void {
    this.#configuredEnv = Object.freeze({ ...env });
  }

  /** Closes what an earlier daemon left; then dispatches are admitted. */
  async begin(metrics: Metrics): Promise<void> {
    const { clock, log, processes, nonce, earlierNonces, state, largeJson } = this.options;
    this.#metrics = metrics;
    const startedAt = clock.monotonic();
    await Promise.all([this.tombstones.load(), this.#endedRuns.load()]);
    let killed = 0;
    for (const earlier of earlierNonces) killed += await processes.endLeftovers(earlier);
    keepOnlyNonce(state, nonce);
    const cutOff = await recoverRuns({
      folder: state.runs,
      clock,
      log,
      hooks: this.#hooks,
      largeJson,
      adopt: (attempt) => this.registry.adopt(attempt),
    });
    for (const name of await readdir(state.agentRuns)) {
      await rm(join(state.agentRuns, name), { recursive: true, force: true });
    }
    await this.#giveConfigFolder();
    const elapsedMs = Math.round(clock.monotonic() - startedAt);
    log.info("ready", { runs: this.registry.attempts().length, cutOff, killed, elapsedMs });
    this.#becomeReady();
  }

  get suspensions(): Suspensions {
    return this.options.suspensions;
  }

  /** Undefined: the dispatch names none of this pod. */
  harnessOf(input: DispatchInput): Harness | undefined {
    return this.options.harnesses.find(input.harness?.id ?? undefined);
  }

  /** Carries out a claimed attempt, in the background. */
  start(claim: Claim & { type: "start" }, order: AttemptOrder): void {
    const metrics = this.#metrics;
    if (!metrics) throw new Error("a run was started before the daemon was ready");
    const { attempt, predecessor } = claim;
    this.touch();
    // From now on: the reader that is about to come may never do so.
    this.#watchDetached(attempt);
    metrics.runStarted();
    const shutdown = this.#shutdown.signal;
    const parts = { ...this.options, metrics, configuredEnv: () => this.#configuredEnv, shutdown };
    void runDispatch(attempt, order, predecessor, parts).then(() => {
      this.touch();
      return dropOldAttempt(attempt, this.options.log);
    });
  }

  /** Ends all runs as the pod's shutdown. Resolves when they have ended, or after `limitMs`. */
  async stop(limitMs: number): Promise<void> {
    this.draining = true;
    const limit = new AbortController();
    const limited = this.options.clock.sleep(limitMs, limit.signal);
    // Recovery may have gibibytes to read; what it does not close now, the next start will.
    await Promise.race([this.ready, limited]);
    const gone = { code: "sandbox_gone", message: "the pod is shutting down", reason: "shutdown" } as const;
    const unended = this.registry.attempts().filter((attempt) => attempt.state !== "ended");
    for (const attempt of unended) attempt.stopOrPark(gone);
    this.#shutdown.abort();
    await Promise.race([Promise.all(unended.map((attempt) => attempt.ended)), limited]);
    limit.abort();
    this.#stopSweep();
  }

  /** Once, while nothing of the agent is running: later it could put a link in its place. */
  async #giveConfigFolder(): Promise<void> {
    const { config, harnesses, log } = this.options;
    const harness = harnesses.find(undefined);
    if (!config.agentUser || !harness?.capabilities.sessionFiles) return;
    try {
      if (await takeOverFolder(harness.configDir, config.agentUser)) return;
      log.warn("configuration", { warning: "the harness's configuration folder does not belong to AGENT_USER" });
    } catch (error) {
      // Every run will say so too, as its outcome; the daemon can still be asked why.
      log.error("configuration folder not made", { reason: errnoOf(error) ?? messageOf(error) });
    }
  }

  readonly #hooks = {
    onOutcome: (attempt: Attempt): void => {
      this.touch();
      this.#watchDetached(attempt);
    },
    onReader: (attempt: Attempt, reader: Reader): void => {
      if (attempt.readers.has(reader)) this.#readers.add(reader);
      else this.#readers.delete(reader);
      this.#watchDetached(attempt);
      void dropOldAttempt(attempt, this.options.log);
    },
  };

  #createAttempt(run: Run, number: number): Attempt {
    const { clock, log } = this.options;
    // After the record of the attempt before, or that one could be the one that stays. And before the log: of a run that
    // a restart would not know, nothing is ever read.
    const before = run.attempt?.log.placed.catch(() => {}) ?? Promise.resolve();
    const recorded = before.then(() => makeRunFolder(run.folder)).then(() => writeRecord(attempt));
    const runLog = RunLog.create(logPath(run.folder, number), recorded, (error) => {
      const reason = errnoOf(error) ?? messageOf(error);
      log.error("run log not stored", { run: run.id, reason });
      attempt.stop({ code: "storage_failed", message: `the run's log could not be stored: ${reason}` });
    });
    const attempt: Attempt = new Attempt(run, number, runLog, clock, this.#hooks);
    return attempt;
  }

  async #sweep(): Promise<void> {
    if (this.#sweeping) return;
    this.#sweeping = true;
    const { config, clock, log } = this.options;
    try {
      await this.tombstones.sweep();
      await dropEndedRuns({
        registry: this.registry,
        endedRuns: this.#endedRuns,
        clock,
        log,
        retentionMs: config.runRetentionMs,
        maxBytes: config.runLogBytes,
      });
    } catch (error) {
      log.error("sweep failed", { reason: messageOf(error) });
    } finally {
      this.#sweeping = false;
    }
  }
}
