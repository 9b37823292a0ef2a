/**
 * One flight, from inside: a job on stdin, one line of JSON on stdout, and out. The process may be lost at any moment,
 * so nothing of it is needed afterwards but what it wrote.
 *
 *     → {"parent":1234,"job":"volume-probe","input":{…}}
 *     ← {"done":…}   or   {"failed":{"code":"EIO","message":"…"}}
 */
import { errnoOf, messageOf } from "../errors.ts";
import type { OrgJobHandler, OrgJobName, OrgJobTable } from "./port.ts";

export interface WorkerProgram {
  /** All of stdin. */
  readonly read: () => string;
  /** Returns when the text is out. */
  readonly write: (text: string) => void;
  readonly jobs: Partial<OrgJobTable>;
  /** Has this process killed when its parent dies. */
  readonly dieWithParent: () => void;
  readonly parent: () => number;
}

export interface WorkerOrder {
  readonly parent: number;
  readonly job: string;
  readonly input: unknown;
}

export type WorkerAnswer =
  | { readonly done: unknown }
  | { readonly failed: { readonly code: string; readonly message: string } };

/** Resolves with the exit code. */
export async function runWorkerProgram({ read, write, jobs, dieWithParent, parent }: WorkerProgram): Promise<number> {
  dieWithParent();
  const order = JSON.parse(read()) as WorkerOrder;
  // A parent that had died before `dieWithParent` is not there to send the signal.
  if (parent() !== order.parent) return 1;
  write(`${JSON.stringify(await carryOut(jobs, order))}\n`);
  return 0;
}

async function carryOut(jobs: Partial<OrgJobTable>, { job, input }: WorkerOrder): Promise<WorkerAnswer> {
  const load = Object.hasOwn(jobs, job) ? jobs[job as OrgJobName] : undefined;
  if (!load) return { failed: { code: "unknown_job", message: `no job ${job}` } };
  try {
    const handler = (await load()) as OrgJobHandler<never>;
    return { done: (await handler(input as never)) ?? null };
  } catch (error) {
    return { failed: { code: errnoOf(error) ?? "internal", message: messageOf(error) } };
  }
}
