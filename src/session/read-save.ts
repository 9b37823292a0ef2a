/** Reads saves from the volume, believing nothing: a save is whole when every byte of it is what its head says. */
import { errnoOf, messageOf } from "../errors.ts";
import { decodeFrame, decodeHead, isFrameLength, parseFirstLine, SEGMENT_BYTES } from "./save-file.ts";
import type { SaveFolder } from "./save-folder.ts";
import type { SaveHead } from "./save-head.ts";
import type { SaveName } from "./save-name.ts";
import type { Sealer } from "./sealing.ts";
import type { Segment, StoredFile } from "./thread-state.ts";

export type HeadResult =
  | { readonly type: "head"; readonly head: SaveHead; readonly fileBytes: number }
  /** `cut`: shorter than it says; the rest may be on its way. */
  | { readonly type: "bad"; readonly reason: string; readonly cut: boolean }
  /** A folder, a link, a FIFO: nobody's save, whatever its name. */
  | { readonly type: "no-file"; readonly reason: string }
  | { readonly type: "unreadable"; readonly reason: string };

/** One read fetches the first line and most heads. */
const FIRST_READ_BYTES = 64 << 10;

export interface SaveSource {
  readonly folder: SaveFolder;
  /** Undefined: of whichever thread it says. */
  readonly threadId: string | undefined;
  readonly sealer: Sealer;
  /** For whoever reads many segments: small saves are fetched once, as a whole. */
  readonly cache?: Map<SaveName, Promise<Uint8Array>>;
}

/** Saves up to this length are fetched as a whole; so many of them are kept. */
const SMALL_SAVE_BYTES = 2 << 20;
const MAX_CACHED = 32;

export async function readHead({ folder, threadId, sealer }: SaveSource, name: SaveName): Promise<HeadResult> {
  try {
    const [facts, start] = [await folder.stat(name), await folder.read(name, 0, FIRST_READ_BYTES)];
    const line = parseFirstLine(start);
    const fileBytes = Math.max(facts?.bytes ?? 0, start.length);
    if (typeof line === "string") return { type: "bad", reason: line, cut: line === "no save" && fileBytes < 128 };
    if (fileBytes !== line.fileBytes) return { type: "bad", reason: "cut short", cut: fileBytes < line.fileBytes };
    const end = line.bytes + line.headBytes;
    const bytes =
      end <= start.length ? start.subarray(line.bytes, end) : await folder.read(name, line.bytes, line.headBytes);
    const head = decodeHead(name, line, bytes, threadId, sealer);
    return typeof head === "string" ? { type: "bad", reason: head, cut: false } : { type: "head", head, fileBytes };
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return { type: "bad", reason: "vanished", cut: false };
    if (errnoOf(error) === "EISDIR") return { type: "no-file", reason: "no file" };
    return { type: "unreadable", reason: errnoOf(error) ?? messageOf(error) };
  }
}

/** Of a session: nothing larger is written. A head may name one frame a million times. */
export const MAX_TEXT_BYTES = 4 * 2 ** 30;

/** The files of a save, as a flight keeps them; undefined when it describes what no writer of ours writes. */
export function filesOf(
  name: SaveName,
  head: SaveHead,
  fileBytes: number,
): { files: StoredFile[]; saves: Record<string, number> } | undefined {
  const saves: Record<string, number> = {};
  const files: StoredFile[] = [];
  let textBytes = 0;
  for (const { path, segments } of head.files) {
    const placed: Segment[] = [];
    for (const { save, ...rest } of segments) {
      const [where, bytes] = save === -1 ? [name, fileBytes] : (head.saves[save] ?? [name, 0]);
      if (rest.size > SEGMENT_BYTES || !isFrameLength(rest.length)) return undefined;
      if (rest.at < rest.length || rest.at > bytes) return undefined;
      textBytes += rest.size;
      if (textBytes > MAX_TEXT_BYTES) return undefined;
      saves[where] = bytes;
      placed.push({ save: where, ...rest });
    }
    files.push({ path, inode: 0, changedAt: 0, segments: placed, tailHash: "" });
  }
  return { files, saves };
}

export type SegmentResult =
  | { readonly type: "text"; readonly text: Uint8Array }
  | { readonly type: "bad"; readonly vanished: boolean }
  | { readonly type: "unreadable"; readonly reason: string };

/** `fileBytes`: of the save that holds it. */
export async function readSegment(source: SaveSource, segment: Segment, fileBytes: number): Promise<SegmentResult> {
  const { save, at, length, size, hash } = segment;
  const { sealer } = source;
  try {
    const frame = await readFrame(source, segment, fileBytes);
    const text = frame.length === length ? await decodeFrame(save, at, frame, size, hash, sealer) : undefined;
    return text ? { type: "text", text } : { type: "bad", vanished: false };
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return { type: "bad", vanished: true };
    if (errnoOf(error) === "EISDIR") return { type: "bad", vanished: false };
    return { type: "unreadable", reason: errnoOf(error) ?? messageOf(error) };
  }
}

async function readFrame(
  { folder, cache }: SaveSource,
  { save, at, length }: Segment,
  fileBytes: number,
): Promise<Uint8Array> {
  const from = fileBytes - at;
  if (!cache || fileBytes > SMALL_SAVE_BYTES) return folder.read(save, from, length);
  const whole = cache.get(save) ?? folder.read(save, 0, fileBytes);
  if (cache.size >= MAX_CACHED && !cache.has(save)) cache.clear();
  cache.set(save, whole);
  return (await whole).subarray(from, from + length);
}

/** How many segments are fetched at a time: a volume answers a few in the time of one. */
const AHEAD = 3;

/** Reads segments in their order, some of them ahead. Ends after the first that is not there as a whole. */
export async function* readSegments(
  source: SaveSource,
  segments: readonly Segment[],
  saves: Readonly<Record<string, number>>,
): AsyncGenerator<{ readonly segment: Segment; readonly result: SegmentResult }, void> {
  const fetched: Promise<SegmentResult>[] = [];
  for (const [index, segment] of segments.entries()) {
    for (const next of segments.slice(index + fetched.length, index + AHEAD)) {
      fetched.push(readSegment(source, next, saves[next.save] ?? 0));
    }
    const result = await fetched.shift();
    if (!result) return;
    yield { segment, result };
    if (result.type !== "text") return;
  }
}
