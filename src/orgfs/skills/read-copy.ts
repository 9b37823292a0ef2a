import { readFileSync } from "node:fs";
import { join } from "node:path";

/** A file of a copy that nobody else can touch. */
export function readCopy(dir: string, path: string): Buffer {
  return readFileSync(join(dir, path));
}
