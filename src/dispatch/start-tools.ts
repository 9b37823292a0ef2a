/** What a run's tools need before its harness starts: the relay directory, the shim's command line, and who answers. */
import { join } from "node:path";
import type { Clock } from "../clock/port.ts";
import type { Config } from "../config.ts";
import { errnoOf, messageOf } from "../errors.ts";
import type { Harness, TurnDocument } from "../harness/port.ts";
import { DEFAULT_SHIM_DIALECT } from "../harness/port.ts";
import type { Log } from "../log/port.ts";
import type { Metrics } from "../metrics/port.ts";
import { randomHex } from "../random-hex.ts";
import { callBack } from "../tools/call-back.ts";
import { chooseDisposition } from "../tools/dispositions.ts";
import type { Callback, CallbackResult, ToolSpec } from "../tools/port.ts";
import { openRelay } from "../tools/relay/open-relay.ts";
import { RunTools } from "../tools/run-tools.ts";
import type { DispatchInput } from "./input.ts";
import type { Opening } from "./resume-run.ts";
import type { Attempt } from "./run.ts";
import type { Suspensions } from "./suspensions.ts";

export interface ToolsOrder {
  readonly attempt: Attempt;
  readonly input: DispatchInput;
  readonly specs: readonly ToolSpec[];
  readonly harness: Harness;
  readonly runDir: string;
  readonly opening: Opening;
  readonly traceparent: string | undefined;
}

export interface ToolsParts {
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly config: Config;
  readonly suspensions: Suspensions;
  /** Starts this very program, from wherever. */
  readonly selfCommand: readonly string[];
}

export interface StartedTools {
  readonly tools: RunTools;
  readonly shim: TurnDocument["shim"];
  /** Nothing is answered any more. */
  stop(): Promise<void>;
}

/** Beyond what a call may take by itself: the agent's own limit must not come first. */
const SHIM_MARGIN_MS = 60_000;

export async function startTools(order: ToolsOrder, parts: ToolsParts): Promise<StartedTools> {
  const { attempt, input, harness, opening } = order;
  // A runner outside the pod carries them out: what comes of them is between it and the harness.
  const outsideKey = input.relay?.publicKey;
  const specs = outsideKey === undefined ? order.specs : [];
  const holdMs = (input.clientTools?.holdSeconds ?? 0) * 1000;
  const asking = { runId: attempt.run.id, suspensionId: randomHex(16) };
  const tools = new RunTools(
    {
      specs,
      disposition: specs.length > 0 ? chooseDisposition(harness.capabilities.clientTools, { holdMs }) : "native",
      holdMs,
      clock: parts.clock,
      log: parts.log,
      metrics: parts.metrics,
      issue: (questions, subagents) => parts.suspensions.issue(input, asking, questions, subagents),
      callBack: (call, signal) => carryOut(call.spec, call, attempt.run.id, order, signal),
      check: async (schema, value) => {
        const { compileSchema } = await import("../tools/json-schema.ts");
        return compileSchema(schema).check(value);
      },
      mayAsk: harness.responseSchemaOf !== undefined || harness.capabilities.clientTools === "native",
      responseSchemaOf: (toolName, args) => harness.responseSchemaOf?.(toolName, args) ?? null,
      emit: (chunks, waiting) => attempt.say(chunks, waiting),
      answered: (interruptId) => void attempt.answered.add(interruptId),
      conclude: (outcome) => attempt.conclude(outcome),
      fail: (error) => {
        const errno = errnoOf(error);
        parts.log.error("tools failed", { reason: messageOf(error), stack: (error as Error)?.stack });
        if (errno)
          attempt.stop({ code: "storage_failed", message: `the answer to a call could not be stored: ${errno}` });
        else attempt.stop({ code: "internal", message: "the daemon failed to carry out a call of the run's tools" });
      },
    },
    opening,
  );
  if (order.specs.length === 0) return { tools, shim: null, stop: async () => tools.stop() };
  const directory = join(order.runDir, "relay");
  const relay = await openRelay({
    directory,
    runId: attempt.run.id,
    tools: order.specs,
    outsideKey,
    agentUser: parts.config.agentUser,
    clock: parts.clock,
    log: parts.log,
    metrics: parts.metrics,
    events: tools.relayEvents,
  });
  tools.connect(relay);
  if (outsideKey !== undefined) attempt.relayDirectory = directory;
  const longestMs = Math.max(0, ...order.specs.map(({ timeoutMs }) => timeoutMs));
  return {
    tools,
    shim: {
      ...shimCommand(order, parts.selfCommand, directory, relay.publicKey),
      toolTimeoutMs: holdMs + longestMs + SHIM_MARGIN_MS,
    },
    async stop() {
      tools.stop();
      await relay.stop();
    },
  };
}

function shimCommand(
  { attempt, harness }: ToolsOrder,
  selfCommand: readonly string[],
  directory: string,
  publicKey: string,
): { command: string; args: string[] } {
  const { toolCallIdMeta, endTurnMeta, toolMeta } = harness.shimDialect ?? DEFAULT_SHIM_DIALECT;
  const [command = "", ...rest] = selfCommand;
  const args = [...rest, "mcp", "--relay", directory, "--run", attempt.run.id, "--key", publicKey];
  args.push("--call-id-meta", toolCallIdMeta, "--end-turn-meta", JSON.stringify(endTurnMeta));
  if (toolMeta) args.push("--tool-meta", JSON.stringify(toolMeta));
  return { command, args };
}

/** Carries out a callback tool. The same call has the same key whenever, and on whichever pod, it is carried out again. */
export function carryOut(
  { name, timeoutMs }: ToolSpec,
  call: { readonly toolCallId: string; readonly input: unknown },
  /** The run in which the model made the call. */
  callingRunId: string,
  { attempt, input, traceparent }: Pick<ToolsOrder, "attempt" | "input" | "traceparent">,
  signal: AbortSignal,
): Promise<CallbackResult> {
  return callBack({
    callback: callbackOf(input),
    order: {
      runId: attempt.run.id,
      threadId: attempt.run.threadId,
      toolCallId: call.toolCallId,
      toolName: name,
      arguments: call.input,
    },
    idempotencyKey: `${callingRunId}:${call.toolCallId}`,
    timeoutMs,
    ...(traceparent ? { traceparent } : {}),
    signal,
  });
}

/** A run with callback tools and no callback is refused before it starts. */
function callbackOf({ callback }: DispatchInput): Callback {
  if (!callback) throw new Error("a run with callback tools has no callback");
  return { url: callback.url, headers: callback.headers ?? {} };
}
