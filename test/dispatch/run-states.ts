/** Brings runs into a state and keeps them there until the test lets them go. */
import { writeFile } from "node:fs/promises";
import type { Dispatch, TestDaemon } from "../support/daemon.ts";
import { Follower } from "../support/follow.ts";
import type { Step } from "../support/scripted-harness.ts";
import { CLOSE, FINISHED, OPEN } from "../support/scripted-harness.ts";

/** Graces that never end by themselves within a test: whoever waits for one waits for the test. */
export const HELD = { KILL_GRACE_MS: "600000", EXIT_GRACE_MS: "600000", TAKEOVER_TIMEOUT_MS: "600000" };

export interface HeldRun {
  readonly body: Follower;
  /** Lets it go on to its end. */
  readonly go: () => Promise<void>;
}

/** Sends a dispatch and follows its body. The owner is lost when `signal` aborts. */
export async function follow(daemon: TestDaemon, dispatch: Dispatch): Promise<Follower> {
  const response = await daemon.dispatch(dispatch);
  if (response.status !== 200) throw new Error(`${response.status} ${await response.text()}`);
  return new Follower(response);
}

/**
 * A first step of every turn of one thread: notes in the file `overlaps` when a harness that noted itself earlier still
 * runs. One that is dead and not reaped yet does not.
 */
export function alone(daemon: TestDaemon, threadId: string): Step {
  const noted = daemon.path(`noted of ${threadId}`);
  // A process is its id and the time of its birth: ids are used again.
  const stat = (pid: string): string => `set -- $(cat /proc/${pid}/stat 2>/dev/null)`;
  const isOther = `[ "\${22}" = "$born" ] && [ "$3" != Z ] && [ "$3" != X ] && echo $pid`;
  const others = `touch '${noted}'; while read pid born; do ${stat("$pid")}; ${isOther}; done < '${noted}'`;
  const note = `${stat("$PPID")}; echo $PPID "\${22}" >> '${noted}'`;
  return { sh: `{ ${others}; } >> '${daemon.path("overlaps")}'; ${note}`, wait: true };
}

/** Waits, in the state `preparing`, for a run of its thread that does not end before `go`. */
export async function preparing(daemon: TestDaemon, dispatch: Dispatch): Promise<HeldRun> {
  const threadId = dispatch.threadId ?? `thread of ${dispatch.runId}`;
  const obstacle = `before ${dispatch.runId}`;
  const from = daemon.log.length;
  void (
    await follow(daemon, {
      runId: obstacle,
      threadId,
      steps: [alone(daemon, threadId), { ignoreTerm: true }, OPEN, { sleepMs: 600_000 }],
    })
  ).until(({ frames }) => frames.length > 1);
  const { pid } = await daemon.event("harness started", from, ({ run }) => run === obstacle);
  while ((await daemon.show(obstacle)).lastSeq !== 2) await Bun.sleep(5);
  const body = await follow(daemon, { ...dispatch, threadId });
  return { body, go: async () => void process.kill(Number(pid), "SIGKILL") };
}

/** Has printed three frames' worth, preparation included, and waits. */
export async function running(daemon: TestDaemon, dispatch: Dispatch): Promise<HeldRun> {
  const file = daemon.path(`go ${crypto.randomUUID()}`);
  const threadId = dispatch.threadId ?? `thread of ${dispatch.runId}`;
  const steps = [alone(daemon, threadId), OPEN, { deltas: 1 }, { waitFor: file }, { deltas: 1 }, CLOSE, FINISHED];
  const body = await follow(daemon, { steps, ...dispatch, threadId });
  await body.until(({ frames }) => frames.length === 3);
  return { body, go: () => writeFile(file, "") };
}

/** Has given its outcome, `finished`, as its third frame, and does not exit. */
export async function settling(daemon: TestDaemon, dispatch: Dispatch): Promise<HeldRun> {
  const file = daemon.path(`go ${crypto.randomUUID()}`);
  const body = await follow(daemon, { steps: [OPEN, FINISHED, { waitFor: file }], ...dispatch });
  await body.until(({ frames }) => frames.some(({ outcome }) => outcome));
  return { body, go: () => writeFile(file, "") };
}
