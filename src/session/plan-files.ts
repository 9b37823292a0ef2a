/** What a save flight keeps and writes of each file: what it can believe to be stored, and what it can read. */
import type { WritingState } from "./guard-save.ts";
import { ifReadable, type LocalFile, type LocalFiles } from "./local-files.ts";
import { filesToGather, planSegments, type SegmentPlan } from "./plan-segments.ts";
import { hashOf } from "./save-file.ts";
import { type Segment, type StoredFile, sizeOf, TAIL_BYTES } from "./thread-state.ts";

export interface FilePlan extends SegmentPlan {
  readonly file: LocalFile;
  readonly stored: StoredFile | undefined;
}

/**
 * The main transcript's plan first. What cannot be read of the files beside it is left out: nothing of it is kept, so that
 * no reader gets an older state of it beside the newer transcript.
 */
export async function planFiles(
  [main, ...side]: readonly LocalFile[],
  state: WritingState,
  present: ReadonlySet<string>,
  local: LocalFiles,
): Promise<{ plans: FilePlan[]; leftOut: string[] }> {
  if (!main) return { plans: [], leftOut: [] };
  const planned: FilePlan[] = [await planFile(main, state, present, local)];
  const leftOut: string[] = [];
  for (const file of side) {
    const plan = await ifReadable(() => planFile(file, state, present, local));
    if (plan) planned.push(plan);
    else leftOut.push(file.path);
  }
  return { plans: gather(planned), leftOut };
}

async function planFile(
  file: LocalFile,
  state: WritingState,
  present: ReadonlySet<string>,
  local: LocalFiles,
): Promise<FilePlan> {
  const stored = state.files.find(({ path }) => path === file.path);
  let segments: readonly Segment[] = stored?.segments ?? [];
  // Most runs make one save: by their own count alone each would look at the same segment.
  const turn = state.run.turn + state.run.number;
  if (stored && !isUntouched(file, stored) && !(await hasOnlyGrown(file, stored, turn, local))) {
    segments = await unchangedPrefix(file, segments, local);
  }
  const lost = segments.findIndex(({ save }) => !present.has(save));
  if (lost >= 0) segments = segments.slice(0, lost);
  const plan = planSegments(segments, file.bytes);
  // Of a file that cannot be read nothing is news: by itself it makes no save.
  if (plan.ranges.length > 0) await local.read(file.path, 0, 1);
  return { file, stored, ...plan };
}

/** The transcript's own segments are few by themselves. */
function gather([main, ...side]: readonly FilePlan[]): FilePlan[] {
  if (!main) return [];
  const anew = filesToGather(side.map(({ file, kept }) => ({ bytes: file.bytes, kept })));
  const planned = side.map((plan, index) =>
    anew.has(index) ? { ...plan, ...planSegments([], plan.file.bytes) } : plan,
  );
  return [main, ...planned];
}

/** Hundreds of files lie beside a transcript, and most of them for ever as they were written. */
function isUntouched(file: LocalFile, { segments, inode, changedAt }: StoredFile): boolean {
  return inode === file.inode && changedAt === file.changedAt && sizeOf(segments) === file.bytes;
}

/** Growth is believed of the same file, not shorter, whose end is unchanged; one old segment is looked at, in turn. */
async function hasOnlyGrown(file: LocalFile, stored: StoredFile, turn: number, local: LocalFiles): Promise<boolean> {
  const { segments, inode, tailHash } = stored;
  const covered = sizeOf(segments);
  if (inode !== file.inode || file.bytes < covered) return false;
  if (hashOf(await local.read(file.path, Math.max(0, covered - TAIL_BYTES), covered)) !== tailHash) return false;
  const looked = segments[turn % Math.max(1, segments.length)];
  if (!looked) return true;
  const from = sizeOf(segments.slice(0, segments.indexOf(looked)));
  return hashOf(await local.read(file.path, from, from + looked.size)) === looked.hash;
}

async function unchangedPrefix(
  file: LocalFile,
  segments: readonly Segment[],
  local: LocalFiles,
): Promise<readonly Segment[]> {
  let from = 0;
  for (const [index, { size, hash }] of segments.entries()) {
    const to = from + size;
    if (to > file.bytes || hashOf(await local.read(file.path, from, to)) !== hash) return segments.slice(0, index);
    from = to;
  }
  return segments;
}

export function isStored({ kept, ranges, stored }: FilePlan): boolean {
  return stored !== undefined && ranges.length === 0 && kept.length === stored.segments.length;
}

/** What is certainly stored of a file, before anything is written. */
export function keptFile({ file, kept, stored }: FilePlan): StoredFile {
  const whole = stored !== undefined && kept.length === stored.segments.length;
  // Of a prefix the end is not known by heart: the next flight hashes its segments, unless this one gets further.
  const { path, inode, changedAt } = file;
  return { path, inode, changedAt, segments: kept, tailHash: whole ? stored.tailHash : "" };
}
