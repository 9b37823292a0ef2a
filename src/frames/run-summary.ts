import type { Outcome, RunError, Settled } from "./frame.ts";

/** Where an attempt is. It never goes back. */
export type RunState = "preparing" | "running" | "settling" | "ended";

/** What `GET /runs/:id` answers of the newest attempt, and what stays of a run that was dropped. Times are ISO 8601. */
export interface RunSummary {
  readonly runId: string;
  readonly attempt: number;
  readonly threadId: string;
  readonly state: RunState;
  readonly startedAt: string;
  readonly endedAt?: string;
  /** Since when nobody reads it. */
  readonly detachedAt?: string;
  readonly lastSeq: number;
  readonly readers: number;
  /** Of a live run whose tools a runner outside the pod carries out. */
  readonly relay?: { readonly directory: string };
  readonly outcome?: Outcome;
  readonly error?: RunError;
  readonly settled?: Settled;
}
