/** What a test has asked for: requests that wait, fail, or take their time. */
import type { Op } from "./protocol.ts";

export interface Where {
  /** All of them, when left out. */
  readonly ops?: readonly Op[];
  /** A glob over the path below the mount; the mount itself is "". */
  readonly path?: string;
}

export interface Fault extends Where {
  readonly errno: keyof typeof ERRNO;
  /** How many requests pass first, and how many fail then; all, when left out. */
  readonly skip?: number;
  readonly times?: number;
}

export interface Delay extends Where {
  readonly ms: number;
}

export const ERRNO = {
  EPERM: 1,
  ENOENT: 2,
  EIO: 5,
  EACCES: 13,
  EEXIST: 17,
  ENOTDIR: 20,
  EISDIR: 21,
  EINVAL: 22,
  ENOSPC: 28,
  EROFS: 30,
  ENOTEMPTY: 39,
  ENOSYS: 38,
  ENOTCONN: 107,
  ETIMEDOUT: 110,
  ESTALE: 116,
} as const;

/** What the kernel and we need whatever a test wants: they carry no call of anybody. */
const NEVER: ReadonlySet<Op> = new Set(["init", "destroy", "forget", "batchForget", "interrupt"]);

export class Rules {
  #holds: Where[] = [];
  #faults: (Fault & { seen: number })[] = [];
  #delays: Delay[] = [];

  hold(where: Where): void {
    this.#holds.push(where);
  }
  fail(fault: Fault): void {
    this.#faults.push({ ...fault, seen: 0 });
  }
  delay(delay: Delay): void {
    this.#delays.push(delay);
  }
  release(): void {
    this.#holds = [];
  }
  heal(): void {
    this.#faults = [];
    this.#delays = [];
  }

  holds(op: Op, path: string): boolean {
    return this.#holds.some((where) => matches(where, op, path));
  }
  /** The errno to answer with, 0 for none. Counts. */
  faultOf(op: Op, path: string): number {
    for (const fault of this.#faults) {
      if (!matches(fault, op, path)) continue;
      const nth = fault.seen++;
      const from = fault.skip ?? 0;
      if (nth >= from && nth < from + (fault.times ?? Number.POSITIVE_INFINITY)) return ERRNO[fault.errno];
    }
    return 0;
  }
  delayOf(op: Op, path: string): number {
    return Math.max(0, ...this.#delays.filter((delay) => matches(delay, op, path)).map(({ ms }) => ms));
  }
}

export function matches({ ops, path: glob }: Where, op: Op, path: string): boolean {
  if (NEVER.has(op) || (ops && !ops.includes(op))) return false;
  return glob === undefined || new Bun.Glob(glob).match(path);
}
