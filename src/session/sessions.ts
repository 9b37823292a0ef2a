/** The daemon's side of sessions: see port.ts. */
import { lstat, mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import type { Clock } from "../clock/port.ts";
import type { Config } from "../config.ts";
import { fileNameOf } from "../disk.ts";
import { messageOf } from "../errors.ts";
import type { Log } from "../log/port.ts";
import type { Metrics } from "../metrics/port.ts";
import type { OrgFs } from "../orgfs/port.ts";
import { randomHex } from "../random-hex.ts";
import { type Start, stateOfRun } from "./begin-run.ts";
import type { LocalSession } from "./choose-save.ts";
import { diskStateFile } from "./disk-state-file.ts";
import { describeLocal, findLocal, type LocalFinding } from "./find-local.ts";
import { findTranscript } from "./find-transcript.ts";
import type {} from "./jobs.ts";
import { placeSession } from "./place-session.ts";
import type { Pointers } from "./pointer.ts";
import type { BeginOrder, FoundSession, SessionRun, Sessions } from "./port.ts";
import type { RestoreReport } from "./restore-session.ts";
import { isSaveName, type SaveName } from "./save-name.ts";
import { createSessionOwners } from "./session-owners.ts";
import { createSessionRun, NO_FILES, type RunStore } from "./session-run.ts";
import { NO_STATE, type ThreadState } from "./thread-state.ts";
import { createUsedSuspensions } from "./used-suspensions.ts";
import { watchStuck } from "./watch-stuck.ts";

export interface SessionsParts {
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly pointers: Pointers;
  /** The daemon's own folder of threads, on the pod's disk. */
  readonly folder: string;
  readonly config: Pick<Config, "agentUser" | "org" | "session">;
  /** Null: no org volume is configured. */
  readonly org: SessionVolume | null;
}

export interface SessionVolume {
  readonly orgFs: OrgFs;
  /** The volume that holds sessions, and where it is mounted. */
  readonly volume: string;
  readonly mountPath: string;
  readonly mounted: () => boolean;
}

/** Of files in a line of the log. */
const MAX_NAMED = 100;
const STUCK = "the org volume has not answered the thread's last run yet, and this one not in time";
const STAGING = "restore-";
const STORE = "dispatchd-sessions";
/** Of the budget of a restore, what may be spent on waiting for a save that is still on its way. */
const WAIT_SHARE = 2 / 3;

/** What a run goes on from, and the state of its thread; the state is written when the files are in their place. */
interface Begun {
  readonly found: FoundSession;
  readonly state: ThreadState;
  /** The session that the thread's pointer is to name; none: it has none. */
  readonly pointer?: string;
}

export function createSessions(parts: SessionsParts): Sessions {
  const { clock, metrics, pointers, folder, config, org } = parts;
  const owners = createSessionOwners(folder);
  const used = createUsedSuspensions(folder, clock);
  const swept = sweepStaging(folder, parts.log);
  const stopped = new AbortController();
  /** Of each thread, aborts when its next run begins: that one saves what is left, and waits for no other. */
  const newest = new Map<string, AbortController>();
  let writeBackUntil = 0;
  if (org === null) parts.log.info("sessions live as long as the pod", { reason: "no org volume" });
  else if (config.session.keys.length === 0) parts.log.info("sessions on the org volume are not sealed");

  async function begin(order: BeginOrder, signal: AbortSignal): Promise<SessionRun> {
    const run = await beginRun(order, signal);
    metrics.sessionFound(run.found.state);
    return run;
  }

  async function beginRun(order: BeginOrder, signal: AbortSignal): Promise<SessionRun> {
    const { threadId, harness } = order;
    const log = parts.log.child({ run: order.runId, thread: threadId });
    const { checkpointMs, ioBudgetMs } = config.session;
    newest.get(threadId)?.abort();
    const passed = new AbortController();
    newest.set(threadId, passed);
    const again = { retryEveryMs: config.org.retryEveryMs, stop: AbortSignal.any([stopped.signal, passed.signal]) };
    const common = { order, clock, log, pointers, owners, used, checkpointMs, ioBudgetMs, again };
    const { resume, sessionFiles } = harness.capabilities;
    const nowhere = org === null ? "no org volume" : NO_FILES;
    if (!resume) return createSessionRun({ ...common, sizeBefore: 0, found: { state: "fresh" }, store: nowhere });
    const statePath = join(folder, `${fileNameOf(threadId)}.saves.json`);
    const stateFile = diskStateFile(statePath);
    const state = (await stateFile.read()) ?? NO_STATE;
    const local = await findLocal(order, pointers, owners, state.session?.id);
    if (!org || !sessionFiles) {
      return createSessionRun({ ...common, sizeBefore: 0, found: local.found, store: nowhere });
    }

    const place = { store: join(org.mountPath, STORE), threadId, keys: keysOf(config) };
    const store: RunStore = {
      orgFs: org.orgFs,
      mounted: org.mounted,
      volume: org.volume,
      lane: `session ${fileNameOf(threadId)}`,
      place,
      run: randomHex(8),
      statePath,
      state: stateFile,
      onSaved: (bytes) => {
        metrics.sessionMoved("saved", bytes);
        writeBackUntil = clock.monotonic() + config.org.writeBackMs;
      },
    };
    const localSession = local.id === undefined ? undefined : await describeLocal(harness, local.id, state);
    await swept;
    const staging = join(folder, `${STAGING}${randomHex(8)}`);
    await mkdir(staging, { mode: 0o700 });
    const startedAt = clock.monotonic();
    try {
      const asked = await askStore(order, store, localSession, staging, signal);
      await used.add(threadId, [...(asked.report?.used ?? []), ...(state.used ?? [])]);
      // The thread's last save may have come to its end meanwhile.
      const now = (await stateFile.read()) ?? NO_STATE;
      const begun = await take(order, asked, local, now, store.run, staging, log);
      await stateFile.begin(begun.state);
      if (begun.pointer !== undefined) {
        await pointers.write({ threadId, sessionId: begun.pointer, harness: harness.id });
      }
      const elapsedMs = Math.round(clock.monotonic() - startedAt);
      const { report } = asked;
      const bytes = report?.restored?.bytes ?? 0;
      if (bytes > 0) metrics.sessionMoved("restored", bytes);
      const facts = { ...begun.found, bytes, elapsedMs };
      if (report && report.rejected.length > 0) log.warn("saves not taken", { saves: report.rejected });
      if (report?.restored && report.restored.leftOut.length > 0) {
        log.warn("session files left out", { files: report.restored.leftOut });
      }
      if (report?.unsealed && begun.found.state === "restored") log.warn("session not sealed", facts);
      else if (begun.found.state === "stale-session" || begun.found.reason) log.warn("session not whole", facts);
      else if (begun.found.state === "restored") log.info("session restored", facts);
      else log.info("session found", facts);
      const path = begun.pointer && (await findTranscript(harness.configDir, sessionFiles, begun.pointer));
      const sizeBefore = path ? (await lstat(path)).size : 0;
      return createSessionRun({ ...common, sizeBefore, found: begun.found, store });
    } finally {
      await rm(staging, { recursive: true, force: true }).catch((error) =>
        log.warn("staging folder not removed", { reason: messageOf(error) }),
      );
    }
  }

  async function askStore(
    { harness, input }: BeginOrder,
    store: RunStore,
    local: LocalSession | undefined,
    staging: string,
    signal: AbortSignal,
  ): Promise<{ report?: RestoreReport; trouble?: string }> {
    const { sessionFiles } = harness.capabilities;
    if (!org?.mounted() || !sessionFiles) return { trouble: "the org volume is not mounted" };
    const { ioBudgetMs: deadlineMs, olderStore } = config.session;
    // Without a session of its own the run has nothing else to go on with.
    using watch = local && watchStuck(clock, store);
    const hint = hintOf(input.sessionGeneration);
    const older = input.harness?.sessionId ?? undefined;
    const job = {
      ...store.place,
      staging,
      ...(olderStore === null
        ? {}
        : { older: { store: join(org.mountPath, olderStore), ...(older === undefined ? {} : { session: older }) } }),
      order: {
        ...(local ? { local } : {}),
        ...(hint ? { hint } : {}),
        harness: harness.id,
        sessionFiles,
        waitMs: Math.floor(deadlineMs * WAIT_SHARE),
      },
    };
    const until = watch ? AbortSignal.any([signal, watch.signal]) : signal;
    const options = { volume: store.volume, lane: store.lane, deadlineMs, signal: until };
    const result = await store.orgFs.fly("session-restore", job, options);
    switch (result.type) {
      case "done":
        return { report: result.output };
      case "failed":
        return { trouble: `the org volume could not be read: ${result.code}` };
      case "overdue":
        return { trouble: "the org volume did not answer in time" };
      case "refused":
        return { trouble: "the org volume hangs" };
      case "aborted":
        if (signal.aborted) return { trouble: "the run was stopped" };
        return { trouble: STUCK };
    }
  }

  async function take(
    order: BeginOrder,
    { report, trouble }: { report?: RestoreReport; trouble?: string },
    local: LocalFinding,
    state: ThreadState,
    run: string,
    staging: string,
    log: Log,
  ): Promise<Begun> {
    const fence = fenceOf(order.input.fence);
    const hint = hintOf(order.input.sessionGeneration);
    const toBegin = { id: run, ...(fence === undefined ? {} : { fence }), ...(hint ? { hint } : {}) };
    const goOn = (report: RestoreReport | undefined, why: string | undefined): Begun => {
      const source = local.id === undefined ? ("none" as const) : ("local" as const);
      const next = stateOfRun(state, toBegin, { source, ...(report ? { report } : {}) });
      const isBlind = next.run?.marked === true;
      const generation = next.last && { generation: next.last.name };
      const reason = why ?? local.found.reason;
      const sayWhy = reason === undefined ? {} : { reason };
      if (local.id === undefined) return { state: next, found: { state: "fresh", ...sayWhy } };
      const found = { id: local.id, state: isBlind ? "stale-session" : "local", ...generation, ...sayWhy } as const;
      return { state: next, found, pointer: local.id };
    };
    if (!report) return goOn(undefined, trouble);
    const { choice, restored } = report;
    if (choice.source !== "stored" || !restored) return goOn(report, choice.reason);
    if (restored.files.length === 0) {
      const next = stateOfRun(state, toBegin, { source: "stored", report, files: [] });
      return { state: next, found: { state: "fresh", reason: "the thread's session belongs to another harness" } };
    }
    const placed = await place(order, restored.session, restored.files, staging, log);
    // Without its files it is as if it could not be read.
    if (typeof placed === "string") return goOn({ ...report, choice: { source: "none", blind: true } }, placed);
    const start: Start = { source: "stored", report, files: placed };
    const generation = choice.pick && { generation: choice.pick.name };
    const sayWhy = choice.reason === undefined ? {} : { reason: choice.reason };
    const how = choice.blind ? "stale-session" : "restored";
    return {
      state: stateOfRun(state, toBegin, start),
      found: { id: restored.session, state: how, ...generation, ...sayWhy },
      pointer: restored.session,
    };
  }

  /** The files in their place; a text says why they are not. */
  async function place(
    { threadId, harness }: BeginOrder,
    sessionId: string,
    files: NonNullable<RestoreReport["restored"]>["files"],
    staging: string,
    log: Log,
  ) {
    const { sessionFiles } = harness.capabilities;
    if (!sessionFiles) return "the harness keeps no session files";
    if (!(await owners.claim(sessionId, threadId, "held")))
      return "the stored session belongs to another thread of this pod";
    const before = await pointers.read(threadId);
    await pointers.remove(threadId);
    try {
      const { configDir } = harness;
      const owner = config.agentUser;
      const placed = await placeSession({ configDir, sessionFiles, sessionId, files, staging, owner });
      if (placed.leftOut.length > 0) log.warn("session files left out", { files: placed.leftOut.slice(0, MAX_NAMED) });
      return placed.files;
    } catch (error) {
      if (before) await pointers.write(before);
      log.error("session not put in place", { reason: messageOf(error) });
      return "the stored session could not be put on this pod";
    }
  }

  return { begin, writeBackUntil: () => writeBackUntil, stop: () => stopped.abort() };
}

/** What an earlier daemon was restoring when it was killed. */
async function sweepStaging(folder: string, log: Log): Promise<void> {
  try {
    for (const name of await readdir(folder)) {
      if (name.startsWith(STAGING)) await rm(join(folder, name), { recursive: true, force: true });
    }
  } catch (error) {
    log.warn("staging folder not removed", { reason: messageOf(error) });
  }
}

function keysOf({ session }: Pick<Config, "session">): string[] {
  return session.keys.map(({ key }) => Buffer.from(key.reveal(), "base64url").toString("base64"));
}

function fenceOf(fence: unknown): number | undefined {
  return typeof fence === "number" && Number.isSafeInteger(fence) && fence >= 0 ? fence : undefined;
}

function hintOf(generation: unknown): SaveName | undefined {
  return typeof generation === "string" && isSaveName(generation) ? generation : undefined;
}
