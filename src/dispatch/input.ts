/**
 * The body of a dispatch. Unknown keys are kept: a control plane may be newer than the daemon. Loaded behind
 * `import()`, after the daemon listens (zod costs more than the rest of a cold start).
 */
import { z } from "zod";
import { HttpError } from "../errors.ts";
import { parseKeyList } from "../key-list.ts";
import type { ToolSpec } from "../tools/port.ts";
import {
  answersSchema,
  callbackSchema,
  clientToolsSchema,
  relaySchema,
  toolsSchema,
  toToolSpecs,
} from "../tools/tool-schema.ts";

const MAX_RUN_ID_CHARS = 256;
const MAX_THREAD_ID_CHARS = 1024;
/** Linux starts no process with a variable of 128 KiB, its name included. */
const MAX_ENV_BYTES = 127 * 1024;
const MAX_ENV_COUNT = 4096;
const MAX_PARTS = 10_000;
const MAX_HEADER_COUNT = 256;
/** Names of tools, and rules: they go on a command line. */
const MAX_DISALLOWED = 4096;
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what it is for
const CONTROL_CHARACTERS = /[\u0000-\u001f\u007f-\u009f]/;

const text = z.string();
const textPart = z.looseObject({ type: z.literal("text"), text });
const filePart = z.looseObject({ type: z.literal("file"), mediaType: text, url: text, filename: text.optional() });
const otherPart = z.looseObject({ type: text.refine((type) => type !== "text" && type !== "file") });
// How many first, and for all of them: to check hundreds of thousands one by one holds up everything else.
const partList = z
  .custom<unknown[]>((parts) => isSmallList(parts, MAX_PARTS), `must be at most ${MAX_PARTS} parts`)
  .pipe(z.array(z.union([textPart, filePart, otherPart])));
const userMessage = z
  .union([text, z.looseObject({ parts: partList }), z.looseObject({ content: text })])
  .refine(hasText, "must contain text");

/** Variables of a process: no `=` in a name and no NUL anywhere, or the start of the process would fail. */
export const envSchema = z
  .custom<Record<string, unknown>>(
    (env) => isSmallObject(env, MAX_ENV_COUNT),
    `must be an object of at most ${MAX_ENV_COUNT} variables`,
  )
  .pipe(
    z.record(
      z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, "is no name of an environment variable"),
      z
        .string()
        .refine((value) => !value.includes("\0"), "must not contain NUL")
        .refine((value) => Buffer.byteLength(value) <= MAX_ENV_BYTES, `must be at most ${MAX_ENV_BYTES} bytes`),
    ),
  );

function isSmallObject(value: unknown, most: number): boolean {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
  let count = 0;
  for (const _name in value) if (++count > most) return false;
  return true;
}

function isSmallList(value: unknown, most: number): boolean {
  return Array.isArray(value) && value.length <= most;
}

const mcpHeaders = z
  .custom<Record<string, unknown>>(
    (headers) => isSmallObject(headers, MAX_HEADER_COUNT),
    `must be an object of at most ${MAX_HEADER_COUNT} headers`,
  )
  .pipe(z.record(text, text));
const disallowedTools = z
  .custom<unknown[]>((list) => isSmallList(list, MAX_DISALLOWED), `must be a list of at most ${MAX_DISALLOWED} tools`)
  .pipe(z.array(text));

/** Not looked at one by one: there may be a million. */
const echoes = z.custom<readonly unknown[]>((value) => Array.isArray(value), "must be a list");

const inputSchema = z.looseObject({
  threadId: z
    .string()
    .min(1)
    .max(MAX_THREAD_ID_CHARS)
    .refine((id) => id.isWellFormed(), "must be well-formed Unicode"),
  userMessage: userMessage.optional(),
  workspace: z
    .looseObject({
      cwd: z.union([z.literal("/repo"), z.null()]).optional(),
      repo: z.unknown().optional(),
      branch: z.unknown().optional(),
    })
    .nullish(),
  mcp: z
    .looseObject({
      url: z.url({ protocol: /^https?$/ }),
      headers: mcpHeaders.optional(),
      expiresAt: z.unknown().optional(),
    })
    .nullish(),
  models: z.unknown().optional(),
  mode: text.nullish(),
  toolApprovalLevel: text.nullish(),
  agent: z
    .looseObject({
      id: text.nullish(),
      instructions: text.nullish(),
      disallowedTools: disallowedTools.nullish(),
    })
    .nullish(),
  harness: z.looseObject({ id: text.nullish(), sessionId: text.nullish() }).nullish(),
  /** Grows with each of the thread's runs: whatever an older one still saves counts less. */
  fence: z.int().min(0).nullish(),
  /** The newest save of the thread that the caller knows of, as `settled.generation` told it. */
  sessionGeneration: text.nullish(),
  organizationId: text.nullish(),
  resume: z.looseObject({ reason: text.nullish() }).nullish(),
  env: envSchema.nullish(),
  tools: toolsSchema.nullish(),
  callback: callbackSchema.nullish(),
  clientTools: clientToolsSchema.nullish(),
  relay: relaySchema.nullish(),
  answers: answersSchema.nullish(),
  suspension: z.unknown().optional(),
  /** What a client sends back of what it was shown, in the shapes of its protocol. */
  interrupts: echoes.nullish(),
  approvals: echoes.nullish(),
});

