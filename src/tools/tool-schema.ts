/** What a dispatch says of its tools, and of answers. Loaded with the rest of its schema, behind `import()`. */
import { z } from "zod";
import { CanonicalJsonError, canonicalJson } from "../canonical-json.ts";
import { MAX_HOLD_SECONDS } from "./dispositions.ts";
import { compileSchema, JsonSchemaError } from "./json-schema.ts";
import type { JsonSchema, ToolSpec } from "./port.ts";
import { isPublicKey } from "./relay/keys.ts";

const MAX_TOOLS = 256;
/** Of a description and of a schema, each, in UTF-8 bytes. */
const MAX_TEXT_BYTES = 64 << 10;
/** Of all tools together: every request to the model has them in it. */
const MAX_ALL_BYTES = 1 << 20;
const DEFAULT_TIMEOUT_MS = 60_000;
const MAX_TIMEOUT_MS = 3_600_000;
const MAX_ANSWERS = 256;
const MAX_ID_CHARS = 1024;
const MAX_HEADERS = 64;
const MAX_HEADERS_BYTES = 64 << 10;

/** Kept as the object that it is: what was compiled is known by it. */
const jsonSchema = z
  .custom<JsonSchema>((value) => typeof value === "object" && value !== null && !Array.isArray(value), {
    error: "must be a JSON Schema",
    abort: true,
  })
  .refine((schema) => bytesOf(schema) <= MAX_TEXT_BYTES, {
    error: `must be at most ${MAX_TEXT_BYTES} bytes`,
    abort: true,
  })
  .superRefine((schema, context) => {
    try {
      compileSchema(schema);
      // A question about the tool is signed with it.
      canonicalJson(schema);
    } catch (error) {
      if (error instanceof CanonicalJsonError) context.addIssue(error.message);
      else if (error instanceof JsonSchemaError)
        context.addIssue(`is no JSON Schema that can be used: ${error.message}`);
      else throw error;
    }
  })
  .meta({ type: "object" });

/** Models call tools with objects; one that says nothing of its type takes an object. */
const inputSchema = jsonSchema.refine(({ type }) => type === undefined || type === "object", 'must have type "object"');

const tool = z
  .looseObject({
    name: z.string().regex(/^[A-Za-z0-9_-]{1,64}$/, "must be 1 to 64 letters, digits, _ or -"),
    description: z
      .string()
      .refine((text) => Buffer.byteLength(text) <= MAX_TEXT_BYTES, `must be at most ${MAX_TEXT_BYTES} bytes`),
    inputSchema,
    kind: z.enum(["callback", "client"]),
    timeoutMs: z.int().min(1).max(MAX_TIMEOUT_MS).nullish(),
    permission: z.enum(["allow", "ask", "deny"]).nullish(),
    readOnly: z.boolean().nullish(),
    render: z.unknown().optional(),
    responseSchema: jsonSchema.nullish(),
  })
  .refine(({ render }) => bytesOf(render) <= MAX_TEXT_BYTES, {
    path: ["render"],
    error: `must be at most ${MAX_TEXT_BYTES} bytes`,
  });

export const toolsSchema = boundedList(z.array(tool), MAX_TOOLS, "tools", MAX_ALL_BYTES).superRefine(
  (tools, context) => {
    const places = new Map<string, number>();
    for (const [index, { name }] of tools.entries()) {
      const first = places.get(name);
      if (first === undefined) places.set(name, index);
      else
        context.addIssue({
          code: "custom",
          path: [index, "name"],
          message: `${name} is the name of tool ${first} too`,
        });
    }
  },
);

export type ToolsInput = z.infer<typeof toolsSchema>;

export const callbackSchema = z.looseObject({
  url: z
    .url({ protocol: /^https?$/, error: "must be an http or https URL" })
    .refine((url) => hasNoUser(url), "must not have a user or password in it: headers are the place for them"),
  headers: z
    .record(
      z.string().regex(/^[\w!#$%&'*+.^`|~-]+$/, "is no name of a header"),
      z.string().regex(/^[\t\x20-\x7e\x80-\xff]*$/, "is no value of a header"),
    )
    .refine((headers) => Object.keys(headers).length <= MAX_HEADERS, `must be at most ${MAX_HEADERS} headers`)
    .refine((headers) => bytesOf(headers) <= MAX_HEADERS_BYTES, `must be at most ${MAX_HEADERS_BYTES} bytes together`)
    .nullish(),
});

/** `holdSeconds`: how long the turn waits for a person; 0 or absent: it ends at once. */
export const clientToolsSchema = z.looseObject({ holdSeconds: z.number().min(0).max(MAX_HOLD_SECONDS).nullish() });

/** The key of a runner outside the pod that answers in the daemon's place. */
export const relaySchema = z.looseObject({
  publicKey: z.string().refine(isPublicKey, "must be an Ed25519 key: base64url of 32 bytes"),
});

/** AG-UI's resume entries. */
export const answersSchema = boundedList(
  z.array(
    z.looseObject({
      interruptId: z.string().min(1).max(MAX_ID_CHARS),
      status: z.enum(["resolved", "cancelled"]),
      payload: z.unknown().optional(),
      metadata: z.unknown().optional(),
    }),
  ),
  MAX_ANSWERS,
  "answers",
);

export function toToolSpecs(tools: ToolsInput | null | undefined): readonly ToolSpec[] {
  return (tools ?? []).map((tool) => ({
    name: tool.name,
    description: tool.description,
    inputSchema: objectSchema(tool.inputSchema),
    kind: tool.kind,
    permission: tool.permission ?? "allow",
    // A person's answer changes nothing in the pod. Without it plan mode refuses the call, and calls wait for each other.
    readOnly: tool.kind === "client" || tool.readOnly === true,
    timeoutMs: tool.timeoutMs ?? DEFAULT_TIMEOUT_MS,
    ...(tool.responseSchema ? { responseSchema: tool.responseSchema } : {}),
    ...(tool.render === undefined ? {} : { render: tool.render }),
  }));
}

/** What is too much is not looked at one by one: that would hold up everything else. */
function boundedList<T extends z.ZodType>(list: T, max: number, noun: string, maxBytes = Number.POSITIVE_INFINITY) {
  return z.preprocess((value, context) => {
    if (!Array.isArray(value)) return value;
    const problem =
      value.length > max
        ? `must be at most ${max} ${noun}`
        : maxBytes < Number.POSITIVE_INFINITY && bytesOf(value) > maxBytes
          ? `must be at most ${maxBytes} bytes together`
          : undefined;
    if (problem === undefined) return value;
    context.addIssue(problem);
    return z.NEVER;
  }, list);
}

function objectSchema(schema: JsonSchema): JsonSchema {
  return schema.type === undefined ? { ...schema, type: "object" } : schema;
}

function bytesOf(value: unknown): number {
  return Buffer.byteLength(JSON.stringify(value) ?? "");
}

function hasNoUser(url: string): boolean {
  if (!URL.canParse(url)) return true;
  const { username, password } = new URL(url);
  return username === "" && password === "";
}
