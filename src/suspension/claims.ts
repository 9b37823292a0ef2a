/** A suspension as the JSON in a token: the registered names where there are some, times in whole seconds. */
import { CanonicalJsonError, canonicalJson } from "../canonical-json.ts";
import type { PlannedSubagent, SignedInterrupt, Suspension } from "./port.ts";

/** Grows when older daemons must not act on what newer ones write. */
const VERSION = 1;
const SUSPENSION_ID = /^[0-9a-f]{32}$/;

/** Throws CanonicalJsonError. */
export function claimsOf(suspension: Suspension): string {
  const { id, audience, issuedAt, expiresAt, ...state } = suspension;
  return canonicalJson({ v: VERSION, jti: id, aud: audience, iat: issuedAt / 1000, exp: expiresAt / 1000, ...state });
}

/** A text says what is wrong. Only what was signed, or needs no signature, is to be believed. */
export function readClaims(text: string): Suspension | string {
  const claims = parseObject(text);
  if (!claims) return "the suspension is no JSON object";
  const { v, jti, aud, iat, exp, organizationId, threadId, runId, mode, interrupts, subagents } = claims;
  if (v !== VERSION) return "the suspension is of another version of the daemon";
  if (exp === undefined) return "the suspension has no expiry";
  if (!isSeconds(exp) || !isSeconds(iat)) return "the suspension's times are no whole seconds";
  if (typeof jti !== "string" || !SUSPENSION_ID.test(jti)) return "the suspension has no id of ours";
  const isWhole =
    isText(aud) &&
    isText(threadId) &&
    isText(runId) &&
    (organizationId === undefined || isText(organizationId)) &&
    (mode === undefined || isText(mode)) &&
    isListOf(interrupts, isInterrupt) &&
    (subagents === undefined || isListOf(subagents, isSubagent));
  if (!isWhole || interrupts.length === 0) return "the suspension lacks something";
  if (new Set(interrupts.map(({ id }) => id)).size < interrupts.length) return "two interrupts have the same id";
  return {
    id: jti,
    audience: aud,
    ...(organizationId === undefined ? {} : { organizationId }),
    threadId,
    runId,
    ...(mode === undefined ? {} : { mode }),
    interrupts,
    ...(subagents === undefined ? {} : { subagents }),
    issuedAt: iat * 1000,
    expiresAt: exp * 1000,
  };
}

/** For a log, of claims that nobody has verified. */
export function suspensionIdIn(text: string): string | undefined {
  const jti = parseObject(text)?.jti;
  return typeof jti === "string" && SUSPENSION_ID.test(jti) ? jti : undefined;
}

function parseObject(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    // Unsigned claims are anybody's: whoever walks through the inputs shall meet no depth that the stack cannot hold.
    canonicalJson(value);
    const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
    return isObject ? (value as Record<string, unknown>) : undefined;
  } catch (thrown) {
    if (thrown instanceof SyntaxError || thrown instanceof CanonicalJsonError) return undefined;
    throw thrown;
  }
}

function isInterrupt(value: unknown): value is SignedInterrupt {
  const { id, reason, toolHash, responseSchemaHash } = (value ?? {}) as Partial<Record<string, unknown>>;
  return (
    isSubagent(value) &&
    isText(id) &&
    isText(reason) &&
    isText(responseSchemaHash) &&
    (toolHash === undefined || isText(toolHash))
  );
}

function isSubagent(value: unknown): value is PlannedSubagent {
  if (typeof value !== "object" || value === null || !Object.hasOwn(value, "input")) return false;
  const { toolCallId, toolName } = value as Partial<Record<string, unknown>>;
  return isText(toolCallId) && isText(toolName);
}

function isListOf<T>(value: unknown, isMember: (member: unknown) => member is T): value is T[] {
  return Array.isArray(value) && value.every(isMember);
}

function isText(value: unknown): value is string {
  return typeof value === "string";
}

function isSeconds(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0 && (value as number) <= MAX_SECONDS;
}

/** What a Date can hold. */
const MAX_SECONDS = 8.64e12;
