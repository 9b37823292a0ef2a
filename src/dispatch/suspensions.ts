/** The daemon's side of suspensions: whose they are, with which keys, and what a resume has to fit. */
import type { Clock } from "../clock/port.ts";
import type { Harness } from "../harness/port.ts";
import type { Suspension, SuspensionKeys, SuspensionState } from "../suspension/port.ts";
import type { OpenSubagent } from "../tools/filter-frames.ts";
import type { Issued } from "../tools/open-questions.ts";
import type { AnswerEntry, Interrupt, JsonSchema, ToolSpec } from "../tools/port.ts";
import { type Question, responseSchemaOfTool } from "../tools/questions.ts";
import type { DispatchInput } from "./input.ts";

export interface SuspensionsOptions {
  readonly clock: Clock;
  readonly keys: () => SuspensionKeys;
  readonly audience: string;
  readonly ttlMs: number;
}

/** Verified on the request alone: what was asked, and an answer for each. */
export interface Resume {
  readonly suspension: Suspension;
  readonly answers: ReadonlyMap<string, AnswerEntry>;
}

export interface StaleResume {
  readonly type: "stale";
  readonly interruptId?: string;
  readonly suspensionId?: string;
  readonly reason: string;
  readonly dead: boolean;
}

export interface Suspensions {
  /** A text says why it cannot be asked. What a turn asks has one id, however often it is signed anew: it is used once. */
  issue(
    input: DispatchInput,
    asking: { readonly runId: string; readonly suspensionId: string },
    questions: readonly Question[],
    subagents: readonly OpenSubagent[],
  ): Promise<Issued | string>;
  /** Undefined when the dispatch resumes nothing. */
  verify(
    input: DispatchInput,
    specs: readonly ToolSpec[],
    harness: Harness | undefined,
  ): Promise<Resume | StaleResume | undefined>;
}

export function createSuspensions({ clock, keys, audience, ttlMs }: SuspensionsOptions): Suspensions {
  return {
    async issue(input, { runId, suspensionId }, questions, subagents) {
      const { issueSuspension } = await import("../suspension/issue.ts");
      const { schemaHashOf, toolHashOf } = await import("../suspension/hashes.ts");
      const asked = questions.filter(({ inSubagent }) => !inSubagent);
      const now = clock.now();
      if (asked.length === 0) {
        const expiresAt = new Date(now + ttlMs).toISOString();
        return { suspension: "", interrupts: questions.map((question) => interruptOf(question, expiresAt, "")) };
      }
      const { organizationId, mode } = placeOf(input);
      const state: SuspensionState = {
        id: suspensionId,
        audience,
        ...(organizationId ? { organizationId } : {}),
        threadId: input.threadId,
        runId,
        ...(mode ? { mode } : {}),
        interrupts: asked.map(({ id, reason, toolCallId, toolName, input: args, tool, responseSchema }) => ({
          id,
          reason,
          toolCallId,
          toolName,
          input: args,
          ...(tool ? { toolHash: toolHashOf(tool) } : {}),
          responseSchemaHash: schemaHashOf(responseSchema),
        })),
        ...(subagents.length > 0 ? { subagents } : {}),
      };
      const issued = await issueSuspension(state, keys(), now, ttlMs);
      if (issued.type === "refused") return issued.reason;
      const expiresAt = new Date(issued.expiresAt).toISOString();
      return {
        suspension: issued.token,
        interrupts: questions.map((question) => interruptOf(question, expiresAt, issued.token)),
      };
    },

    async verify(input, specs, harness) {
      const answers = input.answers ?? [];
      const place = placeOf(input);
      const token = input.suspension ?? undefined;
      if (answers.length === 0 && token === undefined) return undefined;
      const { verifySuspension } = await import("../suspension/verify.ts");
      const { compileSchema } = await import("../tools/json-schema.ts");
      const byName = new Map(specs.map((spec) => [spec.name, spec]));
      const result = await verifySuspension(
        {
          token,
          audience,
          organizationId: place.organizationId,
          threadId: input.threadId,
          answers,
          tools: specs,
          responseSchemaOf: ({ toolName, input: args, toolHash }) => {
            if (toolHash === undefined) return harness?.responseSchemaOf?.(toolName, args) ?? null;
            const spec = byName.get(toolName);
            return spec ? responseSchemaOfTool(spec) : null;
          },
          validate: (schema, payload) => compileSchema(schema as JsonSchema).check(payload),
          clear: {
            mode: place.mode,
            ...(input.interrupts ? { interrupts: input.interrupts } : {}),
            ...(input.approvals ? { approvals: input.approvals } : {}),
          },
        },
        keys(),
        clock.now(),
      );
      if (result.type === "stale") return result;
      const { suspension } = result;
      return { suspension, answers: new Map(answers.map((answer) => [answer.interruptId, answer])) };
    },
  };
}

/** An empty name is none, when it is signed and when it is compared. */
function placeOf(input: DispatchInput): { organizationId: string | undefined; mode: string | undefined } {
  return { organizationId: input.organizationId || undefined, mode: input.mode || undefined };
}

function interruptOf(question: Question, expiresAt: string, token: string): Interrupt {
  const { id, reason, message, toolCallId, toolName, input, responseSchema, render, inSubagent } = question;
  return {
    id,
    reason,
    ...(message ? { message } : {}),
    toolCallId,
    ...(responseSchema ? { responseSchema } : {}),
    expiresAt,
    metadata: {
      toolName,
      input,
      ...(render === undefined ? {} : { render }),
      ...(inSubagent ? { inSubagent } : token === "" ? {} : { suspension: token }),
    },
  };
}
