/**
 * The checks on a resume before anything is started. What cannot be mended comes first: a caller that mends something
 * else and is then told to ask again has asked its person for nothing.
 */
import { CanonicalJsonError, canonicalJson } from "../canonical-json.ts";
import { readClaims, suspensionIdIn } from "./claims.ts";
import { compareClearText, tokensOf } from "./clear-text.ts";
import { schemaHashOf, toolHashOf } from "./hashes.ts";
import {
  CLOCK_SKEW_MS,
  MAX_PAYLOADS_BYTES,
  MAX_TOKEN_BYTES,
  type ResumeRequest,
  type Suspension,
  type VerifySuspension,
} from "./port.ts";
import { correctable, dead, type Problem } from "./stale.ts";
import { openToken, readUnverified } from "./token.ts";

/** Of answers, and of what is echoed: many times what a turn can ask. A body has room for a million. */
const MAX_ENTRIES = 1024;

export const verifySuspension: VerifySuspension = async (request, keys, now) => {
  const { answers, clear } = request;
  const tooMany = [answers, clear.interrupts, clear.approvals].some((list) => list && list.length > MAX_ENTRIES);
  const copies = tooMany ? [] : tokensOf(request);
  const [first] = copies;
  const about = (problem: Problem) => {
    const interruptId = problem.interruptId ?? request.answers[0]?.interruptId;
    const suspensionId = typeof first?.token === "string" ? idIn(first.token) : undefined;
    return {
      type: "stale",
      reason: problem.reason,
      dead: problem.dead,
      ...(interruptId === undefined ? {} : { interruptId }),
      ...(suspensionId === undefined ? {} : { suspensionId }),
    } as const;
  };
  if (tooMany) return about(correctable("more was sent back than anybody can have been asked"));
  if (!first) return about(correctable("the answers came without their suspension"));
  const { token } = first;
  if (typeof token !== "string") return about(correctable("the suspension is no text"));
  if (token.length > MAX_TOKEN_BYTES) return about(dead(`the suspension is larger than ${MAX_TOKEN_BYTES} bytes`));
  const other = copies.find((copy) => copy.token !== token);
  if (other) return about(correctable("the suspension came more than once, and not the same", other.interruptId));

  const opened = await openToken(token, keys, request.organizationId);
  if (opened.type === "closed") return about(dead(opened.reason));
  const suspension = readClaims(opened.claims);
  if (typeof suspension === "string") return about(dead(suspension));
  const problem =
    checkTimes(suspension, now) ??
    checkPlace(suspension, request) ??
    checkSchemas(suspension, request) ??
    checkAnswers(suspension, request) ??
    checkPayloads(suspension, request) ??
    compareClearText(request, suspension);
  return problem ? about(problem) : { type: "valid", suspension, signedBy: opened.signedBy };
};

/** What is true of a token whatever it is used for; undefined when it may be used. */
export function checkTimes({ issuedAt, expiresAt }: Suspension, now: number): Problem | undefined {
  if (now >= expiresAt + CLOCK_SKEW_MS) return dead("the suspension has expired");
  // Time will mend it, or the clock of a pod.
  if (issuedAt > now + CLOCK_SKEW_MS) return correctable("the suspension was issued in the future");
  return undefined;
}

function checkPlace(suspension: Suspension, request: ResumeRequest): Problem | undefined {
  if (suspension.audience !== request.audience) return dead("the suspension is for another audience");
  if (suspension.organizationId !== request.organizationId) return dead("the suspension is of another organization");
  if (suspension.threadId !== request.threadId) return dead("the suspension is of another thread");
  return undefined;
}

/** A person was asked about these tools, and with this form for the answer. */
function checkSchemas({ interrupts }: Suspension, { tools, responseSchemaOf }: ResumeRequest): Problem | undefined {
  for (const interrupt of interrupts) {
    const { id, toolName, toolHash, responseSchemaHash } = interrupt;
    if (toolHash !== undefined) {
      const tool = tools.find(({ name }) => name === toolName);
      if (!tool) return dead("the tool that was asked for is none of the run's", id);
      if (hashOrNone(() => toolHashOf(tool)) !== toolHash) {
        return dead("the tool has another schema, kind or permission than when it was asked for", id);
      }
    }
    if (hashOrNone(() => schemaHashOf(responseSchemaOf(interrupt))) !== responseSchemaHash) {
      return dead("an answer has to look otherwise than when it was asked for", id);
    }
  }
  return undefined;
}

/** Each interrupt once and no other. */
function checkAnswers({ interrupts }: Suspension, { answers }: ResumeRequest): Problem | undefined {
  const open = new Set(interrupts.map(({ id }) => id));
  const answered = new Set<string>();
  for (const { interruptId } of answers) {
    if (answered.has(interruptId)) return correctable("the interrupt is answered twice", interruptId);
    if (!open.has(interruptId)) return correctable("there is no such interrupt in the suspension", interruptId);
    answered.add(interruptId);
  }
  const missing = interrupts.find(({ id }) => !answered.has(id));
  return missing && correctable("the interrupt is not answered", missing.id);
}

function checkPayloads({ interrupts }: Suspension, request: ResumeRequest): Problem | undefined {
  let left = MAX_PAYLOADS_BYTES;
  for (const { interruptId, payload } of request.answers) {
    if (payload === undefined) continue;
    try {
      left -= Buffer.byteLength(canonicalJson(payload, left));
    } catch (thrown) {
      if (!(thrown instanceof CanonicalJsonError)) throw thrown;
      if (thrown.code !== "too_large") return correctable(`the payload ${thrown.message}`, interruptId);
      return correctable(`the payloads are larger than ${MAX_PAYLOADS_BYTES} bytes together`, interruptId);
    }
  }
  for (const { interruptId, status, payload } of request.answers) {
    const interrupt = interrupts.find(({ id }) => id === interruptId);
    if (status === "cancelled" || !interrupt) continue;
    const schema = request.responseSchemaOf(interrupt) ?? null;
    if (schema === null) continue;
    if (payload === undefined) return correctable("the payload is missing", interruptId);
    const wrong = request.validate(schema, payload);
    if (wrong !== undefined) return correctable(`the payload does not fit its schema: ${wrong}`, interruptId);
  }
  return undefined;
}

function idIn(token: string): string | undefined {
  // What is too large is not read, not even for its id.
  if (token.length > MAX_TOKEN_BYTES) return undefined;
  const claims = readUnverified(token)?.claims;
  return claims === undefined ? undefined : suspensionIdIn(claims);
}

/** What has no canonical text has no hash, and is not what was signed. */
function hashOrNone(hash: () => string): string | undefined {
  try {
    return hash();
  } catch (thrown) {
    if (thrown instanceof CanonicalJsonError) return undefined;
    throw thrown;
  }
}
