/**
 * The bytes of a save: one line, the head, the frames.
 *
 *     dispatchd-save <version> <plain|sealed> <bytes of the file> <bytes of the head> <SHA-256 of the head's bytes>\n
 *
 * The head is JSON (SaveHead). Each frame is a piece of a file's text, compressed with zstd; the head says where it
 * begins, counted back from the end of the file: so one read fetches a frame of another save. docs/session-store.md is the whole description.
 *
 * Nothing here is believed: every agent of the organization can write into the store.
 */
import { createHash } from "node:crypto";
import { zstdCompressSync } from "node:zlib";
import { parseHead, type SaveHead } from "./save-head.ts";
import type { SaveName } from "./save-name.ts";
import type { Sealer } from "./sealing.ts";
import { textSizeOf } from "./zstd-frame.ts";

const VERSION = 1;
const MAGIC = "dispatchd-save ";
/** Fixed width, so that the line's own length is known before the file's. */
const LINE = /^dispatchd-save (\d{1,6}) (plain|sealed) (\d{12}) (\d{9}) ([0-9a-f]{64})\n/;
const MAX_LINE_BYTES = 128;
export const MAX_HEAD_BYTES = 64 << 20;

/** Text of one segment at most. */
export const SEGMENT_BYTES = 8 << 20;
/** Longer frames than this are none of ours: zstd does not make text longer than by a few bytes. */
const MAX_FRAME_BYTES = SEGMENT_BYTES + (1 << 20);
/** Compressing into one piece of memory spares a sixth of the time that many small ones take. */
const MIN_CHUNK_BYTES = 16 << 10;

export interface FirstLine {
  readonly bytes: number;
  readonly fileBytes: number;
  readonly headBytes: number;
  readonly headHash: string;
  readonly sealed: boolean;
}

/** A text says what is wrong with it. */
export function parseFirstLine(start: Uint8Array): FirstLine | string {
  const text = Buffer.from(start.subarray(0, MAX_LINE_BYTES)).toString("latin1");
  const match = LINE.exec(text);
  if (!match) return versionOf(text) > VERSION ? "a later version" : "no save";
  const [line, version, kind, fileBytes, headBytes, headHash = ""] = match;
  if (Number(version) !== VERSION) return Number(version) > VERSION ? "a later version" : "no save";
  if (Number(headBytes) > MAX_HEAD_BYTES) return "no save";
  return {
    bytes: line.length,
    fileBytes: Number(fileBytes),
    headBytes: Number(headBytes),
    headHash,
    sealed: kind === "sealed",
  };
}

/** The pieces of a save's file, in order, and how long it is. */
export function encodeSave(
  name: SaveName,
  head: SaveHead,
  frames: readonly Uint8Array[],
  sealer: Sealer,
): { pieces: Uint8Array[]; bytes: number } {
  const headBytes = sealer.seal(Buffer.from(JSON.stringify(head), "utf8"), headPlace(name));
  const hash = createHash("sha256").update(headBytes).digest("hex");
  const kind = sealer.sealed ? "sealed" : "plain";
  const body = headBytes.length + frames.reduce((sum, frame) => sum + frame.length, 0);
  const line = (bytes: number): string =>
    `${MAGIC}${VERSION} ${kind} ${String(bytes).padStart(12, "0")} ${String(headBytes.length).padStart(9, "0")} ${hash}\n`;
  const bytes = line(0).length + body;
  return { pieces: [Buffer.from(line(bytes), "latin1"), headBytes, ...frames], bytes };
}

/** Of the bytes that follow the first line. A text says what is wrong. */
export function decodeHead(
  name: SaveName,
  line: FirstLine,
  bytes: Uint8Array,
  threadId: string | undefined,
  sealer: Sealer,
): SaveHead | string {
  if (line.sealed !== sealer.sealed) return line.sealed ? "sealed with a key that is not ours" : "not sealed";
  if (bytes.length !== line.headBytes) return "cut short";
  if (createHash("sha256").update(bytes).digest("hex") !== line.headHash) return "its head is damaged";
  const opened = sealer.open(bytes, headPlace(name));
  if (!opened) return "sealed for another place or with another key";
  const head = parseHead(Buffer.from(opened).toString("utf8"));
  if (typeof head === "string") return head;
  return threadId === undefined || head.thread === threadId ? head : "of another thread";
}

/** The frames of a file, and where each begins, counted back from the end. */
export function encodeFrames(
  name: SaveName,
  texts: readonly Uint8Array[],
  sealer: Sealer,
): { frame: Uint8Array; at: number }[] {
  const compressed = texts.map((text) => zstdCompressSync(text, { chunkSize: Math.max(text.length, MIN_CHUNK_BYTES) }));
  let at = compressed.reduce((sum, bytes) => sum + bytes.length + sealer.overhead, 0);
  return compressed.map((bytes) => {
    const placed = { frame: sealer.seal(bytes, framePlace(name, at)), at };
    at -= bytes.length + sealer.overhead;
    return placed;
  });
}

/**
 * The text of a frame, or undefined when it is not the one that was stored. Never more than `size` bytes. Decompressed on
 * a thread of its own: meanwhile this one hashes the text before it.
 */
export async function decodeFrame(
  name: SaveName,
  at: number,
  frame: Uint8Array,
  size: number,
  hash: string,
  sealer: Sealer,
): Promise<Uint8Array | undefined> {
  const opened = sealer.open(frame, framePlace(name, at));
  if (!opened) return undefined;
  const text = await decompress(opened, size);
  if (text?.length !== size || hashOf(text) !== hash) return undefined;
  return text;
}

export function isFrameLength(length: number): boolean {
  return length > 0 && length <= MAX_FRAME_BYTES;
}

export function hashOf(text: Uint8Array): string {
  return createHash("sha256").update(text).digest("hex");
}

async function decompress(bytes: Uint8Array, size: number): Promise<Uint8Array | undefined> {
  if (textSizeOf(bytes) !== size) return undefined;
  try {
    return await Bun.zstdDecompress(bytes);
  } catch {
    // Its only failure: damaged.
    return undefined;
  }
}

function versionOf(text: string): number {
  return Number(/^dispatchd-save (\d{1,6}) /.exec(text)?.[1] ?? 0);
}

function headPlace(name: SaveName): string {
  return `${VERSION}\0${name}\0head`;
}

function framePlace(name: SaveName, at: number): string {
  return `${VERSION}\0${name}\0${at}`;
}
