/**
 * What of a file is written anew. The text that is not stored yet, and with it the stored segments before it that are no
 * larger: so that their number stays small (about one per power of two, and then one per 4 to 8 MiB) while each byte is
 * written about five times and at most `SEGMENT_BYTES` at once. Small files beside the transcript, each in a save of its
 * own, are gathered now and then.
 */
import { SEGMENT_BYTES } from "./save-file.ts";
import type { SaveName } from "./save-name.ts";
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

/** A restore opens each save that is referred to, and each of them has to stay: so many at most, but for large ones. */
export const MAX_REFERRED = 48;

/**
 * Which of the files beside the transcript to write anew, though they are stored: the smallest, as soon as all of them
 * lie in too many saves.
 */
export function filesToGather(
  files: readonly { readonly bytes: number; readonly kept: readonly Segment[] }[],
): Set<number> {
  const saves = new Set<SaveName>(files.flatMap(({ kept }) => kept.map(({ save }) => save)));
  const gathered = new Set<number>();
  if (saves.size <= MAX_REFERRED) return gathered;
  const smallestFirst = [...files.entries()].sort(([, a], [, b]) => a.bytes - b.bytes);
  let bytes = 0;
  for (const [index, file] of smallestFirst) {
    bytes += file.bytes;
    if (bytes > SEGMENT_BYTES) break;
    gathered.add(index);
  }
  return gathered;
}
