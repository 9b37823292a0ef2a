/**
 * What of a file is written anew. The text that is not stored yet, and with it the stored segments before it that are no
 * larger: so that their number stays small (about one per power of two, and then one per 4 to 8 MiB) while each byte is
 * written about five times and at most `SEGMENT_BYTES` at once.
 */
import { SEGMENT_BYTES } from "./save-file.ts";
import { type Segment, sizeOf } from "./thread-state.ts";

export interface SegmentPlan {
  /** Stored segments that stay. */
  readonly kept: readonly Segment[];
  /** Ranges of the local file to be written, in order; together they reach from the kept ones to the file's end. */
  readonly ranges: readonly { readonly from: number; readonly to: number }[];
}

export function planSegments(stored: readonly Segment[], fileBytes: number): SegmentPlan {
  const kept = [...stored];
  let from = sizeOf(kept);
  if (fileBytes <= from) return { kept, ranges: [] };
  for (let last = kept.at(-1); last; last = kept.at(-1)) {
    if (last.size > fileBytes - from || fileBytes - from + last.size > SEGMENT_BYTES) break;
    kept.pop();
    from -= last.size;
  }
  const ranges: { from: number; to: number }[] = [];
  for (let at = from; at < fileBytes; at += SEGMENT_BYTES) {
    ranges.push({ from: at, to: Math.min(at + SEGMENT_BYTES, fileBytes) });
  }
  return { kept, ranges };
}
