/** What a shell learns of a command. */
import type { Ending } from "../client/index.ts";

export const EXIT = {
  ok: 0,
  failed: 1,
  usage: 2,
  stopped: 3,
  lost: 4,
  refused: 5,
  waiting: 6,
  interrupted: 130,
  brokenPipe: 141,
} as const;

/** Of `sessions`, where 1 and more are about a store and not about a turn. Of several that apply the first. */
export const SESSIONS_EXIT = {
  ok: 0,
  damaged: 1,
  usage: 2,
  noStore: 3,
  noThread: 4,
  sealed: 6,
  cut: 5,
} as const;

export const SESSIONS_EXIT_HELP = [
  "0    done; verify: all is whole",
  "1    something is damaged, cannot be read or written, or has no whole save to export",
  "2    usage",
  "3    there is no such store",
  "4    the store has no save of this thread",
  "5    verify: whole, but for saves that are cut short: on their way still, or lost with their pod",
  "6    verify: threads are sealed, and were not checked: give SESSION_KEYS, and their ids with --threads",
] as const;

export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** The lines of a help text. */
export const EXIT_HELP = [
  "0    the turn finished",
  "1    the turn failed, or its harness crashed",
  "2    usage",
  "3    cancelled, or superseded by a newer dispatch",
  "4    the pod is gone or cannot be reached",
  "5    the daemon refused",
  "6    the turn waits for a person's answer",
  "130  left by Ctrl-C",
  "141  nobody reads the output any more",
] as const;

export const EXIT_OF_ENDING = {
  finished: EXIT.ok,
  interrupt: EXIT.waiting,
  cancelled: EXIT.stopped,
  superseded: EXIT.stopped,
  gone: EXIT.lost,
  crashed: EXIT.failed,
  failed: EXIT.failed,
  unreachable: EXIT.lost,
  refused: EXIT.refused,
  detached: EXIT.interrupted,
} as const satisfies Record<Ending["type"], ExitCode>;
