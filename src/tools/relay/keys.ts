/** Ed25519 for one run's answers. The private half never leaves the process that made it. */
import type { RelayAnswer } from "../port.ts";
import { bytesToSign, type SignedAnswer } from "./answer-file.ts";

const KEY_BYTES = 32;

export interface AnswerSigner {
  /** base64url of 32 bytes. */
  readonly publicKey: string;
  sign(name: string, answer: RelayAnswer): Promise<SignedAnswer>;
}

export type VerifyAnswer = (name: string, signed: SignedAnswer) => Promise<boolean>;

export async function createSigner(runId: string): Promise<AnswerSigner> {
  // Only the private half is made so that it cannot be exported; the public one always can.
  const pair = (await crypto.subtle.generateKey("Ed25519", false, ["sign", "verify"])) as CryptoKeyPair;
  const publicKey = Buffer.from(await crypto.subtle.exportKey("raw", pair.publicKey)).toString("base64url");
  return {
    publicKey,
    async sign(name, answer) {
      const signature = await crypto.subtle.sign("Ed25519", pair.privateKey, bytesToSign(runId, name, answer));
      return { answer, signature: Buffer.from(signature).toString("base64url") };
    },
  };
}

/** Is this the public half of a pair, as it is written in `input.relay` and in the shim's arguments? */
export function isPublicKey(text: string): boolean {
  const bytes = Buffer.from(text, "base64url");
  return bytes.length === KEY_BYTES && bytes.toString("base64url") === text;
}

/** Throws when `publicKey` is none. */
export async function createVerifier(runId: string, publicKey: string): Promise<VerifyAnswer> {
  if (!isPublicKey(publicKey)) throw new Error("the public key is not base64url of 32 bytes");
  const raw = new Uint8Array(Buffer.from(publicKey, "base64url"));
  const key = await crypto.subtle.importKey("raw", raw, "Ed25519", false, ["verify"]);
  return (name, { answer, signature }) => {
    const bytes = new Uint8Array(Buffer.from(signature, "base64url"));
    return crypto.subtle.verify("Ed25519", key, bytes, bytesToSign(runId, name, answer));
  };
}
