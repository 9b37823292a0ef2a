/** `/openapi.json`, from the schemas that requests are checked with. Loaded when it is asked for. */
import { z } from "zod";
import { answerBodySchema, configSchema, dispatchSchema } from "../dispatch/input.ts";
import { HTTP_STATUS, RUN_ERROR_CODES } from "../errors.ts";
import { mountRequestSchema } from "../orgfs/mount-request.ts";

const error = z.looseObject({
  error: z.enum(Object.keys(HTTP_STATUS) as [string, ...string[]]),
  detail: z.string().optional(),
});

const runError = z.object({
  code: z.enum(RUN_ERROR_CODES),
  message: z.string(),
  reason: z.enum(["shutdown", "detached", "restarted"]).optional(),
  interruptId: z.string().optional(),
  dead: z.boolean().optional(),
});
const usage = z.record(z.string(), z.number());
/** AG-UI's fields. */
const interrupt = z.looseObject({
  id: z.string(),
  reason: z.enum(["tool_call", "input_required", "confirmation", "dispatchd:client_tool"]),
  message: z.string().optional(),
  toolCallId: z.string(),
  responseSchema: z.record(z.string(), z.unknown()).optional(),
  expiresAt: z.iso.datetime(),
  metadata: z.looseObject({
    toolName: z.string(),
    input: z.unknown(),
    render: z.unknown().optional(),
    suspension: z.string().optional(),
    inSubagent: z.literal(true).optional(),
  }),
});
const outcome = z.discriminatedUnion("type", [
  z.object({ type: z.literal("finished"), usage: usage.optional() }),
  z.object({
    type: z.literal("interrupt"),
    interrupts: z.array(interrupt),
    suspension: z.string(),
    usage: usage.optional(),
  }),
  z.object({ type: z.literal("failed"), error: runError, usage: usage.optional() }),
]);
const settled = z.object({
  saved: z.boolean(),
  generation: z.string().optional(),
  bytes: z.number().optional(),
  reason: z.string().optional(),
});
const run = z.object({
  runId: z.string(),
  attempt: z.int(),
  threadId: z.string(),
  state: z.enum(["preparing", "running", "settling", "ended"]),
  startedAt: z.iso.datetime(),
  endedAt: z.iso.datetime().optional(),
  detachedAt: z.iso.datetime().optional(),
  lastSeq: z.int(),
  readers: z.int(),
  relay: z.object({ directory: z.string() }).optional(),
  outcome: outcome.optional(),
  error: runError.optional(),
  settled: settled.optional(),
});
const preparationState = z.enum(["none", "ready", "timeout", "failed"]);
const frame = z.object({
  seq: z.int().min(1),
  chunks: z.array(z.looseObject({ type: z.string() })),
  preparation: z
    .object({
      home: preparationState,
      skills: preparationState,
      waitedMs: z.number(),
      session: z.enum(["fresh", "local", "restored", "stale-session"]),
      generation: z.string().optional(),
      reason: z.string().optional(),
    })
    .optional(),
  waiting: z
    .object({ interrupts: z.array(interrupt), suspension: z.string().optional(), until: z.iso.datetime() })
    .optional(),
  outcome: outcome.optional(),
  settled: settled.optional(),
  error: runError.optional(),
  done: z.literal(true).optional(),
});
const health = z.object({
  status: z.literal("ok"),
  bootId: z.string(),
  version: z.string(),
  draining: z.boolean(),
  isolation: z.enum(["user", "none"]),
  runs: z.int(),
  org: z.union([z.literal("none"), z.object({ home: z.enum(["unmounted", "mounted", "hanging"]), stuck: z.int() })]),
  proof: z.string().optional(),
});
const idle = z.object({ idleSince: z.iso.datetime(), idleMs: z.number() });

type Schema = Readonly<Record<string, unknown>>;

const schemaOf = (schema: z.ZodType): Schema => z.toJSONSchema(schema, { unrepresentable: "any", io: "input" });
const json = (schema: z.ZodType, description: string): Schema => ({
  description,
  content: { "application/json": { schema: schemaOf(schema) } },
});
const noContent = (description: string): Schema => ({ description });
const frames: Schema = {
  description: "Frames, one JSON object a line; a bare newline is a keepalive",
  content: { "application/x-ndjson": { schema: schemaOf(frame) } },
};
const refusal = json(error, "Refused");
const parameter = (name: string, place: "path" | "query" | "header", type: string): Schema => ({
  name,
  in: place,
  required: place === "path",
  schema: { type },
});
const runId = parameter("runId", "path", "string");

/** The document; `version` is the daemon's. */
export function openApi(version: string): Schema {
  return {
    openapi: "3.1.0",
    info: { title: "dispatchd", version },
    components: { securitySchemes: { token: { type: "http", scheme: "bearer" } } },
    security: [{ token: [] }],
    paths: {
      "/dispatch": {
        post: {
          summary: "Starts, takes up or replays a run",
          requestBody: { required: true, content: { "application/json": { schema: schemaOf(dispatchSchema) } } },
          responses: { 200: frames, 204: noContent("Nothing comes after `after`"), default: refusal },
        },
      },
      "/runs": {
        get: { summary: "Runs that are kept", responses: { 200: json(z.object({ runs: z.array(run) }), "Runs") } },
      },
      "/runs/{runId}": {
        parameters: [runId],
        get: { summary: "One run", responses: { 200: json(run, "The run"), default: refusal } },
        delete: {
          summary: "Cancels a run, known or not",
          parameters: [parameter("wait", "query", "string")],
          responses: { 204: noContent("Cancelled"), default: refusal },
        },
      },
      "/runs/{runId}/answers": {
        parameters: [runId],
        post: {
          summary: "Answers questions of a run that waits",
          requestBody: { required: true, content: { "application/json": { schema: schemaOf(answerBodySchema) } } },
          responses: { 200: json(z.object({ accepted: z.int() }), "Taken, all of them"), default: refusal },
        },
      },
      "/runs/{runId}/frames": {
        parameters: [runId],
        get: {
          summary: "Reads a run; server-sent events when the Accept header asks for them",
          parameters: [
            parameter("after", "query", "integer"),
            parameter("attempt", "query", "integer"),
            parameter("Last-Event-ID", "header", "integer"),
          ],
          responses: { 200: frames, 204: noContent("Nothing comes after `after`"), default: refusal },
        },
      },
      "/config": {
        post: {
          summary: "Token and variables for later runs",
          requestBody: { required: true, content: { "application/json": { schema: schemaOf(configSchema) } } },
          responses: { 204: noContent("In force"), default: refusal },
        },
      },
      "/orgfs-config": {
        post: {
          summary: "What to mount, for the sidecar",
          requestBody: { required: true, content: { "application/json": { schema: schemaOf(mountRequestSchema) } } },
          responses: {
            200: json(z.object({ written: z.boolean() }), "Whether there is a sidecar to read it"),
            default: refusal,
          },
        },
      },
      "/health": {
        get: {
          summary: "Is the daemon alive",
          security: [],
          parameters: [parameter("nonce", "query", "string")],
          responses: { 200: json(health, "It is") },
        },
      },
      "/idle": { get: { summary: "Since when nothing happens", responses: { 200: json(idle, "Idle time") } } },
      "/metrics": {
        get: {
          summary: "Prometheus metrics",
          responses: { 200: { description: "Metrics", content: { "text/plain": { schema: { type: "string" } } } } },
        },
      },
      "/openapi.json": { get: { summary: "This document", responses: { 200: { description: "OpenAPI 3.1" } } } },
    },
  };
}
