/** `POST /runs/:id/answers`: what a person says to a run that waits for it. */
import type { ParsedAnswers } from "../dispatch/input.ts";
import type { RunRegistry } from "../dispatch/registry.ts";
import type { Attempt } from "../dispatch/run.ts";
import { HttpError } from "../errors.ts";
import type { Log } from "../log/port.ts";
import { json } from "./answer.ts";
import type { RouteRequest } from "./router.ts";

export interface AnswerRoute {
  readonly registry: RunRegistry;
  readonly ready: Promise<unknown>;
  readonly log: Log;
  readonly readBody: (request: Request) => Promise<unknown>;
  readonly parse: (value: unknown) => ParsedAnswers;
}

/** All answers are taken, or none. The same ones again are taken again: a client may have lost the reply. */
export async function answerRun({ request, runId }: RouteRequest, route: AnswerRoute): Promise<Response> {
  await route.ready;
  const { answers } = route.parse(await route.readBody(request));
  const attempt = route.registry.find(runId);
  const { tools } = attempt;
  if (!attempt.live || !tools) throw whyNotTaken(attempt, answers);
  const result = await tools.answer(answers);
  switch (result.type) {
    case "accepted":
      return json({ accepted: result.count });
    case "invalid":
      throw new HttpError("bad_input", `${result.path}: ${result.message}`);
    case "stale":
      route.log.info("answers refused", { run: runId, interruptId: result.interruptId, reason: result.reason });
      throw stale(result);
  }
}

/** Of a run that does not wait: a new dispatch answers what its outcome asks, and nothing else. */
function whyNotTaken({ outcome, answered }: Attempt, answers: ParsedAnswers["answers"]): HttpError {
  if (outcome && outcome.type !== "interrupt") return new HttpError("ended", "the run has ended", { outcome });
  const open = new Set(outcome?.interrupts.map(({ id }) => id));
  const closed = answers.find(({ interruptId }) => !open.has(interruptId));
  if (closed) {
    const { interruptId } = closed;
    const isAnswered = answered.has(interruptId);
    const reason = isAnswered ? "it was answered while the run waited" : "the run asks no such question";
    return stale({ interruptId, reason, dead: true });
  }
  const reason = "the run does not wait any more: it is answered by a new dispatch";
  return stale({ interruptId: answers[0]?.interruptId ?? "", reason, dead: false });
}

function stale({ interruptId, reason, dead }: { interruptId: string; reason: string; dead: boolean }): HttpError {
  return new HttpError("stale", reason, { interruptId, reason, dead });
}
