/** Answers to a run's open questions: how they are made, and whether they are for what was asked. */
import { AnswersError } from "./errors.ts";
import type { Answer, Interrupt } from "./wire.ts";

/** A question, or its id. */
export type InterruptRef = string | Pick<Interrupt, "id">;

/** Yes: of an approval (`tool_call`) or a plan (`confirmation`). Nothing else lets the call run. */
export function approve(interrupt: InterruptRef): Answer {
  return { interruptId: idOf(interrupt), status: "resolved", payload: { approved: true } };
}

/** No, and why; the model reads it. */
export function deny(interrupt: InterruptRef, reason?: string): Answer {
  const payload = { approved: false, ...(reason === undefined ? {} : { reason }) };
  return { interruptId: idOf(interrupt), status: "resolved", payload };
}

/** What the person gave: any JSON that fits the question's `responseSchema`. It is data, and the result of the call. */
export function answer(interrupt: InterruptRef, payload: unknown): Answer {
  return { interruptId: idOf(interrupt), status: "resolved", payload };
}

/** The person does not answer. The model reads that, and the conversation goes on. */
export function cancel(interrupt: InterruptRef): Answer {
  return { interruptId: idOf(interrupt), status: "cancelled" };
}

/** Throws AnswersError unless each question is answered once, and nothing else is. */
export function checkAnswers(interrupts: readonly Interrupt[], answers: readonly Answer[]): void {
  const open = new Set(interrupts.map(({ id }) => id));
  const seen = new Set<string>();
  for (const { interruptId } of answers) {
    if (seen.has(interruptId)) throw new AnswersError("twice", interruptId);
    if (!open.has(interruptId)) throw new AnswersError("unknown", interruptId);
    seen.add(interruptId);
  }
  for (const id of open) if (!seen.has(id)) throw new AnswersError("missing", id);
}

function idOf(interrupt: InterruptRef): string {
  return typeof interrupt === "string" ? interrupt : interrupt.id;
}
