/**
 * A run and those that follow from it: watches each, has its questions answered, and goes on with the answers, until one
 * ends without a question, or nobody is there to ask.
 */
import {
  type Answer,
  AnswersError,
  type Interrupt,
  type Run,
  type RunResult,
  type Suspended,
} from "../client/index.ts";
import { ask } from "./ask.ts";
import { EXIT } from "./exit-codes.ts";
import { type CliIo, UsageError } from "./io.ts";
import type { Answers } from "./live-questions.ts";
import { visible } from "./visible-text.ts";
import { type WatchOptions, watchRun } from "./watch-run.ts";

export interface Conversation {
  readonly io: CliIo;
  readonly json: boolean;
  /** Somebody sits there who can be asked. */
  readonly asks: boolean;
  readonly threadId: string;
  /** Answers that are known already; those that are given are added. */
  readonly answers: Answers;
  /** Dispatches the next run. */
  readonly resume: (suspended: Suspended, answers: readonly Answer[]) => Run;
  /** The command that goes on with a run that waits; without its id with a suspension. */
  readonly commandFor: (runId: string | undefined) => string;
}

/** A run that waits for its answers. */
export interface Parked {
  readonly suspended: Suspended;
  /** Where the daemon may know it still. */
  readonly runId?: string;
}

/** A run, and what it was resumed from. */
export interface Resumed {
  readonly run: Run;
  readonly from?: Parked & { readonly answers: readonly Answer[] };
}

/** Resolves with the exit code. */
export async function carryOn(
  first: Resumed,
  conversation: Conversation,
  onInterrupt: WatchOptions["onInterrupt"] = "cancel",
): Promise<number> {
  const { io, json, asks, threadId, answers } = conversation;
  for (let resumed = first; ; ) {
    const { run } = resumed;
    const watched = await watchRun(run, io, {
      json,
      threadId,
      onInterrupt: resumed === first ? onInterrupt : "cancel",
      questions: { answers, asks },
    });
    if (watched.leftAsking) await io.stderr.write(howToGoOn(conversation, run.runId));
    const parked = watched.result && parkedBy(watched.result, resumed, conversation);
    if (!parked) {
      if (watched.result && !json) await io.stderr.write(notTaken(watched.result, resumed, conversation));
      if (watched.lost && !json) await io.stderr.write(lostWaiting(watched.lost, conversation));
      return watched.code;
    }
    const next = await resumeParked(parked, conversation);
    if (typeof next === "number") return next;
    resumed = next;
  }
}

/** Goes on with a run that waits, once its questions are answered. The exit code, when they are not. */
export async function resumeParked(parked: Parked, conversation: Conversation): Promise<Resumed | number> {
  const { io, json, asks, answers, resume } = conversation;
  const { suspended, runId } = parked;
  const open = (suspended.interrupts ?? []).filter(({ id }) => !answers.has(id));
  if (open.length > 0 && !asks) {
    if (!json) await io.stderr.write(unanswered(conversation, parked));
    return EXIT.waiting;
  }
  if (!(await askAll(open, io, answers))) {
    if (runId !== undefined) await io.stderr.write(howToGoOn(conversation, runId));
    return EXIT.waiting;
  }
  const given = [...answers.values()];
  // Each is for one question of one run.
  answers.clear();
  try {
    return { run: resume(suspended, given), from: { ...parked, answers: given } };
  } catch (thrown) {
    throw thrown instanceof AnswersError ? new UsageError(thrown.message) : thrown;
  }
}

/** What waits after a run: the run, or the one before it, where the daemon takes another answer for one of these. */
function parkedBy(result: RunResult, { run, from }: Resumed, conversation: Conversation): Parked | undefined {
  if (result.type === "interrupt") {
    // An answer that came too late may be for what is not asked any more: inside a subagent a question ends with the run.
    for (const id of conversation.answers.keys()) {
      if (!result.interrupts.some((interrupt) => interrupt.id === id)) conversation.answers.delete(id);
    }
    return { suspended: result, runId: run.runId };
  }
  if (result.type !== "refused" || !result.stale || result.stale.dead || !from) return undefined;
  const { interruptId } = result.stale;
  const isAsked = from.suspended.interrupts?.some(({ id }) => id === interruptId);
  if (!isAsked || !conversation.asks) return undefined;
  for (const answer of from.answers) {
    if (answer.interruptId !== interruptId) conversation.answers.set(answer.interruptId, answer);
  }
  return from;
}

/** False: whoever was asked went away. */
async function askAll(open: readonly Interrupt[], io: CliIo, answers: Answers): Promise<boolean> {
  const left = new AbortController();
  const stopListening = io.onInterrupt(() => left.abort());
  try {
    for (const interrupt of open) {
      const asked = await ask(interrupt, io, left.signal);
      if (asked.type !== "answered") return false;
      answers.set(interrupt.id, asked.answer);
    }
    return true;
  } finally {
    stopListening();
  }
}

function howToGoOn({ commandFor }: Conversation, runId: string): string {
  return `the turn waits for an answer. To go on:\n  ${commandFor(runId)}\n`;
}

function unanswered(conversation: Conversation, parked: Parked): string {
  const { interrupts = [] } = parked.suspended;
  const entries = interrupts.map(({ id }) => ({ interruptId: id, status: "resolved", payload: null }));
  const about = "answers, with what was answered in place of null:";
  return later(conversation, parked, "to go on, at a terminal or with --answers FILE:", about, entries);
}

/** Whoever has typed an answer shall not have to do it again because a pod is busy, or gone. */
function notTaken(result: RunResult, { from }: Resumed, conversation: Conversation): string {
  if (!from || result.attempt !== undefined) return "";
  const refused = result.type === "refused" && result.stale?.dead !== true;
  if (!refused && result.type !== "unreachable") return "";
  const headline = `the answers ${refused ? "were not" : "may not have been"} taken. To go on, with --answers FILE:`;
  return later(conversation, from, headline, "the answers:", from.answers);
}

/** The pod went away with the question: what was signed of it is all that there is to go on from. */
function lostWaiting({ interrupts = [], suspension = "" }: Suspended, { commandFor, answers }: Conversation): string {
  const entries = interrupts.map(({ id }) => answers.get(id) ?? { interruptId: id, status: "resolved", payload: null });
  const lines = [
    "the turn waited for an answer. To go on, at a terminal or with --answers FILE:",
    `  ${commandFor(undefined)}`,
    "with this in the file of --suspension:",
    visible(suspension),
    "answers, with what was answered in place of null:",
    `  ${visible(JSON.stringify(entries))}`,
  ];
  return `${lines.join("\n")}\n`;
}

function later(
  { commandFor }: Conversation,
  { suspended: { suspension }, runId }: Parked,
  headline: string,
  about: string,
  entries: readonly unknown[],
): string {
  const lines = [headline];
  if (runId !== undefined) lines.push(`  ${commandFor(runId)}`);
  lines.push(about, `  ${visible(JSON.stringify(entries))}`);
  if (suspension !== undefined) {
    lines.push("on another pod: --suspension FILE in place of --resume, with this in the file:", visible(suspension));
  }
  return `${lines.join("\n")}\n`;
}
