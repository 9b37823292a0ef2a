/**
 * The story of one attempt: wait for the thread's earlier run and for the org volume; restore the session; take up what
 * a person answered; start the harness; forward its frames; send the outcome; stop what the harness left behind; save
 * the session; send the last frame; close.
 *
 * The claim and the headers come before this, in the route. Nothing here throws: whatever goes wrong is the outcome.
 */
import { rm } from "node:fs/promises";
import type { Clock } from "../clock/port.ts";
import type { Config } from "../config.ts";
import { DaemonError, errnoOf, messageOf } from "../errors.ts";
import type { Outcome, Settled } from "../frames/frame.ts";
import type { LargeJson } from "../frames/large-lines.ts";
import type { Harness } from "../harness/port.ts";
import type { HarnessRegistry } from "../harness/registry.ts";
import type { Log } from "../log/port.ts";
import type { Redactor } from "../log/redact.ts";
import type { Metrics } from "../metrics/port.ts";
import type { Org, RunSkills, Skills } from "../orgfs/port.ts";
import type { Processes, RunProcess } from "../process/port.ts";
import type { SessionRun, Sessions } from "../session/port.ts";
import { stopHarness, watchHarness } from "./end-harness.ts";
import { FrameForwarder } from "./forward-frames.ts";
import { LineQuota } from "./line-quota.ts";
import { logStderr } from "./log-stderr.ts";
import type { Folders } from "./prepare-turn.ts";
import { buildDocument, buildEnv, makeFolders, secretsOf } from "./prepare-turn.ts";
import { NOTHING_TO_OPEN, type Opening, resumeRun } from "./resume-run.ts";
import type { Attempt, AttemptOrder } from "./run.ts";
import { runNameOf, writeEnding } from "./run-record.ts";
import { carryOut, type StartedTools, startTools } from "./start-tools.ts";
import type { StateDir } from "./state-dir.ts";
import type { Suspensions } from "./suspensions.ts";

export interface DispatchParts {
  readonly config: Config;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly redactor: Redactor;
  readonly largeJson: LargeJson;
  readonly state: StateDir;
  readonly org: Org;
  readonly skills: Skills;
  readonly sessions: Sessions;
  readonly harnesses: HarnessRegistry;
  readonly processes: Processes;
  readonly suspensions: Suspensions;
  /** Starts this very program, from wherever. */
  readonly selfCommand: readonly string[];
  /** What `POST /config` gave; read when a run starts. */
  readonly configuredEnv: () => Readonly<Record<string, string>>;
  /** Aborts when the daemon is to end. */
  readonly shutdown: AbortSignal;
}

interface Turn {
  readonly harness: Harness;
  readonly folders: Folders;
  readonly session: SessionRun;
  readonly skills: RunSkills | undefined;
  readonly tools: StartedTools;
  readonly process: RunProcess;
  readonly forwarder: FrameForwarder;
  /** Resolves when the last of its stderr is in the log. */
  readonly stderrLogged: Promise<void>;
}

const SUMMARY_EVERY_MS = 15_000;
/** Skills go back while a run works, less often than its session: all of them are looked at. */
const SKILLS_EVERY_MS = 30_000;
/** Of the pod's grace, what saves may take at a shutdown. */
const SHUTDOWN_SAVE_MS = 12_000;
/** What the thread's next run waits for a save that hangs: it saves what this one could not. */
const SUPERSEDED_SAVE_MS = 2000;
const UNSTARTED: Settled = { saved: false, reason: "the turn was not started" };

/** Resolves when the attempt has ended. Never rejects. */
export async function runDispatch(
  attempt: Attempt,
  order: AttemptOrder,
  predecessor: Attempt | undefined,
  parts: DispatchParts,
): Promise<void> {
  const { clock, metrics } = parts;
  const log = parts.log.child({ run: attempt.run.id, attempt: attempt.number, thread: attempt.run.threadId });
  const startedAt = clock.monotonic();
  // Once: what is hidden is what the harness gets, whatever is configured meanwhile.
  const configured = parts.configuredEnv();
  const unhide = parts.redactor.hide(secretsOf(order.input, configured));
  let turn: Turn | undefined;
  try {
    await waitForPredecessor(attempt, predecessor, parts, log);
    await store("the run could not be recorded", attempt.log.placed);
    turn = await startTurn(attempt, order, configured, parts, log);
    if (turn) await followTurn(attempt, turn, parts);
  } catch (error) {
    attempt.conclude(outcomeOf(error));
    log.error("dispatch failed", { reason: messageOf(error), stack: (error as Error)?.stack });
  }
  const outcome = attempt.outcome ?? outcomeOf(new DaemonError("internal", "the run ended without an outcome"));
  attempt.conclude(outcome);
  metrics.runConcluded(outcome.type === "failed" ? outcome.error.code : outcome.type);
  log.info("dispatch outcome", { outcome: outcome.type, ...(outcome.type === "failed" ? outcome.error : {}) });

  const settled = turn ? await settleTurn(attempt, turn, parts, log) : UNSTARTED;
  if (!turn && predecessor) await predecessor.released;
  attempt.release();
  await attempt.end(settled);
  if (attempt.log.failed) await keepEnding(attempt, log);
  // What it printed last may name its secrets too.
  await turn?.stderrLogged;
  unhide();
  const elapsedMs = Math.round(clock.monotonic() - startedAt);
  metrics.runEnded(elapsedMs / 1000);
  log.info("dispatch done", { outcome: outcome.type, seq: attempt.lastSeq, ...turn?.forwarder.counts, elapsedMs });
}

