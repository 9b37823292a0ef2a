/** `POST /dispatch`: starts, takes up or replays a run, and answers with its frames. */
import type { Dispatcher } from "../dispatch/dispatcher.ts";
import type { DispatchBody } from "../dispatch/input.ts";
import type { Claim } from "../dispatch/registry.ts";
import type { Resume, StaleResume } from "../dispatch/suspensions.ts";
import { HttpError } from "../errors.ts";
import type { Harness } from "../harness/port.ts";
import type { Log } from "../log/port.ts";
import type { ToolSpec } from "../tools/port.ts";
import { empty } from "./answer.ts";
import type { ReaderOptions } from "./readers.ts";
import { respondWithFrames } from "./readers.ts";
import type { RouteRequest } from "./router.ts";
import type { LateModules } from "./server.ts";

export interface DispatchRoute {
  readonly readers: ReaderOptions;
  readonly log: Log;
  readonly ready: Promise<LateModules>;
  readonly readBody: (request: Request) => Promise<unknown>;
  readonly dispatcher: Dispatcher;
}

/** W3C trace context: version, trace id, parent id, flags. */
const TRACEPARENT = /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/;

export async function dispatchRoute({ request }: RouteRequest, route: DispatchRoute): Promise<Response> {
  const { dispatcher, log } = route;
  const { input } = await route.ready;
  const body = input.parseDispatch(await route.readBody(request));
  const specs = input.toolSpecsOf(body.input);
  const harness = dispatcher.harnessOf(body.input);
  refuseTools(specs, harness);
  const resume = await dispatcher.suspensions.verify(body.input, specs, harness);
  // One step of the event loop from here to the registered reader: two dispatches cannot both start.
  const claim = claimOrSay(body, resume, route);
  if (claim.type === "nothing") return empty();
  const { attempt } = claim;
  const traceparent = TRACEPARENT.exec(request.headers.get("traceparent") ?? "")?.[0];
  // Before anything that could fail: a run that is claimed and not started would hold its thread for ever.
  if (claim.type === "start") {
    const resumed = resume && "suspension" in resume ? { resume } : {};
    dispatcher.start(claim, { input: body.input, specs, ...resumed, ...(traceparent ? { traceparent } : {}) });
  }
  log.info("dispatch received", {
    run: body.runId,
    thread: body.input.threadId,
    does: claim.type,
    ...(body.after === undefined ? {} : { after: body.after }),
    attempt: attempt.number,
    ...(claim.type === "start" && claim.predecessor ? { takesOver: claim.predecessor.run.id } : {}),
    ...(traceparent ? { traceparent } : {}),
  });
  const from = claim.type === "attach" ? claim.from : { offset: 0 };
  // Past its outcome a run has nothing left to own: who reads its end already is not sent away for it.
  const asked = { request, attempt, from, encoding: "ndjson", owner: attempt.live } as const;
  return respondWithFrames(asked, route.readers);
}

/** A refusal is the control plane's to read, but the operator looks for the reason as well. */
function claimOrSay(
  body: DispatchBody,
  resume: Resume | StaleResume | undefined,
  { dispatcher, log }: DispatchRoute,
): Claim {
  try {
    return dispatcher.registry.claim(body, resume);
  } catch (error) {
    if (error instanceof HttpError) {
      const suspension = resume && "suspensionId" in resume ? { suspension: resume.suspensionId } : {};
      const { code, extra } = error;
      log.info("dispatch refused", { run: body.runId, thread: body.input.threadId, code, ...extra, ...suspension });
    }
    throw error;
  }
}

/** A turn whose tools would silently be missing is worse than none. */
function refuseTools(specs: readonly ToolSpec[], harness: Harness | undefined): void {
  if (specs.length === 0 || !harness || harness.capabilities.clientTools !== "none") return;
  const names = specs.map(({ name }) => name).join(", ");
  throw new HttpError("bad_input", `input.tools: the harness ${harness.id} cannot serve tools: ${names}`);
}
