/**
 * Tells the names in one folder that something happened to. Only a hint: whoever needs to know looks at a timer too.
 *
 * The folder is given by its open descriptor (`/proc/self/fd/N`), because the watcher resolves its path with calls that
 * block the event loop, and the agent can put a link to a hanging mount at any path of its own. Everything in the folder
 * is ignored, so that nothing of it is opened, followed or walked through, and the raw events of the folder itself are
 * what is used. Somebody who makes events as fast as he can is not watched for a while.
 */
import type { Clock } from "../../clock/port.ts";

/** An ordinary call makes about ten. */
const MAX_EVENTS_PER_SECOND = 5000;
const WATCH_AGAIN_MS = 3000;

export interface FolderWatch {
  stop(): Promise<void>;
}

export interface WatchFolderOptions {
  readonly path: string;
  readonly clock: Clock;
  readonly onName: (name: string) => void;
  /** The watcher reads the folder as a whole when it starts. */
  readonly isTooLarge: () => Promise<boolean>;
  /** Events may have been missed, so that it is time to look. */
  readonly onGap: () => void;
  readonly onError: (error: unknown) => void;
}

export function watchFolder({ path, clock, onName, onGap, onError, isTooLarge }: WatchFolderOptions): FolderWatch {
  let events = 0;
  let stopped = false;
  let watching: Promise<{ close(): Promise<void> } | undefined> | undefined;
  let closing: Promise<void> = Promise.resolve();
  let cancelAgain: (() => void) | undefined;

  function begin(): void {
    events = 0;
    watching = open().catch((error: unknown) => {
      onError(error);
      return undefined;
    });
  }

  async function open(): Promise<{ close(): Promise<void> } | undefined> {
    if (await isTooLarge()) {
      beginAgain();
      return undefined;
    }
    const { watch } = await import("chokidar");
    const watcher = watch(path, { depth: 0, ignored: (candidate) => candidate !== path, atomic: false });
    watcher.on("raw", (_event, name) => {
      events++;
      if (name) onName(name);
      if (events === MAX_EVENTS_PER_SECOND) rest();
    });
    watcher.on("error", onError);
    watcher.on("ready", onGap);
    return watcher;
  }

  function rest(): void {
    close();
    beginAgain();
  }

  function beginAgain(): void {
    if (stopped) return;
    cancelAgain ??= clock.after(WATCH_AGAIN_MS, () => {
      cancelAgain = undefined;
      begin();
    });
  }

  /** The descriptor may be closed only when nothing is watched any more, by whomever that was ended. */
  function close(): void {
    const opened = watching;
    watching = undefined;
    if (opened) closing = closing.then(async () => (await opened)?.close());
  }

  begin();
  const cancelCount = clock.every(1000, () => {
    events = 0;
  });
  return {
    async stop() {
      stopped = true;
      cancelCount();
      cancelAgain?.();
      close();
      await closing;
    },
  };
}
