/**
 * Work on the org volume, at arm's length. No thread of the daemon touches a path below `<APP_ROOT>/org/`: a call there
 * may never return. All of it is done in flights, each a process of our own binary (`orgfs-worker`) that may be lost.
 *
 * - A flight is one job with a deadline. Past it the process gets SIGKILL, its pipes are closed on our side, and nobody
 *   waits for it: one that cannot die is counted, and looked at again now and then.
 * - Flights of one `lane` (a thread's session, say) go one after the other; an overdue one frees its lane.
 * - At the fourth overdue flight of a volume, with no answer in between, its breaker opens: flights are refused at once,
 *   and one probe at a time finds out when the volume answers again. The first overdue flight after that opens it anew.
 *   It is about hangs alone: an error is an answer.
 * - Workers die with the daemon (parent-death signal), have no secrets in argv or environment, and get their job, keys
 *   included, on stdin.
 */

/** What a worker can do: each job's input and output, plain JSON. Extended by the folders that own the jobs. */
// biome-ignore lint/suspicious/noEmptyInterface: filled by declaration merging
export interface OrgJobs {}

export type OrgJobName = keyof OrgJobs & string;

export type OrgJobInput<J extends OrgJobName> = OrgJobs[J] extends { input: infer I } ? I : never;
export type OrgJobOutput<J extends OrgJobName> = OrgJobs[J] extends { output: infer O } ? O : never;

/**
 * Does the job, in the worker's process and nowhere else. Whatever it throws is the flight's failure; `code` is that of
 * the error, if it has one.
 */
export type OrgJobHandler<J extends OrgJobName> = (input: OrgJobInput<J>) => OrgJobOutput<J> | Promise<OrgJobOutput<J>>;

/** Every job, loaded when it is asked for: a worker starts in a few milliseconds because it loads one of them. */
export type OrgJobTable = { readonly [J in OrgJobName]: () => Promise<OrgJobHandler<J>> };

export interface FlightOptions {
  /** The volume that the job touches, for its breaker and the metrics. */
  readonly volume: string;
  /** From the call to the result, the wait for the lane included. */
  readonly deadlineMs: number;
  /** Flights of one lane follow each other; without one they do not wait. */
  readonly lane?: string;
  /** Ends the wait (and the process) early, as `aborted`. */
  readonly signal?: AbortSignal;
}

export interface JobOptions<T> extends FlightOptions {
  /** False: the flight came back without an answer of the volume. It gave up a call by itself, or made none. */
  readonly proves?: (output: T) => boolean;
}

export type FlightResult<T> =
  | { readonly type: "done"; readonly output: T; readonly elapsedMs: number }
  /** The job threw: an errno name or a code of the job's own, and a text for the log. */
  | { readonly type: "failed"; readonly code: string; readonly message: string }
  /** The deadline passed; the process was killed, or cannot be. */
  | { readonly type: "overdue"; readonly afterMs: number }
  /** The volume's breaker is open, or too many of its workers are stuck: nothing was tried. */
  | { readonly type: "refused" }
  | { readonly type: "aborted" };

export interface OrgFs {
  fly<J extends OrgJobName>(
    job: J,
    input: OrgJobInput<J>,
    options: JobOptions<OrgJobOutput<J>>,
  ): Promise<FlightResult<OrgJobOutput<J>>>;
  /** A flight of this lane was given up and its process cannot die: what it hangs at may hold up the next one too. */
  isStuck(lane: string): boolean;
  /** For /health and the metrics: of each volume that was flown to. */
  state(): Readonly<Record<string, { readonly breaker: "closed" | "open" | "probing"; readonly stuck: number }>>;
  stop(): void;
}

/** For /health: no names, and nothing that has to be asked. */
export type OrgState = "none" | { readonly home: "unmounted" | "mounted" | "hanging"; readonly stuck: number };

export type { Org } from "./org.ts";
export type { RunSkills, Skills } from "./skills/skills.ts";
