/** A suspension as a daemon would issue one, and the resume that fits it: what a test changes is what it is about. */
import { expect } from "bun:test";
import { type NamedKey, parseKeyList } from "../../src/key-list.ts";
import { schemaHashOf, toolHashOf } from "../../src/suspension/hashes.ts";
import { issueSuspension } from "../../src/suspension/issue.ts";
import type {
  ResumeRequest,
  SignedInterrupt,
  SuspensionKeys,
  SuspensionState,
  ToolFacts,
  VerifyResult,
} from "../../src/suspension/port.ts";
import { verifySuspension } from "../../src/suspension/verify.ts";

export const NOW = Date.UTC(2026, 0, 2, 3, 4, 5, 678);
export const TTL_MS = 3_600_000;

export function keyOf(id: string, byte: number): NamedKey {
  const [key] = parseKeyList(`${id}:${Buffer.alloc(32, byte).toString("base64url")}`);
  if (typeof key === "string" || !key) throw new Error("no key");
  return key;
}

export const KEY = keyOf("one", 1);

export const CONNECT = {
  name: "connect_account",
  kind: "client",
  inputSchema: { type: "object", properties: { provider: { type: "string" } } },
} satisfies ToolFacts;
export const DELETE = {
  name: "delete_branch",
  kind: "callback",
  inputSchema: { type: "object" },
  permission: "ask",
} satisfies ToolFacts;

/** What answers have to look like, by the interrupt's id. The third takes anything. */
export const RESPONSE_SCHEMAS: Readonly<Record<string, unknown>> = {
  i1: { type: "string" },
  i2: { type: "object", required: ["approved"] },
  i3: null,
};

export const INTERRUPTS = [
  {
    id: "i1",
    reason: "dispatchd:client_tool",
    toolCallId: "toolu_1",
    toolName: CONNECT.name,
    input: JSON.parse('{"provider":"github","scopes":["repo"],"__proto__":{"admin":false}}'),
    toolHash: toolHashOf(CONNECT),
    responseSchemaHash: schemaHashOf(RESPONSE_SCHEMAS.i1),
  },
  {
    id: "i2",
    reason: "tool_call",
    toolCallId: "toolu_2",
    toolName: DELETE.name,
    input: { branch: "old" },
    toolHash: toolHashOf(DELETE),
    responseSchemaHash: schemaHashOf(RESPONSE_SCHEMAS.i2),
  },
  {
    id: "i3",
    reason: "input_required",
    toolCallId: "toolu_3",
    toolName: "AskUserQuestion",
    input: null,
    responseSchemaHash: schemaHashOf(null),
  },
] as const satisfies readonly SignedInterrupt[];

export const STATE: SuspensionState = {
  audience: "dispatchd",
  organizationId: "acme",
  threadId: "thread-1",
  runId: "run-1",
  mode: "plan",
  interrupts: INTERRUPTS,
  subagents: [{ toolCallId: "toolu_0", toolName: "Task", input: { prompt: "look around" } }],
};

export const ANSWERS = [
  { interruptId: "i1", status: "resolved", payload: "connected" },
  { interruptId: "i2", status: "resolved", payload: { approved: true } },
  { interruptId: "i3", status: "cancelled" },
] as const;

export async function issue(
  state: SuspensionState = STATE,
  keys: SuspensionKeys = [KEY],
  now = NOW,
  ttlMs = TTL_MS,
): Promise<{ readonly token: string; readonly id: string; readonly expiresAt: number }> {
  const issued = await issueSuspension(state, keys, now, ttlMs);
  if (issued.type !== "issued") throw new Error(issued.reason);
  return issued;
}

/** JSON Schema, as far as these tests use it. */
function validate(schema: unknown, payload: unknown): string | undefined {
  const { type, required = [] } = schema as { type: string; required?: string[] };
  if (typeof payload !== type || payload === null) return `must be ${type}`;
  const missing = required.find((name) => !Object.hasOwn(payload as object, name));
  return missing && `must have ${missing}`;
}

export function requestFor(token: unknown, changes: Partial<ResumeRequest> = {}): ResumeRequest {
  return {
    token,
    audience: "dispatchd",
    organizationId: "acme",
    threadId: "thread-1",
    answers: ANSWERS,
    tools: [DELETE, CONNECT],
    responseSchemaOf: ({ id }) => RESPONSE_SCHEMAS[id],
    validate,
    clear: {},
    ...changes,
  };
}

export async function verify(
  token: unknown,
  changes: Partial<ResumeRequest> = {},
  { keys = [KEY] as SuspensionKeys, now = NOW + 1000 } = {},
): Promise<VerifyResult> {
  return await verifySuspension(requestFor(token, changes), keys, now);
}

export function expectValid(result: VerifyResult) {
  if (result.type !== "valid") throw new Error(`stale: ${result.reason}`);
  expect(result.type).toBe("valid");
  return result;
}
