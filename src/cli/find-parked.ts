/** Runs that wait for answers, as a later call finds them: by their id at the daemon, or as they were stored. */
import { type Client, EndedError, type Outcome, type Suspended } from "../client/index.ts";
import { type Conversation, carryOn, type Parked, type Resumed, resumeParked } from "./carry-on.ts";
import { UsageError } from "./io.ts";

export interface FoundRun {
  readonly runId: string;
  /** Absent: the daemon has kept of it how it ended, and no more. */
  readonly threadId?: string;
  /** Absent: it is going on. */
  readonly parked?: Parked;
}

export async function findRun(client: Client, runId: string): Promise<FoundRun> {
  if (runId === "" || runId === "." || runId === "..") throw new UsageError(`"${runId}" is no run id`);
  try {
    const { outcome, threadId } = await client.run(runId);
    return { runId, threadId, ...(outcome ? { parked: parkedBy(runId, outcome) } : {}) };
  } catch (thrown) {
    if (!(thrown instanceof EndedError) || !thrown.outcome) throw thrown;
    return { runId, parked: parkedBy(runId, thrown.outcome) };
  }
}

/** Goes on with it; one that is going on is watched, and answered where it waits. */
export async function resumeFound(
  client: Client,
  { runId, parked }: FoundRun,
  conversation: Conversation,
): Promise<Resumed | number> {
  if (parked) return resumeParked(parked, conversation);
  return carryOn({ run: client.attach(runId) }, conversation, "leave");
}

/** The text of a suspension alone does not say what is asked: then the answers go as they are, and the daemon knows. */
export async function resumeStored(suspended: Suspended, conversation: Conversation): Promise<Resumed | number> {
  if (!suspended.interrupts && conversation.answers.size === 0) {
    throw new UsageError("the text of a suspension alone does not say what is asked: --answers is missing");
  }
  return resumeParked({ suspended }, conversation);
}

function parkedBy(runId: string, outcome: Outcome): Parked {
  if (outcome.type === "interrupt") return { runId, suspended: outcome };
  throw new UsageError(`run ${runId} does not wait for answers: it has ended as ${outcome.type}`);
}
