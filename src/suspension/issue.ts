import { CanonicalJsonError, canonicalJson } from "../canonical-json.ts";
import { randomHex } from "../random-hex.ts";
import { claimsOf } from "./claims.ts";
import { type IssueResult, type IssueSuspension, MAX_INPUTS_BYTES, MAX_TOKEN_BYTES, type Suspension } from "./port.ts";
import { signToken, unsignedToken } from "./token.ts";

/**
 * Signs with the first key; without one the token is of the unsigned form. Throws for a state that nobody could resume:
 * without interrupts, or with two of one id.
 */
export const issueSuspension: IssueSuspension = async (state, keys, now, ttlMs) => {
  const ids = new Set(state.interrupts.map(({ id }) => id));
  if (ids.size === 0 || ids.size < state.interrupts.length) throw new Error("each interrupt needs an id of its own");
  const issuedAt = Math.floor(now / 1000) * 1000;
  const expiresAt = Math.ceil((now + ttlMs) / 1000) * 1000;
  const suspension: Suspension = { ...state, id: state.id ?? randomHex(16), issuedAt, expiresAt };
  let left = MAX_INPUTS_BYTES;
  let claims: string;
  try {
    for (const { input } of [...state.interrupts, ...(state.subagents ?? [])]) {
      left -= Buffer.byteLength(canonicalJson(input, left));
    }
    claims = claimsOf(suspension);
  } catch (thrown) {
    if (!(thrown instanceof CanonicalJsonError)) throw thrown;
    if (thrown.code !== "too_large") return refused("not_json", `what is to be asked ${thrown.message}`);
    return refused("inputs_too_large", `what is to be asked is larger than ${MAX_INPUTS_BYTES} bytes`);
  }
  const [key] = keys;
  const token = key ? await signToken(claims, key, state.organizationId) : unsignedToken(claims);
  if (token.length > MAX_TOKEN_BYTES) {
    return refused("token_too_large", `a suspension of it is larger than ${MAX_TOKEN_BYTES} bytes`);
  }
  return { type: "issued", token, id: suspension.id, expiresAt };
};

type Refusal = Extract<IssueResult, { type: "refused" }>;

function refused(code: Refusal["code"], reason: string): Refusal {
  return { type: "refused", code, reason };
}
