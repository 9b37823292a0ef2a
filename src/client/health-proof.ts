/**
 * Who answers `/health`? A port says nothing about who listens on it. The daemon signs the caller's nonce and its own
 * boot id with the token that both know: proof = hex HMAC-SHA256(token, bootId + "\n" + nonce).
 */

const encoder = new TextEncoder();

export interface HealthProof {
  readonly token: string;
  /** As `/health` gave it. */
  readonly bootId: string;
  /** As it was sent: random, used once. */
  readonly nonce: string;
  /** As `/health` gave it: 64 hex digits. */
  readonly proof: string;
}

/** True when `proof` was made by somebody who knows the token. Compares in constant time. */
export async function verifyHealthProof({ token, bootId, nonce, proof }: HealthProof): Promise<boolean> {
  if (!/^[0-9a-f]{64}$/i.test(proof)) return false;
  const signature = Uint8Array.from(proof.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const key = await crypto.subtle.importKey("raw", encoder.encode(token), algorithm, false, ["verify"]);
  return crypto.subtle.verify("HMAC", key, signature, encoder.encode(`${bootId}\n${nonce}`));
}
