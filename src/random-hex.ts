/** As many random bytes, in hex. Not by node:crypto or Buffer, which take 2 ms to load, before the daemon listens. */
export function randomHex(bytes: number): string {
  return crypto.getRandomValues(new Uint8Array(bytes)).toHex();
}
