/**
 * A harness that prints frames as fast as it can, or at a rate: `emit-frames.ts LINE_BYTES TOTAL_BYTES [BYTES_PER_S]`.
 * The lines are text deltas of one message, prepared beforehand, so that printing costs next to nothing.
 */
import { writeSync } from "node:fs";

const [lineBytes = 0, totalBytes = 0, bytesPerSecond = 0] = process.argv.slice(2).map(Number);
const BLOCK_BYTES = 256 << 10;
const MS_PER_S = 1000;

const line = (...chunks: unknown[]): string => `${JSON.stringify({ chunks })}\n`;
const delta = (text: string): string => line({ type: "text-delta", id: "t", delta: text });

function print(bytes: Uint8Array): void {
  for (let done = 0; done < bytes.length; ) done += writeSync(1, bytes, done);
}

// A harness reads its turn before it begins; the floor has none to read.
await Bun.stdin.bytes();
const frame = delta("x".repeat(lineBytes - delta("").length));
const perBlock = Math.max(1, Math.floor(BLOCK_BYTES / lineBytes));
const block = Buffer.from(frame.repeat(perBlock));
const blocks = Math.ceil(totalBytes / block.length);

print(Buffer.from(line({ type: "start", messageId: "m" }, { type: "start-step" }, { type: "text-start", id: "t" })));
const startedAt = performance.now();
for (let printed = 0; printed < blocks; printed++) {
  if (bytesPerSecond > 0) {
    const dueMs = ((printed * block.length) / bytesPerSecond) * MS_PER_S;
    const aheadMs = dueMs - (performance.now() - startedAt);
    if (aheadMs > 1) await Bun.sleep(aheadMs);
  }
  print(block);
}
print(Buffer.from(line({ type: "text-end", id: "t" }, { type: "finish-step" })));
print(Buffer.from(`${JSON.stringify({ chunks: [], outcome: { type: "finished" } })}\n`));
