import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

const EXECUTABLE = 0o755;
const READABLE = 0o644;

/** One file of a staged copy. Volumes keep no modes: what looks like a program can be run. */
export function writeCopy(dir: string, path: string, bytes: Uint8Array): void {
  const target = join(dir, path);
  mkdirSync(dirname(target), { recursive: true, mode: EXECUTABLE });
  // `writeFileSync` writes in a loop, and throws ENOSPC.
  writeFileSync(target, bytes, { mode: isProgram(bytes) ? EXECUTABLE : READABLE, flag: "wx" });
}

function isProgram(bytes: Uint8Array): boolean {
  const start = Buffer.from(bytes.subarray(0, 4)).toString("latin1");
  return start.startsWith("#!") || start === "\x7fELF";
}
