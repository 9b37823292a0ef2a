/**
 * A harness that prints frames as fast as it can, or at a rate: `emit-frames.ts LINE_BYTES TOTAL_BYTES [BYTES_PER_S]`.
 * The lines are text deltas of one message, prepared beforehand, so that printing costs next to nothing. A turn whose input
 * has `transcriptBytes` writes a session of that length instead, and ends.
 */
import { mkdirSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { transcript } from "../transcript.ts";

const [lineBytes = 0, totalBytes = 0, bytesPerSecond = 0] = process.argv.slice(2).map(Number);
const BLOCK_BYTES = 256 << 10;
const MS_PER_S = 1000;

const line = (...chunks: unknown[]): string => `${JSON.stringify({ chunks })}\n`;
const delta = (text: string): string => line({ type: "text-delta", id: "t", delta: text });

function print(bytes: Uint8Array): void {
  for (let done = 0; done < bytes.length; ) done += writeSync(1, bytes, done);
}

// A harness reads its turn before it begins; the floor has none to read.
const turn = JSON.parse((await Bun.stdin.text()) || "{}");
if (turn.input?.transcriptBytes) {
  const folder = join(turn.paths.configDir, "projects", "bench");
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "bench-session.jsonl"), transcript(turn.input.transcriptBytes));
  print(Buffer.from(`${JSON.stringify({ chunks: [], session: { id: "bench-session" } })}\n`));
  print(Buffer.from(`${JSON.stringify({ chunks: [], outcome: { type: "finished" } })}\n`));
  process.exit(0);
}
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