/** Of a run whose log the disk did not take. */
async function keepEnding(attempt: Attempt, log: Log): Promise<void> {
  const { lastSeq, outcome, settled } = attempt;
  if (!outcome || !settled) return;
  try {
    await writeEnding(attempt, { lastSeq, outcome, settled });
  } catch (error) {
    log.error("ending not stored", { reason: errnoOf(error) ?? messageOf(error) });
  }
}

/** Waits until the thread's earlier run can do nothing more; bounded, because it may hang in the kernel. */
async function waitForPredecessor(
  attempt: Attempt,
  predecessor: Attempt | undefined,
  { clock, config, metrics }: DispatchParts,
  log: Log,
): Promise<void> {
  if (!predecessor) return;
  const startedAt = clock.monotonic();
  const timeout = new AbortController();
  const timedOut = await Promise.race([
    predecessor.released.then(() => false),
    clock.sleep(config.takeoverTimeoutMs, AbortSignal.any([attempt.signal, timeout.signal])).then(() => true),
  ]);
  timeout.abort();
  if (!attempt.live) return;
  metrics.takeover(timedOut);
  const fields = { from: predecessor.run.id, waitedMs: Math.round(clock.monotonic() - startedAt) };
  if (timedOut) log.warn("takeover goes on without the earlier run's end", fields);
  else log.info("takeover", fields);
}

/** Everything from the session to the running harness. Undefined when the attempt was stopped on the way. */
async function startTurn(
  attempt: Attempt,
  order: AttemptOrder,
  configured: Readonly<Record<string, string>>,
  parts: DispatchParts,
  log: Log,
): Promise<Turn | undefined> {
  if (!attempt.live) return undefined;
  const { config, clock } = parts;
  const { input } = order;
  const harness = parts.harnesses.find(input.harness?.id ?? undefined);
  if (!harness) throw new DaemonError("unknown_harness", "input.harness.id names no harness of this pod");
  const ready = await parts.org.ready(attempt.signal, log);
  if (!attempt.live) return undefined;
  const { threadId } = attempt.run;
  const begun = parts.sessions.begin({ threadId, runId: attempt.run.id, harness, input }, attempt.signal);
  const session = await store("the thread's session could not be looked up", begun);
  const { found } = session;
  const reasons = [ready.reason, found.reason].filter((reason) => reason !== undefined);
  attempt.prepared({
    home: ready.home,
    skills: ready.skills,
    waitedMs: Math.round(clock.monotonic() - attempt.begunAt),
    session: found.state,
    ...(found.generation ? { generation: found.generation } : {}),
    ...(reasons.length > 0 ? { reason: reasons.join("; ") } : {}),
  });
  await parts.org.linkRun(threadId, log);
  // Before the answers are taken up, which are good once: a checkout that is not there yet must not cost them.
  const made = makeFolders(input, config, parts.state, harness);
  const folders = await store("the folders of the run could not be made", made);
  const giveUp = async (): Promise<void> => {
    session.stop();
    await removeFolder(folders.runDir, log);
  };
  const orGiveUp = async <T>(work: Promise<T>): Promise<T> => {
    try {
      return await work;
    } catch (error) {
      await giveUp();
      throw error;
    }
  };
  const opening = await orGiveUp(resume(attempt, order, harness, session, parts, log));
  const { specs, traceparent } = order;
  const started = startTools(
    { attempt, input, specs, harness, runDir: folders.runDir, opening, traceparent },
    { ...parts, log },
  );
  const tools = await orGiveUp(store("the relay directory could not be made", started));
  if (!attempt.live) {
    await tools.stop();
    await giveUp();
    return undefined;
  }
  attempt.tools = tools.tools;
  const skills = parts.skills.forRun();
  let process: RunProcess;
  try {
    const document = buildDocument({
      attempt,
      order,
      harness,
      folders,
      found,
      skills,
      appRoot: config.appRoot,
      shim: tools.shim,
      answers: opening.answers,
    });
    process = parts.processes.spawn({
      argv: harness.argv,
      cwd: folders.cwd,
      env: buildEnv({ config, configured, input, attempt, traceparent }),
      stdin: JSON.stringify(document),
      runName: runNameOf(attempt),
      ...(config.agentUser ? { user: config.agentUser } : {}),
    });
  } catch (error) {
    skills?.release();
    await tools.stop();
    await giveUp();
    throw error;
  }
  attempt.state = "running";
  log.info("harness started", { harness: harness.id, pid: process.pid, session: found.state });
  const quota = new LineQuota(clock, log, parts.redactor);
  const forwarder = new FrameForwarder(attempt, {
    clock,
    log,
    metrics: parts.metrics,
    redactor: parts.redactor,
    largeJson: parts.largeJson,
    maxFrameBytes: config.maxFrameBytes,
    runMaxBytes: config.runMaxBytes,
    quota,
    // At once: a daemon that is killed in mid-turn must not forget the conversation.
    onSession: (sessionId) => session.noteSession(sessionId),
    tools: tools.tools,
  });
  session.startCheckpoints();
  const stderrLogged = logStderr(process.stderr, quota);
  return { harness, folders, session, skills, tools, process, forwarder, stderrLogged };
}

