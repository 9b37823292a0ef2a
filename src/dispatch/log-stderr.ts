/** A harness's stderr goes to the log, line by line. It is for people: never a frame, never a message to a reader. */
import type { LineQuota } from "./line-quota.ts";

/** A line that does not end is logged in pieces of this size. */
const MAX_CARRY_CHARS = 8192;

/** Resolves when stderr has ended. Never rejects: what a log loses is no failure of a run. */
export async function logStderr(stderr: AsyncIterable<Uint8Array>, quota: LineQuota): Promise<void> {
  const decoder = new TextDecoder();
  let carry = "";
  const put = (line: string): void => {
    if (line.trim() !== "") quota.log("harness stderr", line);
  };
  try {
    for await (const piece of stderr) {
      const lines = (carry + decoder.decode(piece, { stream: true })).split("\n");
      carry = lines.pop() ?? "";
      for (const line of lines) put(line);
      if (carry.length > MAX_CARRY_CHARS) {
        put(carry);
        carry = "";
      }
    }
  } catch {
    // The pipe broke: there is nothing more to log.
  }
  put(carry);
  quota.report();
}
