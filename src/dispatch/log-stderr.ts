/** A harness's stderr goes to the log, line by line. It is for people: never a frame, never a message to a reader. */
import type { LineQuota } from "./line-quota.ts";

/** Of a longer line the rest is counted and thrown away; the log shows less than that. */
const MAX_KEPT_CHARS = 8192;

/** Resolves when stderr has ended. Never rejects: what a log loses is no failure of a run. */
export async function logStderr(stderr: AsyncIterable<Uint8Array>, quota: LineQuota): Promise<void> {
  const decoder = new TextDecoder();
  let kept = "";
  let length = 0;
  const add = (text: string): void => {
    length += text.length;
    if (kept.length < MAX_KEPT_CHARS) kept += text.slice(0, MAX_KEPT_CHARS - kept.length);
  };
  const put = (): void => {
    if (kept.trim() !== "") quota.log("harness stderr", kept, length);
    kept = "";
    length = 0;
  };
  try {
    for await (const piece of stderr) {
      const [rest = "", ...lines] = decoder.decode(piece, { stream: true }).split("\n");
      add(rest);
      for (const line of lines) {
        put();
        add(line);
      }
    }
  } catch {
    // The pipe broke: there is nothing more to log.
  }
  add(decoder.decode());
  put();
  quota.report();
}
