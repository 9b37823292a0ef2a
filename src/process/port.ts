/**
 * Processes of a run. Everything that a harness starts, directly or not, can be found and ended:
 *
 * - A child leads its own session and process group, and its environment carries the run's marker.
 * - The daemon is the subreaper of its tree: what leaves the group (setsid, double fork, emptied environment) becomes
 *   the daemon's child when its parent dies, and is found by parentage.
 * - `end()` is the kill ladder: SIGTERM to the group, SIGKILL to it after the grace, then the sweep of what left it.
 *
 * Nothing here waits without a bound: a process that cannot die (uninterruptible) is reported, and left.
 *
 * A stray whose owner was never seen belongs to the run that its marker names. If its environment says nothing, it is
 * killed when the last run ends that lived when it was born. Where the daemon is process 1 of its container, what
 * somebody started in there by hand (`kubectl exec`), during a run, and left behind is such a stray too.
 *
 * One instance a process. Whatever else the daemon starts stays in the daemon's own session (not detached), by which
 * it is told from a stray.
 */

/** The environment variable that marks every process of a run; its value is `<nonce>:<run name>`. */
export const MARKER_ENV = "DISPATCHD_RUN_MARKER";

export interface SpawnSpec {
  readonly argv: readonly string[];
  readonly cwd: string;
  /** The whole environment of the child; the marker is added. */
  readonly env: Readonly<Record<string, string>>;
  /** Written to stdin, which is then closed. A child that does not read it is no error. */
  readonly stdin: string;
  /** Names the run towards the sweep; unique among the live runs of this daemon, so each attempt has one of its own. */
  readonly runName: string;
  readonly user?: { readonly uid: number; readonly gid: number };
}

export type ExitStatus =
  | { readonly type: "exit"; readonly code: number }
  | { readonly type: "signal"; readonly signal: string }
  /**
   * The program could not be started; `reason` is an errno name such as ENOENT, or `ENOENT (working directory)` when
   * it is that of `cwd`. EINVAL: a NUL character, an empty program name.
   */
  | { readonly type: "unstarted"; readonly reason: string };

export interface RunProcess {
  readonly pid: number | undefined;
  /**
   * Raw bytes of stdout, in order, in chunks of up to 0.5 MB. Not iterating holds the child back. Ends at end of file,
   * or at `closeOutput`. To be iterated once; leaving the loop early closes the pipe, so that the child gets EPIPE.
   */
  readonly stdout: AsyncIterable<Uint8Array>;
  readonly stderr: AsyncIterable<Uint8Array>;
  /** Settles once, when the child itself is reaped; its descendants may live on. Never rejects. */
  readonly exited: Promise<ExitStatus>;
  /** Ends both outputs after what has already arrived, for when a descendant keeps the pipe open. */
  closeOutput(): void;
  /**
   * Ends everything of the run. SIGTERM to the group now, SIGKILL after `graceMs` (0: at once), then the sweep of
   * what left the group. May be called again with a shorter grace, which shortens the one under way. Resolves, always,
   * with what could be seen: `left` are the ids of processes that still exist and have no SIGKILL that works yet.
   */
  end(graceMs: number): Promise<EndReport>;
  /**
   * Resolves when the tree can run no more code: all of it ended, or a SIGKILL is pending on what has not. Only `end`
   * can find that out, so it never resolves without. Never either for a process that may not be killed (one that
   * became root, under a daemon that is not) while that lives.
   */
  readonly inert: Promise<void>;
}

export interface EndReport {
  /** Processes outside the group that had to be killed. */
  readonly strays: number;
  /** Processes that did not end in spite of SIGKILL, or that may not be killed. They are tried again every 30 s. */
  readonly left: readonly number[];
}

export interface Processes {
  spawn(spec: SpawnSpec): RunProcess;
  /**
   * Ends what an earlier daemon with this `nonce` left behind, and nothing else: processes whose environment carries
   * the marker with that nonce, and their descendants. Resolves with how many were killed. Rejects for this daemon's
   * own nonce, and when processes or their environments cannot be read at all.
   */
  endLeftovers(nonce: string): Promise<number>;
}
