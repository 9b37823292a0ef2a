/** Tests that take root, for another user or the daemon's own rights: in CI they fail without it, elsewhere they say so. */
import { test } from "bun:test";

const isRoot = process.getuid?.() === 0;

export function needsRoot(name: string, run: () => Promise<void>, timeoutMs?: number): void {
  test.skipIf(!isRoot && process.env.CI === undefined)(isRoot ? name : `${name} (takes root)`, run, timeoutMs);
}