/** What answers to an earlier run's questions come to. Throws `stale`. */
async function resume(
  attempt: Attempt,
  order: AttemptOrder,
  harness: Harness,
  session: SessionRun,
  { config }: DispatchParts,
  log: Log,
): Promise<Opening> {
  const { input, specs, resume, traceparent } = order;
  if (!resume) return NOTHING_TO_OPEN;
  const { signal } = attempt;
  const resumed = resumeRun({
    resume,
    runId: attempt.run.id,
    harness,
    session,
    specs,
    claimMs: config.session.ioBudgetMs,
    signal,
    log,
    carryOut: (call, spec) => carryOut(spec, call, resume.suspension.runId, { attempt, input, traceparent }, signal),
  });
  const opening = await store("the suspension could not be claimed", resumed);
  attempt.hasResumed = true;
  return opening;
}

/** Forwards frames until there is an outcome, whoever gives it. */
async function followTurn(attempt: Attempt, turn: Turn, parts: DispatchParts): Promise<void> {
  const { clock, config, log } = parts;
  const checkout = turn.folders.cwd;
  const stopSkills = clock.every(SKILLS_EVERY_MS, () => void parts.skills.checkpoint({ checkout }));
  const stopSummary = clock.every(SUMMARY_EVERY_MS, () =>
    log.info("dispatch progress", { run: attempt.run.id, seq: attempt.lastSeq, ...turn.forwarder.counts }),
  );
  try {
    await watchHarness(attempt, turn.process, turn.forwarder, config, clock);
  } finally {
    stopSummary();
    stopSkills();
    attempt.tools = undefined;
    await turn.tools.stop();
  }
}

/** After the outcome: the tree is ended, then the thread is free for its next run, and what there is is saved. */
async function settleTurn(attempt: Attempt, turn: Turn, parts: DispatchParts, log: Log): Promise<Settled> {
  const { config, clock, shutdown } = parts;
  const report = await stopHarness(attempt, turn.process, config, clock, shutdown, async () => {
    await turn.session.pointerWritten();
    attempt.release();
  });
  if (report.strays > 0) parts.metrics.strayKilled(report.strays);
  if (report.left.length > 0) {
    parts.metrics.processLeft(report.left.length);
    log.warn("processes did not end", { pids: report.left });
  }
  const settled = await save(attempt, turn, parts);
  turn.skills?.release();
  await removeFolder(turn.folders.runDir, log);
  return settled;
}

/** The session and the skills, within what the reason of the end leaves for it. */
async function save(
  attempt: Attempt,
  turn: Turn,
  { config, clock, shutdown, skills }: DispatchParts,
): Promise<Settled> {
  const { ioBudgetMs } = config.session;
  const tooLate = new AbortController();
  const hurry = (limitMs: number, why: AbortSignal): void => {
    const start = (): void => void clock.sleep(limitMs, tooLate.signal).then(() => tooLate.abort());
    if (why.aborted) start();
    else why.addEventListener("abort", start, { once: true });
  };
  hurry(SHUTDOWN_SAVE_MS, shutdown);
  hurry(SUPERSEDED_SAVE_MS, attempt.superseded);
  const checkout = turn.folders.cwd;
  const [settled] = await Promise.all([
    turn.session.save({ deadlineMs: ioBudgetMs, last: shutdown, signal: tooLate.signal }),
    skills.afterRun({ checkout, deadlineMs: ioBudgetMs, signal: tooLate.signal }),
  ]);
  tooLate.abort();
  return settled;
}

async function removeFolder(path: string, log: Log): Promise<void> {
  try {
    await rm(path, { recursive: true, force: true });
  } catch (error) {
    log.warn("run folder not removed", { reason: messageOf(error) });
  }
}

/** A failure of the pod's own disk has a code of its own. */
async function store<T>(what: string, work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    if (error instanceof DaemonError) throw error;
    throw new DaemonError("storage_failed", `${what}: ${errnoOf(error) ?? "error"}`, { cause: error });
  }
}

function outcomeOf(error: unknown): Outcome {
  if (error instanceof DaemonError) {
    return { type: "failed", error: { code: error.code, message: error.message, ...error.details } };
  }
  // What it was is in the log: its text may name paths.
  return { type: "failed", error: { code: "internal", message: "the daemon failed to carry out the run" } };
}
