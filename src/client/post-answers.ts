/**
 * Answers to a run that waits. Whether they arrived is not known when a connection breaks; the same answer again is
 * accepted again, so they are sent until the daemon says something.
 */
import type { Clock } from "../clock/port.ts";
import { AnswersError, ProtocolError, RefusedError, UnreachableError } from "./errors.ts";
import type { Patience } from "./follow-run.ts";
import { isGatewayError } from "./reattach.ts";
import { parseObject, type Transport } from "./transport.ts";
import type { Answer } from "./wire.ts";

export interface PostAnswers {
  readonly transport: Transport;
  readonly clock: Clock;
  readonly patience: Patience;
  readonly requestMs: number;
  /** Of the route. */
  readonly path: string;
  readonly answers: readonly Answer[];
}

/** How many the daemon has taken: all. Gives up after `silenceMs` without a word of it. */
export async function postAnswers({ transport, clock, patience, requestMs, path, answers }: PostAnswers) {
  const seen = new Set<string>();
  for (const { interruptId } of answers) {
    if (seen.has(interruptId)) throw new AnswersError("twice", interruptId);
    seen.add(interruptId);
  }
  const request = { method: "POST", path, body: JSON.stringify({ answers }) } as const;
  const giveUpAt = clock.monotonic() + patience.silenceMs;
  for (let tries = 0; ; tries++) {
    try {
      const { text } = await transport.call(request, requestMs);
      const accepted = parseObject(text)?.accepted;
      if (typeof accepted !== "number") throw new ProtocolError(`POST ${path}: the answer does not say what it took`);
      return accepted;
    } catch (thrown) {
      const cut = thrown instanceof UnreachableError || (thrown instanceof RefusedError && isGatewayError(thrown));
      const pause = Math.min(patience.retryCapMs, patience.retryBaseMs * 2 ** tries) * (0.5 + Math.random() / 2);
      if (!cut || clock.monotonic() + pause >= giveUpAt) throw thrown;
      await clock.sleep(pause);
    }
  }
}
