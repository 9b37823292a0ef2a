/**
 * What the sidecar says is mounted: `{"mounts":[{"volume","mountPath"}]}` in a file on a local volume. It alone is
 * believed: a mount point is a folder like any other when the mount failed, and what is written there is lost.
 *
 * The file is watched, and read again every few seconds: an event can be missed, and the folder may come later than
 * the daemon. Without the file nothing is mounted. One that is no such JSON is half written, or none of ours: what was
 * known stays.
 */
import { basename, dirname } from "node:path";
import type { Clock } from "../clock/port.ts";
import { parseRecord, readIfThere } from "../disk.ts";
import { messageOf } from "../errors.ts";
import type { Log } from "../log/port.ts";
import { isPathSegment } from "./mount-paths.ts";

const READ_AGAIN_MS = 5000;

export interface MountStatus {
  mounted(volume: string): boolean;
  volumes(): readonly string[];
  /** Resolves when the file was looked at for the first time. */
  readonly known: Promise<void>;
  /** Resolves at the next change of what is mounted. */
  changed(): Promise<void>;
  stop(): void;
}

export interface MountStatusOptions {
  readonly path: string;
  readonly clock: Clock;
  readonly log: Log;
}

export function watchMountStatus({ path, clock, log }: MountStatusOptions): MountStatus {
  let volumes: readonly string[] = [];
  let lastProblem: string | undefined;
  let change = Promise.withResolvers<void>();
  let reading: Promise<void> | undefined;
  let again = false;
  let stopped = false;

  /** One read at a time; what comes up meanwhile is one more read. */
  function look(): Promise<void> {
    if (reading) again = true;
    reading ??= read().finally(() => {
      reading = undefined;
      if (!again || stopped) return;
      again = false;
      void look();
    });
    return reading;
  }

  async function read(): Promise<void> {
    let found: readonly string[] | undefined;
    let problem: string | undefined;
    try {
      const text = await readIfThere(path);
      found = text === undefined ? [] : volumesOf(text);
      if (!found) problem = "it is not of the form that a sidecar writes";
    } catch (error) {
      problem = messageOf(error);
    }
    if (problem !== undefined && problem !== lastProblem) log.warn("mount status unreadable", { reason: problem });
    lastProblem = problem;
    if (!found || stopped || found.join("/") === volumes.join("/")) return;
    volumes = found;
    log.info("mount status", { volumes });
    const { resolve } = change;
    change = Promise.withResolvers<void>();
    resolve();
  }

  const watcher = watchFile(path, () => void look()).catch((error: unknown) => {
    log.warn("mount status not watched", { reason: messageOf(error) });
    return undefined;
  });
  const cancel = clock.every(READ_AGAIN_MS, () => void look());
  return {
    mounted: (volume) => volumes.includes(volume),
    volumes: () => volumes,
    known: look(),
    changed: () => change.promise,
    stop() {
      stopped = true;
      cancel();
      watcher.then((started) => started?.close());
    },
  };
}

/** The volumes in alphabetical order; undefined for what is no status. */
function volumesOf(text: string): readonly string[] | undefined {
  const mounts = parseRecord(text)?.mounts;
  if (!Array.isArray(mounts)) return undefined;
  const names = mounts.map((mount: unknown) => (mount as { volume?: unknown } | null)?.volume);
  return names.every((name) => typeof name === "string" && isPathSegment(name))
    ? [...new Set(names as string[])].sort()
    : undefined;
}

/** Watches the folder, of which it asks for this file alone: a sidecar replaces the file, and may make it later. */
async function watchFile(path: string, onEvent: () => void): Promise<{ close(): Promise<void> }> {
  const { watch } = await import("chokidar");
  const folder = dirname(path);
  const others = (candidate: string): boolean => candidate !== folder && basename(candidate) !== basename(path);
  // What it finds at its start is an event too: it may have come between our first read and that.
  const watcher = watch(folder, { depth: 0, ignored: others, ignoreInitial: false });
  watcher.on("all", onEvent);
  watcher.on("error", () => {}); // The timer reads it all the same.
  return watcher;
}
