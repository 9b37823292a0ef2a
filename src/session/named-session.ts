/**
 * Which session a run's conversation is: the one that it began with, until its harness names another. The thread's pointer
 * follows at once, and keeps the one before until the new one's transcript is there: a harness may name what it never writes.
 */
import { lstat } from "node:fs/promises";
import type { Clock } from "../clock/port.ts";
import { messageOf } from "../errors.ts";
import type { Log } from "../log/port.ts";
import { NEVER_WRITTEN } from "./find-local.ts";
import { findTranscript } from "./find-transcript.ts";
import type { Pointers } from "./pointer.ts";
import type { BeginOrder } from "./port.ts";
import type { SessionOwners } from "./session-owners.ts";

export interface NamedSessionParts {
  readonly order: BeginOrder;
  /** What the run goes on from. */
  readonly foundId: string | undefined;
  readonly clock: Clock;
  readonly log: Log;
  readonly pointers: Pointers;
  readonly owners: SessionOwners;
  /** The session that the pod saved last for the thread: it was written, whatever became of it. */
  readonly saved: () => Promise<string | undefined>;
  /** Aborts when the thread's next run begins: the pointer is that one's from then on. */
  readonly passed: AbortSignal;
}

export interface NamedSession {
  /** Undefined while there is none. */
  id(): string | undefined;
  /** The harness says this id. */
  name(id: string): void;
  /** Resolves when the pointer of the newest one is written, or cannot be. */
  pointerWritten(): Promise<void>;
  /** The path of its transcript, if there is one. */
  transcript(): Promise<string | undefined>;
  /** False: it is another thread's by now. */
  isStillOurs(id: string): Promise<boolean>;
  /** At the end of the turn: one that was named and never written is none. Why it is the one before, then. */
  keepWritten(): Promise<string | undefined>;
}

const CLOCK_MARGIN_MS = 1000;

export function createNamedSession(parts: NamedSessionParts): NamedSession {
  const { foundId, clock, log, pointers, owners, saved, passed } = parts;
  const { harness, threadId } = parts.order;
  const { sessionFiles } = harness.capabilities;
  const begunAt = clock.now();
  let current = foundId;
  /** The newest one before it that has a transcript. */
  let earlier = foundId;
  let noted: string | undefined;
  /** Sessions that the harness named and that are none of this thread's. */
  const foreign = new Set<string>();
  let pointer: Promise<void> = Promise.resolve();

  const transcriptOf = async (id: string | undefined): Promise<string | undefined> =>
    sessionFiles && id ? findTranscript(harness.configDir, sessionFiles, id) : undefined;

  /** A transcript that nobody has and that was there before the run is none that its harness wrote. */
  const isNew = async (id: string): Promise<boolean> => {
    const path = await transcriptOf(id);
    return !path || id === foundId || !(await isOlder(path, begunAt));
  };

  async function writePointer(id: string, before: string | undefined): Promise<void> {
    try {
      if (!sessionFiles || (await owners.claim(id, threadId, "named", () => isNew(id)))) {
        if (before !== undefined && !foreign.has(before) && (await transcriptOf(before))) earlier = before;
        const other = sessionFiles && earlier !== id ? earlier : undefined;
        const kept = other === undefined ? {} : { earlier: other };
        await pointers.write({ threadId, sessionId: id, harness: harness.id, ...kept });
        return;
      }
      foreign.add(id);
      log.warn("session belongs to another thread", { session: id });
    } catch (error) {
      log.error("session pointer not written", { reason: messageOf(error) });
    }
  }

  return {
    id: () => current,
    name(id) {
      if (id === noted) return;
      noted = id;
      const before = current;
      current = id;
      pointer = pointer.then(() => writePointer(id, before));
    },
    pointerWritten: () => pointer,
    transcript: () => transcriptOf(current),
    async isStillOurs(id) {
      if (foreign.has(id)) return false;
      try {
        // To have named it was not enough.
        if ((await transcriptOf(id)) === undefined || (await owners.claim(id, threadId, "held"))) return true;
        foreign.add(id);
        return false;
      } catch (error) {
        log.error("session pointer not written", { reason: messageOf(error) });
        return true;
      }
    },
    async keepWritten() {
      await pointer;
      const named = current;
      if (!sessionFiles || earlier === undefined || named === undefined || named === earlier) return undefined;
      try {
        if (foreign.has(named) || (await transcriptOf(named)) !== undefined) return undefined;
        if ((await saved()) === named) return undefined;
        current = earlier;
        // The thread's next run has found the earlier one by itself, and the pointer may name its own by now.
        if (!passed.aborted) await pointers.write({ threadId, sessionId: earlier, harness: harness.id });
      } catch (error) {
        log.error("session pointer not written", { reason: messageOf(error) });
        if (current === named) return undefined;
      }
      log.warn("session never written", { session: named, kept: earlier });
      return NEVER_WRITTEN;
    },
  };
}

/** By the clock of the pod's own disk, which is read more coarsely than the daemon's. */
async function isOlder(path: string, begunAt: number): Promise<boolean> {
  const { birthtimeMs } = await lstat(path);
  return birthtimeMs > 0 && birthtimeMs < begunAt - CLOCK_MARGIN_MS;
}
