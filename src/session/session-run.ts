/** The rest of a run's session, once it has begun: its checkpoints, its claims, its saves. */
import { constants } from "node:fs";
import { lstat, open } from "node:fs/promises";
import type { Clock } from "../clock/port.ts";
import { messageOf } from "../errors.ts";
import type { Log } from "../log/port.ts";
import type { OrgFs } from "../orgfs/port.ts";
import { checkpoint } from "./checkpoints.ts";
import { claimSuspension, type StoredClaim } from "./claim-suspension.ts";
import type {} from "./jobs.ts";
import { createNamedSession } from "./named-session.ts";
import type { Pointers } from "./pointer.ts";
import type { BeginOrder, FoundSession, SessionRun } from "./port.ts";
import type { SaveReport } from "./save-session.ts";
import type { SessionOwners } from "./session-owners.ts";
import { newestOf, notSaved, type Saved, settleSave } from "./settle-save.ts";
import type { StorePlace } from "./store-place.ts";
import { mergeUses, type SuspensionUse } from "./suspension-uses.ts";
import type { StateFile } from "./thread-state.ts";
import type { UsedSuspensions } from "./used-suspensions.ts";
import { needleOf } from "./user-text.ts";
import { watchStuck } from "./watch-stuck.ts";

export interface SessionRunParts {
  readonly order: BeginOrder;
  readonly found: FoundSession;
  /** Bytes of its main transcript. */
  readonly sizeBefore: number;
  readonly clock: Clock;
  readonly log: Log;
  readonly pointers: Pointers;
  readonly owners: SessionOwners;
  readonly used: UsedSuspensions;
  readonly checkpointMs: number;
  readonly ioBudgetMs: number;
  /** How a run whose last save failed is saved afterwards. */
  readonly again: { readonly retryEveryMs: number; readonly stop: AbortSignal };
  /** A text says why there is nowhere to save to. */
  readonly store: RunStore | string;
}

/** Where the run saves to. */
export interface RunStore {
  readonly orgFs: OrgFs;
  readonly mounted: () => boolean;
  readonly volume: string;
  readonly lane: string;
  readonly place: StorePlace;
  /** The run, as `SavingRun.id`. */
  readonly run: string;
  readonly statePath: string;
  readonly state: StateFile;
  /** The mount took so many bytes; 0 when the flight that wrote them was lost. */
  readonly onSaved: (bytes: number) => void;
}

/** Of the transcript, for the user's message: what is longer is not looked through at every look. */
const LOOK_BYTES = 1 << 20;

/** Whether what hangs was answered. */
const LOOK_AGAIN_MS = 250;

/** Of files in a line of the log. */
const MAX_NAMED = 100;

export const NO_FILES = "the harness keeps no session files";

/** Of the time for the last save, what a checkpoint may take that is under way. */
const CHECKPOINT_SHARE = 1 / 3;

interface SaveCircumstances {
  readonly signal?: AbortSignal | undefined;
  /** Ends it because an earlier flight hangs. */
  readonly stuck?: AbortSignal | undefined;
  /** A suspension that is to be used. */
  readonly claim?: SuspensionUse;
}

