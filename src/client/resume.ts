/** The dispatch that goes on with a suspended run: what it was dispatched with, the answers, and its suspension. */
import { checkAnswers } from "./answers.ts";
import type { Answer, DispatchInput, Interrupt, UserMessage } from "./wire.ts";

/** A run that ended with open questions: its result of the type `interrupt`, also when it was stored meanwhile. */
export interface Suspended {
  /** Absent: not known here. Then only the daemon finds out whether the answers are for them. */
  readonly interrupts?: readonly Interrupt[];
  /** Sent back as it came. Whoever changes a byte of it is refused. */
  readonly suspension?: string;
  /** The next pod waits for this save of the thread. */
  readonly settled?: { readonly generation?: string };
}

export interface ResumeOrder {
  /** What the suspended run was dispatched with. Its message, and what it resumed itself, are left out. */
  readonly input: DispatchInput;
  readonly suspended: Suspended;
  readonly answers: readonly Answer[];
  /** A text of the person beside the answers. */
  readonly userMessage?: UserMessage | undefined;
  /** Over `input`, key by key. */
  readonly changes?: Partial<DispatchInput> | undefined;
}

/** Throws AnswersError when a question has no answer, or two, or an answer no question. */
export function resumeInput({ input, suspended, answers, userMessage, changes = {} }: ResumeOrder): DispatchInput {
  const { interrupts, suspension, settled } = suspended;
  // Of a run that was lost while it waited: what a subagent asked ended with it.
  const open = interrupts?.filter(({ metadata }) => !metadata.inSubagent);
  if (open) checkAnswers(open, answers);
  const { userMessage: _message, answers: _answers, suspension: _suspension, resume: _resume, ...kept } = input;
  return {
    ...kept,
    ...(settled?.generation === undefined ? {} : { sessionGeneration: settled.generation }),
    ...changes,
    threadId: changes.threadId ?? input.threadId,
    ...(userMessage === undefined ? {} : { userMessage }),
    answers,
    ...(suspension === undefined ? {} : { suspension }),
  };
}
