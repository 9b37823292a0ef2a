/**
 * From names that turn up in a relay directory to requests. The agent decides how many there are and what they hold, so
 * they are read one after the other, with pauses that grow with what was read, and each that is no request once.
 *
 * A file that is no JSON may be one that is being written: it is read again, for 2 s after it was first seen.
 */
import type { Clock } from "../../clock/port.ts";
import type { FileFault, RelayFolder } from "./folder.ts";
import { MAX_REQUEST_BYTES, requestFile } from "./names.ts";
import { parseRequest, type RequestContent } from "./request-file.ts";

const UNFINISHED_MS = 2000;
const READ_AGAIN_MS = 100;
/** Names that wait to be read. What is left out is found again by whoever lists the directory. */
const MAX_WAITING = 8192;
/** Names that are known to need no look, the newest of them. */
const MAX_REMEMBERED = 50_000;
/** After so much a pause: parsing 1 MiB takes 5 ms, which so is an eighth of the time at most. */
const BYTES_PER_PAUSE = 1024 * 1024;
const BYTES_PER_FILE = 4 * 1024;
const PAUSE_MS = 35;

export type RequestFault = FileFault | "no_json" | "misshapen";

export interface RequestReader {
  /** There may be a request of this name. */
  note(name: string): void;
  /** Nothing of this name is read any more. */
  forget(name: string): void;
  stop(): Promise<void>;
}

export interface RequestReaderOptions {
  readonly folder: RelayFolder;
  readonly clock: Clock;
  /** Can another one be taken now? */
  readonly hasRoom: () => boolean;
  /** Once for a name. */
  readonly onRequest: (name: string, content: RequestContent) => Promise<void>;
  /** Once for a name. */
  readonly onFault: (name: string, why: RequestFault) => void;
}

export function readRequests({ folder, clock, hasRoom, onRequest, onFault }: RequestReaderOptions): RequestReader {
  const settled = new Set<string>();
  /** Since when. */
  const unfinished = new Map<string, number>();
  const queue = new Set<string>();
  const stopping = new AbortController();
  let working: Promise<void> | undefined;
  let cancelAgain: (() => void) | undefined;

  function note(name: string): void {
    if (settled.has(name) || queue.size >= MAX_WAITING || stopping.signal.aborted) return;
    // One that is being written makes an event with each write.
    if (unfinished.has(name)) {
      readAgainSoon();
    } else {
      queue.add(name);
      start();
    }
  }

  function start(): void {
    working ??= work().finally(() => {
      working = undefined;
      if (queue.size > 0 && !stopping.signal.aborted) start();
    });
  }

  function forget(name: string): void {
    settled.add(name);
    unfinished.delete(name);
    const [oldest] = settled;
    if (settled.size > MAX_REMEMBERED && oldest !== undefined) settled.delete(oldest);
  }

  function readAgainSoon(): void {
    cancelAgain ??= clock.after(READ_AGAIN_MS, () => {
      cancelAgain = undefined;
      for (const name of unfinished.keys()) queue.add(name);
      start();
    });
  }

  async function work(): Promise<void> {
    let bytes = 0;
    for (const name of queue) {
      if (stopping.signal.aborted) return;
      queue.delete(name);
      bytes += BYTES_PER_FILE + (await look(name));
      if (bytes < BYTES_PER_PAUSE) continue;
      bytes = 0;
      await clock.sleep(PAUSE_MS, stopping.signal);
    }
  }

  /** Resolves with how much was read. */
  async function look(name: string): Promise<number> {
    if (settled.has(name) || !hasRoom()) return 0;
    const read = await folder.read(requestFile(name), MAX_REQUEST_BYTES);
    if (read.type === "absent") {
      unfinished.delete(name);
      return 0;
    }
    if (read.type === "fault") {
      refuse(name, read.why);
      return 0;
    }
    const content = parseRequest(read.text);
    if (content === "misshapen") refuse(name, "misshapen");
    else if (content === "unfinished") waitForRest(name);
    else {
      forget(name);
      await onRequest(name, content);
    }
    return read.text.length;
  }

  function waitForRest(name: string): void {
    const since = unfinished.get(name) ?? clock.monotonic();
    if (clock.monotonic() - since >= UNFINISHED_MS) {
      refuse(name, "no_json");
    } else {
      unfinished.set(name, since);
      readAgainSoon();
    }
  }

  function refuse(name: string, why: RequestFault): void {
    forget(name);
    onFault(name, why);
  }

  return {
    note,
    forget,
    async stop() {
      stopping.abort();
      cancelAgain?.();
      await working;
    },
  };
}