const runId = z
  .string()
  .min(1)
  .max(MAX_RUN_ID_CHARS)
  .refine((id) => !CONTROL_CHARACTERS.test(id), "must not contain control characters")
  .refine((id) => id.isWellFormed(), "must be well-formed Unicode")
  // Encoded or not, a URL resolves them away: such a run could be started, but never read again or cancelled.
  .refine((id) => id !== "." && id !== "..", "must not be a dot segment, which no path can name");

export const dispatchSchema = z.looseObject({
  runId,
  after: z.int().min(0).optional(),
  attempt: z.int().min(1).optional(),
  input: inputSchema,
});

export type DispatchBody = z.infer<typeof dispatchSchema>;
export type DispatchInput = DispatchBody["input"];

export const configSchema = z.strictObject({
  token: z
    .string()
    .regex(/^[\x21-\x7e]+$/, "must be printable ASCII without spaces")
    .optional(),
  env: envSchema.optional(),
  suspensionKeys: z
    .string()
    // What is wrong is told without what they are.
    .superRefine((keys, issues) => {
      const parsed = parseKeyList(keys);
      if (typeof parsed === "string") issues.addIssue({ code: "custom", message: parsed });
    })
    .optional(),
});
export type ConfigUpdate = z.infer<typeof configSchema>;

/** Checks a dispatch. Throws `missing_run_id` or `bad_input` with the path of the first field that is wrong. */
export function parseDispatch(value: unknown): DispatchBody {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new HttpError("bad_input", "the body must be a JSON object");
  }
  const id = (value as { runId?: unknown }).runId;
  if (id === undefined || id === null || id === "") throw new HttpError("missing_run_id");
  const body = check(dispatchSchema, value);
  const { input } = body;
  if (input.userMessage === undefined && !input.answers?.length) {
    throw new HttpError("bad_input", "input.userMessage is required");
  }
  // A runner outside the pod carries out its calls itself; what a person approved is always for the daemon.
  const isOutside = Boolean(input.relay) && !input.answers?.length;
  if (!input.callback && !isOutside) expectNoCallbackTool(input);
  return body;
}

function expectNoCallbackTool({ tools }: DispatchInput): void {
  for (const [index, { name, kind }] of (tools ?? []).entries()) {
    if (kind !== "callback") continue;
    const reason = `${name} is a callback tool, and there is no input.callback`;
    throw new HttpError("bad_input", `input.tools.${index}: ${reason}`);
  }
}

export const answerBodySchema = z.looseObject({ answers: answersSchema });
export type ParsedAnswers = z.infer<typeof answerBodySchema>;

/** Answers to a run that waits. Throws `bad_input`. */
export function parseAnswers(value: unknown): ParsedAnswers {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new HttpError("bad_input", "the body must be a JSON object");
  }
  const body = check(answerBodySchema, value);
  if (body.answers.length === 0) throw new HttpError("bad_input", "answers: must be at least one");
  return body;
}

/** The run's tools, with what was not said of them. */
export function toolSpecsOf({ tools }: DispatchInput): readonly ToolSpec[] {
  return toToolSpecs(tools);
}

/** `value` as `schema` reads it, or `bad_input` that names the field. */
export function check<T>(schema: z.ZodType<T>, value: unknown): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  const path = issue?.path.map(String).join(".") || "body";
  // Of a name in a record the inner issue says what is wrong with it.
  const message = (issue?.code === "invalid_key" ? issue.issues[0] : issue)?.message ?? "is not valid";
  throw new HttpError("bad_input", `${path}: ${message}`);
}

/** Of any value: what is wrong with the message otherwise is told by its schema. */
function hasText(message: unknown): boolean {
  if (typeof message === "string") return message.trim() !== "";
  const { parts, content } = (message ?? {}) as { parts?: unknown; content?: unknown };
  if (typeof content === "string") return content.trim() !== "";
  if (!Array.isArray(parts)) return false;
  return parts.some((part) => part?.type === "text" && typeof part.text === "string" && part.text.trim() !== "");
}
