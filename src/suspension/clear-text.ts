/**
 * What a client sends back in clear is used for nothing, and still has to equal what was signed: a person may have been
 * shown it. Clients echo in the shapes of their protocols: AG-UI's interrupts and resume entries, the AI SDK's
 * approvals. What is missing, or null where the signed cannot be null, was not sent.
 */
import { CanonicalJsonError, sameJson } from "../canonical-json.ts";
import { isApproved } from "./approval.ts";
import { schemaHashOf } from "./hashes.ts";
import type { ResumeRequest, SignedInterrupt, Suspension } from "./port.ts";
import { correctable, type Problem } from "./stale.ts";

/** A token, and the interrupt that it came with. */
export interface TokenCopy {
  readonly token: unknown;
  readonly interruptId?: string | undefined;
}

/** Every token of a request, `input.suspension` first. */
export function tokensOf({ token, answers, clear }: ResumeRequest): TokenCopy[] {
  const copies: TokenCopy[] = [{ token }];
  for (const answer of answers) {
    const { suspension, signature } = fieldsOf(answer.metadata);
    for (const each of [suspension, signature, answer.signature]) {
      copies.push({ token: each, interruptId: answer.interruptId });
    }
  }
  for (const interrupt of clear.interrupts ?? []) {
    const { id, metadata } = fieldsOf(interrupt);
    copies.push({ token: fieldsOf(metadata).suspension, interruptId: typeof id === "string" ? id : undefined });
  }
  for (const each of clear.approvals ?? []) {
    const { signature, approval } = fieldsOf(each);
    copies.push({ token: signature }, { token: fieldsOf(approval).signature });
  }
  return copies.filter((copy) => copy.token !== undefined && copy.token !== null);
}

/** What in clear is not what was signed; undefined when nothing is. */
export function compareClearText({ answers, clear }: ResumeRequest, suspension: Suspension): Problem | undefined {
  const { mode, interrupts = [], approvals = [] } = clear;
  if (mode !== undefined && mode !== suspension.mode) return correctable("the mode is not that of the suspended turn");
  for (const { interruptId, metadata } of answers) {
    const signed = suspension.interrupts.find(({ id }) => id === interruptId);
    const { toolCallId, toolName, input } = fieldsOf(metadata);
    const problem = compare({ toolCallId, toolName, input }, signed, suspension, interruptId);
    if (problem) return problem;
  }
  for (const interrupt of interrupts) {
    const { id, reason, toolCallId, expiresAt, responseSchema, metadata } = fieldsOf(interrupt);
    const { toolName, input } = fieldsOf(metadata);
    const signed = suspension.interrupts.find((each) => each.id === id);
    const sent = { reason, toolCallId, toolName, input, expiresAt, responseSchema };
    const problem = compare(sent, signed, suspension, typeof id === "string" ? id : undefined);
    if (problem) return problem;
  }
  for (const part of approvals) {
    const { type, toolCallId, toolName = nameInType(type), input, approval, approvalId, approved } = fieldsOf(part);
    // The AI SDK has them in a tool's part, or in a part of its own that names the approval alone.
    const { id = approvalId, approved: isYes = approved } = fieldsOf(approval);
    const signed = suspension.interrupts.find((each) =>
      isAbsent(toolCallId) ? each.id === id : each.toolCallId === toolCallId,
    );
    const problem = compare({ id, toolCallId, toolName, input }, signed, suspension);
    if (problem) return problem;
    const answer = answers.find(({ interruptId }) => interruptId === signed?.id);
    if (typeof isYes === "boolean" && answer && isApproved(answer) !== isYes) {
      return correctable("the approval in clear says otherwise than its answer", signed?.id);
    }
  }
  return undefined;
}

interface SentFacts {
  readonly id?: unknown;
  readonly reason?: unknown;
  readonly toolCallId: unknown;
  readonly toolName: unknown;
  readonly input: unknown;
  readonly expiresAt?: unknown;
  readonly responseSchema?: unknown;
}

function compare(
  sent: SentFacts,
  signed: SignedInterrupt | undefined,
  { expiresAt }: Suspension,
  interruptId = signed?.id,
): Problem | undefined {
  if (!signed) return correctable("what was sent back in clear is of another suspension", interruptId);
  const is = (value: unknown, expected: string): boolean => isAbsent(value) || value === expected;
  const equal: Readonly<Record<keyof SentFacts, boolean>> = {
    id: is(sent.id, signed.id),
    reason: is(sent.reason, signed.reason),
    toolCallId: is(sent.toolCallId, signed.toolCallId),
    toolName: is(sent.toolName, signed.toolName),
    // An input may be null.
    input: sent.input === undefined || sameJson(sent.input, signed.input),
    expiresAt: isAbsent(sent.expiresAt) || Date.parse(String(sent.expiresAt)) === expiresAt,
    responseSchema: isAbsent(sent.responseSchema) || hashOf(sent.responseSchema) === signed.responseSchemaHash,
  };
  const [different] = Object.entries(equal).find(([, isEqual]) => !isEqual) ?? [];
  return different === undefined ? undefined : correctable(`${different} in clear is not what was signed`, signed.id);
}

function isAbsent(value: unknown): boolean {
  return value === undefined || value === null;
}

/** Parts that are about a call's approval, and are none of the call. */
const APPROVAL_PARTS: ReadonlySet<string> = new Set(["tool-approval-request", "tool-approval-response"]);

/** Of a tool's part in the AI SDK: `tool-NAME`, or `dynamic-tool`, which has the name beside it. */
function nameInType(type: unknown): string | undefined {
  if (typeof type !== "string" || !type.startsWith("tool-") || APPROVAL_PARTS.has(type)) return undefined;
  return type.slice("tool-".length);
}

function hashOf(schema: unknown): string | undefined {
  try {
    return schemaHashOf(schema);
  } catch (thrown) {
    if (thrown instanceof CanonicalJsonError) return undefined;
    throw thrown;
  }
}

/** Of what is no object: none. */
function fieldsOf(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}
