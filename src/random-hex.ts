/** As many random bytes, in hex. Not by node:crypto, which takes 2 ms to load, before the daemon listens. */
export function randomHex(bytes: number): string {
  return Buffer.from(crypto.getRandomValues(new Uint8Array(bytes))).toString("hex");
}
