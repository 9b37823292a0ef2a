/**
 * The frames of one attempt, on the pod's own disk. One writer, any number of readers, and every reader, live or late,
 * reads what is in the file: so all of them see the same lines in the same order, and memory stays flat whatever a run
 * prints. What was written last is kept for readers who are close behind, so that they do not read it back.
 *
 * - `end` is how far readers may read. It moves by whole lines, after they are written; nothing is fsynced.
 * - What waits for the disk is bounded by the writer, who asks for `drained()` before it takes more from the harness.
 * - A disk that fails: the file is cut back to the last whole line, and what was not stored, the outcome and the last
 *   frame among it, is read from memory (`tail`), at the offsets that it would have had.
 * - The log is its own index: every line begins with its seq, so a seq is found by halving the file.
 */
import type { FileHandle } from "node:fs/promises";
import { open } from "node:fs/promises";
import { parseRecord } from "../disk.ts";

const NEWLINE = 0x0a;
/** Where the halving of a seek stops and the reading of lines begins. */
const SEEK_WINDOW_BYTES = 64 << 10;
const SEQ_PREFIX = /^\{"seq":(\d+)/;
const SEQ_PREFIX_BYTES = 32;

/** What of the file system a log needs; a test hands in one that fails. */
export type OpenFile = (path: string, flags: "r" | "r+" | "wx+", mode?: number) => Promise<LogFile>;
export type LogFile = Pick<FileHandle, "read" | "stat" | "truncate" | "close"> & {
  write(bytes: Buffer, offset: number, length: number, position: number): Promise<{ bytesWritten: number }>;
};

/** Bytes that may wait for the disk before the harness's stdout is not read any more. */
export const MAX_PENDING_BYTES = 1 << 20;
/** Bytes of what was written last that are kept while somebody reads. */
const MAX_RECENT_BYTES = 1 << 20;
/** Up to here appends are put together for one write; copying more would cost more than another write. */
const BATCH_BYTES = 64 << 10;

export class RunLog {
  #queue: Buffer[] = [];
  #pending = 0;
  #writing = false;
  #fileEnd: number;
  #end: number;
  #tail: Buffer[] = [];
  #recent: { readonly start: number; readonly bytes: Buffer }[] = [];
  #recentBytes = 0;
  #finished = false;
  #waiters: (() => void)[] = [];
  #drainers: (() => void)[] = [];
  #failure: unknown;
  #users = 0;
  #handle: LogFile | undefined;
  #opening: Promise<LogFile> | undefined;

  private constructor(
    private readonly path: string,
    end: number,
    private readonly onFailure: (error: unknown) => void,
    /** Resolves when what the file needs is there: its folder, the run's record. Rejected: the disk failed at the start. */
    readonly placed: Promise<unknown>,
    private readonly openFile: OpenFile,
  ) {
    this.#fileEnd = end;
    this.#end = end;
    placed.catch(() => {}); // Told by the first write.
  }

  /** A new log, at once; its file comes with the first write. `onFailure` is called once, when the disk refuses. */
  static create(
    path: string,
    placed: Promise<unknown>,
    onFailure: (error: unknown) => void,
    openFile: OpenFile = open,
  ): RunLog {
    return new RunLog(path, 0, onFailure, placed, openFile);
  }

  /** The log of an earlier daemon. A torn last line is cut off, and so are last lines that are no frames. */
  static async recover(path: string, onFailure: (error: unknown) => void, openFile: OpenFile = open): Promise<RunLog> {
    const handle = await openFile(path, "r+");
    const { size } = await handle.stat();
    const log = new RunLog(path, size, onFailure, Promise.resolve(), openFile);
    log.#handle = handle;
    let end = await log.#lastLineStart(size);
    while (end > 0) {
      const start = await log.#lastLineStart(end - 1);
      if (isFrame(await log.readAll(start, end - 1))) break;
      end = start;
    }
    if (end < size) await handle.truncate(end);
    log.#fileEnd = end;
    log.#end = end;
    return log;
  }

  /** Bytes on disk, for the budget of kept logs. */
  get storedBytes(): number {
    return this.#fileEnd;
  }
  /** Bytes that readers may read. */
  get end(): number {
    return this.#end;
  }
  /** True when nothing will be added. */
  get finished(): boolean {
    return this.#finished;
  }
  get failed(): boolean {
    return this.#failure !== undefined;
  }
  get pendingBytes(): number {
    return this.#pending;
  }

  /** Adds whole lines. Never waits and never throws; see `drained`. The buffer must not be changed afterwards. */
  append(lines: Buffer): void {
    this.#queue.push(lines);
    this.#pending += lines.length;
    if (!this.#writing) void this.#write();
  }

  /** Resolves when less than `MAX_PENDING_BYTES` wait for the disk; at once, mostly. */
  async drained(): Promise<void> {
    while (this.#pending >= MAX_PENDING_BYTES) await new Promise<void>((resolve) => this.#drainers.push(resolve));
  }

  /** Resolves when all that has been added up to now is readable. */
  async flushed(): Promise<void> {
    const added = this.#end + this.#pending;
    while (this.#end < added) await new Promise<void>((resolve) => this.onChange(resolve));
  }

  /** Nothing will be added. Readers that have read all see the end. */
  async finish(): Promise<void> {
    await this.flushed();
    this.#finished = true;
    this.#wake();
    await this.#closeIfUnused();
  }

  /** Calls `wake` once, when `end` moves or the log is finished. The returned function forgets it. */
  onChange(wake: () => void): () => void {
    this.#waiters.push(wake);
    return () => {
      const at = this.#waiters.indexOf(wake);
      if (at >= 0) this.#waiters.splice(at, 1);
    };
  }

  /** Closes the file, for a log that is dropped. */
  async close(): Promise<void> {
    await this.flushed();
    this.#finished = true;
    const handle = this.#handle;
    this.#handle = undefined;
    await handle?.close();
  }

  /** Keeps the file open while somebody reads; to be paired with `release`. */
  retain(): void {
    this.#users++;
  }
  async release(): Promise<void> {
    this.#users--;
    if (this.#users === 0) {
      this.#recent = [];
      this.#recentBytes = 0;
    }
    await this.#closeIfUnused();
  }

  /** Up to `maxBytes` from `offset`, which is below `end`. Empty only at the end. */
  async read(offset: number, maxBytes: number): Promise<Buffer> {
    if (offset >= this.#fileEnd) return this.#readTail(offset, maxBytes);
    const recent = this.#recent.find(({ start, bytes }) => offset >= start && offset < start + bytes.length);
    if (recent) return recent.bytes.subarray(offset - recent.start, offset - recent.start + maxBytes);
    const buffer = Buffer.allocUnsafe(Math.min(maxBytes, this.#fileEnd - offset));
    this.retain();
    try {
      const handle = this.#handle ?? (await this.#reopen());
      const { bytesRead } = await handle.read(buffer, 0, buffer.length, offset);
      // Nobody but this class shortens the file; a reader that waited for the rest would wait for ever.
      if (bytesRead === 0) throw new Error("the log's file is shorter than it was");
      return buffer.subarray(0, bytesRead);
    } finally {
      await this.release();
    }
  }

  /** The offset of the first line whose seq is above `seq`; `end` when there is none. */
  async offsetAfter(seq: number): Promise<number> {
    const stop = this.#end;
    let low = 0;
    let high = stop;
    while (high - low > SEEK_WINDOW_BYTES) {
      const middle = low + Math.floor((high - low) / 2);
      const start = await this.#nextLineStart(middle, high);
      if (start === undefined) high = middle;
      else if ((await this.#seqAt(start)) <= seq) low = start;
      else high = middle;
    }
    return this.#firstAfter(low, seq, stop);
  }

  /** The last whole line, without its newline; undefined in an empty log. */
  async lastLine(): Promise<Buffer | undefined> {
    if (this.#end === 0) return undefined;
    const start = await this.#lastLineStart(this.#end - 1);
    return this.readAll(start, this.#end - 1);
  }

  /** All bytes from `start` up to `end`. */
  async readAll(start: number, end: number): Promise<Buffer> {
    const parts: Buffer[] = [];
    for (let at = start; at < end; ) {
      const part = await this.read(at, end - at);
      if (part.length === 0) break;
      parts.push(part);
      at += part.length;
    }
    return Buffer.concat(parts);
  }

  /** For a reader of a finished log. Two that come together share the file. */
  async #reopen(): Promise<LogFile> {
    this.#opening ??= this.openFile(this.path, "r")
      .then((handle) => {
        this.#handle = handle;
        return handle;
      })
      .finally(() => {
        this.#opening = undefined;
      });
    return this.#opening;
  }

  async #seqAt(offset: number): Promise<number> {
    return seqIn(await this.read(offset, SEQ_PREFIX_BYTES), 0);
  }

  /** The start of the line after the one that holds `offset`, if it is below `limit`. */
  async #nextLineStart(offset: number, limit: number): Promise<number | undefined> {
    for (let at = offset; at < limit; ) {
      const part = await this.read(at, SEEK_WINDOW_BYTES);
      if (part.length === 0) return undefined;
      const newline = part.indexOf(NEWLINE);
      if (newline >= 0) return at + newline + 1 < limit ? at + newline + 1 : undefined;
      at += part.length;
    }
    return undefined;
  }

  /** From the line at `start` on, the first whose seq is above `seq`; `limit` when there is none before it. */
  async #firstAfter(start: number, seq: number, limit: number): Promise<number> {
    for (let at = start; at < limit; ) {
      const part = await this.read(at, Math.min(SEEK_WINDOW_BYTES, limit - at));
      let next = 0;
      for (;;) {
        if (seqIn(part, next) > seq) return at + next;
        const newline = part.indexOf(NEWLINE, next);
        if (newline < 0) break;
        next = newline + 1;
        // A line's beginning may be cut: it is read again from there.
        if (part.length - next < SEQ_PREFIX_BYTES) break;
      }
      at = next > 0 ? at + next : ((await this.#nextLineStart(at, limit)) ?? limit);
    }
    return limit;
  }

  /** Just past the last newline that ends at or before `before`; 0 when there is none. */
  async #lastLineStart(before: number): Promise<number> {
    let end = before;
    while (end > 0) {
      const start = Math.max(0, end - SEEK_WINDOW_BYTES);
      const part = await this.readAll(start, end);
      const newline = part.lastIndexOf(NEWLINE);
      if (newline >= 0) return start + newline + 1;
      end = start;
    }
    return 0;
  }

  async #write(): Promise<void> {
    this.#writing = true;
    while (this.#queue.length > 0) {
      const batch = this.#takeBatch();
      const failedBefore = this.#failure !== undefined;
      if (!failedBefore) await this.#store(batch);
      if (this.#failure !== undefined) this.#tail.push(batch);
      this.#end += batch.length;
      this.#pending -= batch.length;
      this.#wake();
      if (!failedBefore && this.#failure !== undefined) this.onFailure(this.#failure);
    }
    this.#writing = false;
  }

  #takeBatch(): Buffer {
    let count = 1;
    for (let bytes = this.#queue[0]?.length ?? 0; count < this.#queue.length; count++) {
      bytes += this.#queue[count]?.length ?? 0;
      if (bytes > BATCH_BYTES) break;
    }
    const parts = this.#queue.splice(0, count);
    return parts.length === 1 ? (parts[0] as Buffer) : Buffer.concat(parts);
  }

  #remember(bytes: Buffer): void {
    this.#recent.push({ start: this.#fileEnd, bytes });
    this.#recentBytes += bytes.length;
    while (this.#recentBytes > MAX_RECENT_BYTES) this.#recentBytes -= this.#recent.shift()?.bytes.length ?? 0;
  }

  async #store(batch: Buffer): Promise<void> {
    try {
      await this.#writeWhole(batch);
      if (this.#users > 0) this.#remember(batch);
      this.#fileEnd += batch.length;
    } catch (error) {
      this.#failure = error;
      // The batch began at a line's start, so cutting it off leaves whole lines. Where even that fails, a restart
      // cuts the torn line.
      await this.#handle?.truncate(this.#fileEnd).catch(() => {});
    }
  }

  /** A write may be short without an error on a full disk: the next one tells. */
  async #writeWhole(batch: Buffer): Promise<void> {
    await this.placed;
    this.#handle ??= await this.openFile(this.path, "wx+", 0o600);
    for (let done = 0; done < batch.length; ) {
      const { bytesWritten } = await this.#handle.write(batch, done, batch.length - done, this.#fileEnd + done);
      if (bytesWritten === 0) throw new Error("the disk takes no byte");
      done += bytesWritten;
    }
  }

  #readTail(offset: number, maxBytes: number): Buffer {
    let at = this.#fileEnd;
    for (const part of this.#tail) {
      if (offset < at + part.length) return part.subarray(offset - at, offset - at + maxBytes);
      at += part.length;
    }
    return Buffer.alloc(0);
  }

  #wake(): void {
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const wake of waiters) wake();
    if (this.#pending >= MAX_PENDING_BYTES) return;
    const drainers = this.#drainers;
    this.#drainers = [];
    for (const wake of drainers) wake();
  }

  async #closeIfUnused(): Promise<void> {
    if (!this.#finished || this.#users > 0 || !this.#handle) return;
    const handle = this.#handle;
    this.#handle = undefined;
    await handle.close();
  }
}

/** True for the bytes of a whole frame. Others come from a crash of the machine, which may leave holes in a file. */
function isFrame(line: Buffer): boolean {
  return typeof parseRecord(line.toString("utf8"))?.seq === "number";
}

/** The seq of the line that begins at `start`; NaN when that is no frame. */
function seqIn(bytes: Buffer, start: number): number {
  return Number(SEQ_PREFIX.exec(bytes.toString("latin1", start, start + SEQ_PREFIX_BYTES))?.[1] ?? Number.NaN);
}