export function createSessionRun(parts: SessionRunParts): SessionRun {
  const { order, found, sizeBefore, clock, log, used, store } = parts;
  const { harness, threadId } = order;
  const { resume, sessionFiles } = harness.capabilities;
  const stopped = new AbortController();
  /** Ends a checkpoint that is under way. */
  const hurried = new AbortController();
  const session = createNamedSession({
    ...parts,
    foundId: found.id,
    saved: async () => (typeof store === "string" ? undefined : (await store.state.read())?.session?.id),
    passed: parts.again.stop,
  });
  let checkpoints: Promise<void> = Promise.resolve();

  async function trySave(deadlineMs: number, { signal, stuck, claim }: SaveCircumstances = {}): Promise<Saved> {
    if (typeof store === "string") return notSaved(store, "ends");
    if (!sessionFiles) return notSaved(NO_FILES, "ends");
    await session.pointerWritten();
    const id = session.id();
    if (id === undefined) return notSaved("the turn has no session", "goes on");
    if (!(await session.isStillOurs(id))) return notSaved("the session belongs to another thread of this pod", "ends");
    if (!store.mounted()) return notSaved("the org volume is not mounted", "later");
    const startedAt = clock.monotonic();
    const uses = await knownUses();
    const input = {
      ...store.place,
      order: {
        session: id,
        harness: harness.id,
        run: store.run,
        used: claim ? mergeUses(uses, [claim]) : uses,
        ...(claim ? { claim } : {}),
      },
      configDir: harness.configDir,
      sessionFiles,
      state: store.statePath,
    };
    const options = {
      volume: store.volume,
      lane: store.lane,
      deadlineMs,
      // Every other one is known without asking the volume.
      proves: ({ type }: SaveReport) => type === "saved" || type === "unchanged" || type === "used",
      signal: AbortSignal.any([...(signal ? [signal] : []), ...(stuck ? [stuck] : [])]),
    };
    const before = await newestOf(store);
    const flown = await store.orgFs.fly("session-save", input, options);
    const elapsedMs = Math.round(clock.monotonic() - startedAt);
    const isOverdue = flown.type === "aborted" && stuck?.aborted === true && !signal?.aborted;
    const result = isOverdue ? ({ type: "overdue", afterMs: elapsedMs } as const) : flown;
    const saved = await settleSave(result, before, store);
    const facts = { ...saved.settled, elapsedMs };
    // Nothing was to be saved then.
    if (saved.usedBy !== undefined) return saved;
    const leftOut = result.type === "done" && result.output.type === "saved" ? (result.output.leftOut ?? []) : [];
    if (leftOut.length > 0) log.warn("session files left out", { files: leftOut.slice(0, MAX_NAMED) });
    if (!saved.settled.saved) log.warn("session not saved", facts);
    else if (saved.settled.bytes !== 0) {
      store.onSaved(saved.settled.bytes ?? 0);
      log.info("session saved", facts);
    }
    return saved;
  }

  /** A save without them is better than none: the pod keeps them itself. */
  async function knownUses(): Promise<readonly SuspensionUse[]> {
    try {
      return await used.read(threadId);
    } catch (error) {
      log.error("used suspensions not read", { reason: messageOf(error) });
      return [];
    }
  }

  async function storeClaim(claim: SuspensionUse, deadlineMs: number, signal?: AbortSignal): Promise<StoredClaim> {
    using watch = typeof store === "string" ? undefined : watchStuck(clock, store);
    const { settled, usedBy } = await trySave(deadlineMs, { signal, stuck: watch?.signal, claim });
    if (usedBy !== undefined) return { type: "used", by: usedBy };
    return settled.saved ? { type: "stored" } : { type: "not-stored", reason: settled.reason ?? "it was not saved" };
  }

  /** While the pod lives: until it is saved, or the thread has its next run. */
  async function saveAgain(): Promise<void> {
    const { stop } = parts.again;
    let next: Saved["next"] = "later";
    while (next === "later") {
      await pause();
      if (stop.aborted) return;
      ({ next } = await trySave(parts.ioBudgetMs, { signal: stop }));
    }
  }

  /** Until the next try; what hung and was answered ends it, for the pod may have no time left. */
  async function pause(): Promise<void> {
    const { retryEveryMs, stop } = parts.again;
    const until = clock.monotonic() + retryEveryMs;
    let wasStuck = false;
    for (let left = retryEveryMs; left > 0 && !stop.aborted; left = until - clock.monotonic()) {
      await clock.sleep(Math.min(left, LOOK_AGAIN_MS), stop);
      const isStuck = typeof store !== "string" && store.orgFs.isStuck(store.lane);
      if (wasStuck && !isStuck) return;
      wasStuck = isStuck;
    }
  }

  return {
    found,
    noteSession(id) {
      if (resume) session.name(id);
    },
    pointerWritten: () => session.pointerWritten(),
    async claimSuspension(id, runId, { exp, deadlineMs, signal }) {
      const use = { id, run: runId, exp };
      const result = await claimSuspension(threadId, use, used, () => storeClaim(use, deadlineMs, signal));
      if (result.type === "used") log.warn("suspension refused", { suspension: id, usedBy: result.by });
      else log.info("suspension claimed", { suspension: id, ...result });
      return result;
    },
    startCheckpoints() {
      if (typeof store === "string" || !sessionFiles) return;
      const needle = needleOf(order.input.userMessage);
      const size = async (): Promise<number> => {
        const path = await session.transcript();
        return path === undefined ? 0 : (await lstat(path)).size;
      };
      // Another id's transcript is new as a whole.
      const before = (): number => (session.id() === found.id ? sizeBefore : 0);
      const holdsMessage = async (): Promise<boolean> => {
        const path = await session.transcript();
        return path !== undefined && needle !== undefined && (await newText(path, before())).includes(needle);
      };
      const save = async (): Promise<boolean> =>
        (await trySave(parts.ioBudgetMs, { signal: hurried.signal })).next !== "ends";
      const looks = { clock, everyMs: parts.checkpointMs, size, sizeBefore: before, holdsMessage, save };
      checkpoints = checkpoint(looks, stopped.signal).catch((error) =>
        log.error("checkpoints ended", { reason: messageOf(error) }),
      );
    },
    async save({ deadlineMs, last, signal }) {
      const startedAt = clock.monotonic();
      using watch = typeof store === "string" ? undefined : watchStuck(clock, store, last);
      const stuck = watch?.signal;
      stopped.abort();
      // One that is under way has most of the work behind it, unless the volume hangs.
      const waiting = new AbortController();
      const until = AbortSignal.any([waiting.signal, ...(signal ? [signal] : []), ...(stuck ? [stuck] : [])]);
      void clock.sleep(deadlineMs * CHECKPOINT_SHARE, until).then(() => hurried.abort());
      await checkpoints;
      waiting.abort();
      const why = await session.keepWritten();
      const left = Math.max(1, deadlineMs - (clock.monotonic() - startedAt));
      const saved = await trySave(left, { signal, stuck });
      if (saved.next === "later") void saveAgain();
      return why === undefined ? saved.settled : { ...saved.settled, reason: reasonWith(why, saved.settled.reason) };
    },
    stop() {
      stopped.abort();
      hurried.abort();
    },
  };
}

function reasonWith(why: string, reason: string | undefined): string {
  return reason === undefined ? why : `${reason}; ${why}`;
}

/** What came after so many bytes; of a file that has become shorter, all of it is new. */
async function newText(path: string, bytesBefore: number): Promise<string> {
  // The agent may put a FIFO there in this very moment.
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const { size } = await file.stat();
    const from = size < bytesBefore ? 0 : bytesBefore;
    const bytes = Buffer.alloc(Math.max(0, Math.min(size - from, LOOK_BYTES)));
    const { bytesRead } = await file.read(bytes, 0, bytes.length, from);
    return bytes.subarray(0, bytesRead).toString("utf8");
  } finally {
    await file.close();
  }
}
