/**
 * The two forms of a token. Signed: a compact JWS whose header is `{alg: "HS256", typ, kid}` and nothing more.
 * Unsigned: `unsigned.` and the claims. Which one a daemon reads depends on nothing but whether it has keys.
 */
import { JOSEError } from "jose/errors";
import { CompactSign } from "jose/jws/compact/sign";
import { compactVerify } from "jose/jws/compact/verify";
import type { NamedKey } from "../key-list.ts";
import type { SuspensionKeys } from "./port.ts";
import { signingKeyOf } from "./signing-key.ts";

export const SUSPENSION_TYP = "dispatchd-suspension+jwt";
const ALGORITHM = "HS256";
const UNSIGNED_PREFIX = "unsigned.";
/** Ours has about 100 characters: a long one is not parsed before its signature was looked at. */
const MAX_HEADER_CHARS = 1024;
const HEADER_KEYS = new Set(["alg", "typ", "kid"]);

export type Opened =
  /** `signedBy` is the key's id, null for the unsigned form. */
  | { readonly type: "open"; readonly claims: string; readonly signedBy: string | null }
  | { readonly type: "closed"; readonly reason: string };

export async function signToken(claims: string, key: NamedKey, organizationId: string | undefined): Promise<string> {
  return await new CompactSign(Buffer.from(claims, "utf8"))
    .setProtectedHeader({ alg: ALGORITHM, typ: SUSPENSION_TYP, kid: key.id })
    .sign(signingKeyOf(key, organizationId));
}

export function unsignedToken(claims: string): string {
  return `${UNSIGNED_PREFIX}${Buffer.from(claims, "utf8").toString("base64url")}`;
}

/** The claims of a token of the form that fits `keys`, its signature checked. */
export async function openToken(
  token: string,
  keys: SuspensionKeys,
  organizationId: string | undefined,
): Promise<Opened> {
  const isUnsigned = token.startsWith(UNSIGNED_PREFIX);
  if (keys.length === 0) {
    if (!isUnsigned) return closed("the suspension is signed, and this daemon has no key");
    return readUnsigned(token);
  }
  if (isUnsigned) return closed("the suspension is not signed, and this daemon has keys");
  const header = readHeader(token);
  if (!header) return closed("the suspension is cut or changed: it has no header of ours");
  if (header.alg !== ALGORITHM) return closed("the suspension's algorithm is not ours");
  if (header.typ !== SUSPENSION_TYP) return closed("the suspension's type is not ours");
  const key = keys.find(({ id }) => id === header.kid);
  if (!key) return closed("the suspension's key is not listed, or not any more");
  try {
    const { payload } = await compactVerify(token, signingKeyOf(key, organizationId), { algorithms: [ALGORITHM] });
    const claims = textOf(payload);
    return claims === undefined ? closed("the suspension is not text") : { type: "open", claims, signedBy: key.id };
  } catch (thrown) {
    if (!(thrown instanceof JOSEError)) throw thrown;
    return closed("the suspension's signature does not verify: cut, changed, or of another organization");
  }
}

export interface UnverifiedToken {
  readonly form: "signed" | "unsigned";
  /** As the header names it. */
  readonly keyId?: string;
  readonly claims: string;
}

/** What a token says, whoever wrote it: for people to look at, never to act on. */
export function readUnverified(token: string): UnverifiedToken | undefined {
  if (token.startsWith(UNSIGNED_PREFIX)) {
    const read = readUnsigned(token);
    return read.type === "open" ? { form: "unsigned", claims: read.claims } : undefined;
  }
  const header = readHeader(token);
  const claims = textOf(bytesOf(token.split(".")[1] ?? ""));
  if (!header || claims === undefined) return undefined;
  return { form: "signed", ...(typeof header.kid === "string" ? { keyId: header.kid } : {}), claims };
}

function readUnsigned(token: string): Opened {
  const claims = textOf(bytesOf(token.slice(UNSIGNED_PREFIX.length)));
  return claims === undefined ? closed("the suspension is cut or changed") : { type: "open", claims, signedBy: null };
}

/** Undefined when there is no header, or one with more in it than we write. */
function readHeader(token: string): Record<string, unknown> | undefined {
  const parts = token.split(".");
  const [encoded = ""] = parts;
  if (parts.length !== 3 || encoded.length > MAX_HEADER_CHARS) return undefined;
  const text = textOf(bytesOf(encoded));
  try {
    const header: unknown = JSON.parse(text ?? "");
    if (typeof header !== "object" || header === null || Array.isArray(header)) return undefined;
    return Object.keys(header).every((key) => HEADER_KEYS.has(key)) ? { ...header } : undefined;
  } catch {
    // JSON.parse throws for what is no JSON, and for nothing else.
    return undefined;
  }
}

function bytesOf(encoded: string): Uint8Array | undefined {
  return /^[A-Za-z0-9_-]+$/.test(encoded) ? Buffer.from(encoded, "base64url") : undefined;
}

function textOf(bytes: Uint8Array | undefined): string | undefined {
  try {
    return bytes && new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    // A fatal decoder throws for bytes that are no UTF-8.
    return undefined;
  }
}

function closed(reason: string): Opened {
  return { type: "closed", reason };
}
