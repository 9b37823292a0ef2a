/** `POST /runs/:id/answers`: what a person says to a run that waits for it. */
import type { ParsedAnswers } from "../dispatch/input.ts";
import type { RunRegistry } from "../dispatch/registry.ts";
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
  const { tools, outcome } = attempt;
  const [first] = answers;
  if (!attempt.live || !tools) {
    if (outcome && outcome.type !== "interrupt") throw new HttpError("ended", "the run has ended", { outcome });
    const reason = outcome
      ? "the run does not wait any more: it is answered by a new dispatch"
      : "the run asks no such question";
    throw stale({ interruptId: first?.interruptId ?? "", reason, dead: false });
  }
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

function stale({ interruptId, reason, dead }: { interruptId: string; reason: string; dead: boolean }): HttpError {
  return new HttpError("stale", reason, { interruptId, reason, dead });
}
