/**
 * One flight, from inside: a job on stdin, one line of JSON on stdout, and out. The process may be lost at any moment,
 * so nothing of it is needed afterwards but what it wrote.
 *
 *     → {"parent":1234,"job":"volume-probe","input":{…}}
 *     ← {"done":…}   or   {"failed":{"code":"EIO","message":"…"}}
 */
import { errnoOf, messageOf } from "../errors.ts";
import { createPins, type OrgGuard, type Pins } from "./pin-paths.ts";
import type { OrgJobHandler, OrgJobInput, OrgJobName, OrgJobTable } from "./port.ts";

/** The input of each job with its paths on the org volume pinned. */
export type OrgPathTable = {
  readonly [J in OrgJobName]: (input: OrgJobInput<J>, pins: Pins) => Promise<OrgJobInput<J>>;
};

export interface WorkerProgram {
  /** All of stdin. */
  readonly read: () => string;
  /** Returns when the text is out. */
  readonly write: (text: string) => void;
  readonly jobs: Partial<OrgJobTable>;
  readonly paths: OrgPathTable;
  /** Has this process killed when its parent dies. */
  readonly dieWithParent: () => void;
  readonly parent: () => number;
}

export interface WorkerOrder {
  readonly parent: number;
  readonly job: string;
  readonly input: unknown;
  /** Where the agent is another user, and may have its hands on what lies above the volumes. */
  readonly guard?: OrgGuard;
}

export type WorkerAnswer =
  | { readonly done: unknown }
  | { readonly failed: { readonly code: string; readonly message: string } };

/** Resolves with the exit code. */
export async function runWorkerProgram({
  read,
  write,
  jobs,
  paths,
  dieWithParent,
  parent,
}: WorkerProgram): Promise<number> {
  dieWithParent();
  const order = readOrder(read());
  if (!order) {
    write(`${JSON.stringify({ failed: { code: "bad_order", message: "no order on stdin" } })}\n`);
    return 1;
  }
  // A parent that had died before `dieWithParent` is not there to send the signal.
  if (parent() !== order.parent) return 1;
  write(`${JSON.stringify(await carryOut(jobs, paths, order))}\n`);
  return 0;
}

function readOrder(text: string): WorkerOrder | undefined {
  try {
    return JSON.parse(text) as WorkerOrder;
  } catch {
    return undefined; // Started by hand.
  }
}

async function carryOut(
  jobs: Partial<OrgJobTable>,
  paths: OrgPathTable,
  { job, input, guard }: WorkerOrder,
): Promise<WorkerAnswer> {
  const load = Object.hasOwn(jobs, job) ? jobs[job as OrgJobName] : undefined;
  if (!load) return { failed: { code: "unknown_job", message: `no job ${job}` } };
  try {
    const handler = (await load()) as OrgJobHandler<never>;
    const pin = paths[job as OrgJobName] as (input: unknown, pins: Pins) => Promise<unknown>;
    const pinned = guard ? await pin(input, createPins(guard)) : input;
    return { done: (await handler(pinned as never)) ?? null };
  } catch (error) {
    return { failed: { code: errnoOf(error) ?? "internal", message: messageOf(error) } };
  }
}
