/** FUSE 7.31 as the kernel speaks it on /dev/fuse: little-endian structs, one request a read, one reply a write. */
import type { Stats } from "node:fs";

export const OPS = {
  lookup: 1,
  forget: 2,
  getattr: 3,
  setattr: 4,
  mkdir: 9,
  unlink: 10,
  rmdir: 11,
  rename: 12,
  open: 14,
  read: 15,
  write: 16,
  statfs: 17,
  release: 18,
  fsync: 20,
  flush: 25,
  init: 26,
  opendir: 27,
  readdir: 28,
  releasedir: 29,
  fsyncdir: 30,
  access: 34,
  create: 35,
  interrupt: 36,
  destroy: 38,
  batchForget: 42,
} as const;

export type Op = keyof typeof OPS | "other";

const NAME_OF = new Map<number, Op>(Object.entries(OPS).map(([name, code]) => [code, name as Op]));

export interface Request {
  readonly op: Op;
  readonly unique: bigint;
  readonly node: number;
  /** Of the thread that asks. */
  readonly tid: number;
  readonly body: Buffer;
}

/** Copied: the buffer that it was read into is used again. */
export function parseRequest(bytes: Buffer): Request {
  return {
    op: NAME_OF.get(bytes.readUInt32LE(4)) ?? "other",
    unique: bytes.readBigUInt64LE(8),
    node: Number(bytes.readBigUInt64LE(16)),
    tid: bytes.readUInt32LE(32),
    body: Buffer.from(bytes.subarray(40)),
  };
}

export function encodeReply(unique: bigint, errno: number, body: Buffer): Buffer {
  const head = Buffer.alloc(16);
  head.writeUInt32LE(16 + body.length, 0);
  head.writeInt32LE(-errno, 4);
  head.writeBigUInt64LE(unique, 8);
  return Buffer.concat([head, body]);
}

export function readName(body: Buffer, from = 0): string {
  const end = body.indexOf(0, from);
  return body.toString("utf8", from, end < 0 ? body.length : end);
}

export const MAX_TRANSFER = 1 << 20;
const ASYNC_READ = 1;
const ATOMIC_O_TRUNC = 8;
const BIG_WRITES = 32;
const PARALLEL_DIROPS = 1 << 18;
const MAX_PAGES = 1 << 22;

export function encodeInit(): Buffer {
  const out = Buffer.alloc(64);
  out.writeUInt32LE(7, 0);
  out.writeUInt32LE(31, 4);
  out.writeUInt32LE(MAX_TRANSFER, 8);
  out.writeUInt32LE(ASYNC_READ | ATOMIC_O_TRUNC | BIG_WRITES | PARALLEL_DIROPS | MAX_PAGES, 12);
  out.writeUInt16LE(64, 16);
  out.writeUInt16LE(48, 18);
  out.writeUInt32LE(MAX_TRANSFER, 20);
  out.writeUInt32LE(1, 24);
  out.writeUInt16LE(MAX_TRANSFER / 4096, 28);
  return out;
}

function encodeStats(node: number, stats: Stats): Buffer {
  const out = Buffer.alloc(88);
  out.writeBigUInt64LE(BigInt(node), 0);
  out.writeBigUInt64LE(BigInt(stats.size), 8);
  out.writeBigUInt64LE(BigInt(Math.ceil(stats.size / 512)), 16);
  for (const [index, ms] of [stats.atimeMs, stats.mtimeMs, stats.ctimeMs].entries()) {
    const seconds = Math.floor(ms / 1000);
    out.writeBigUInt64LE(BigInt(seconds), 24 + index * 8);
    out.writeUInt32LE(Math.floor((ms - seconds * 1000) * 1e6), 48 + index * 4);
  }
  out.writeUInt32LE(stats.mode, 60);
  out.writeUInt32LE(stats.isDirectory() ? 2 : 1, 64);
  out.writeUInt32LE(stats.uid, 68);
  out.writeUInt32LE(stats.gid, 72);
  out.writeUInt32LE(4096, 80);
  return out;
}

/** Valid for no time at all, so that every look-up asks again. */
export function encodeEntry(node: number, stats: Stats): Buffer {
  const out = Buffer.alloc(40);
  out.writeBigUInt64LE(BigInt(node), 0);
  return Buffer.concat([out, encodeStats(node, stats)]);
}

export function encodeAttributes(node: number, stats: Stats): Buffer {
  return Buffer.concat([Buffer.alloc(16), encodeStats(node, stats)]);
}

const FOPEN_DIRECT_IO = 1;

/** Without the kernel's page cache: a file that was read before is read again. */
export function encodeOpen(handle: number, directory = false): Buffer {
  const out = Buffer.alloc(16);
  out.writeBigUInt64LE(BigInt(handle), 0);
  out.writeUInt32LE(directory ? 0 : FOPEN_DIRECT_IO, 8);
  return out;
}

export function encodeWritten(bytes: number): Buffer {
  const out = Buffer.alloc(8);
  out.writeUInt32LE(bytes, 0);
  return out;
}

export function encodeStatfs(freeBytes: number): Buffer {
  const out = Buffer.alloc(80);
  const blocks = BigInt(Math.floor(freeBytes / 4096));
  for (const offset of [0, 8, 16]) out.writeBigUInt64LE(blocks, offset);
  out.writeUInt32LE(4096, 40);
  out.writeUInt32LE(255, 44);
  out.writeUInt32LE(4096, 48);
  return out;
}

export interface DirectoryEntry {
  readonly name: string;
  readonly node: number;
  readonly directory: boolean;
}

/** As many of the entries as fit, from the one at `offset` on. */
export function encodeEntries(entries: readonly DirectoryEntry[], offset: number, size: number): Buffer {
  const parts: Buffer[] = [];
  let bytes = 0;
  for (const [index, { name, node, directory }] of entries.entries()) {
    if (index < offset) continue;
    const encoded = Buffer.from(name);
    const part = Buffer.alloc((24 + encoded.length + 7) & ~7);
    if (bytes + part.length > size) break;
    part.writeBigUInt64LE(BigInt(node), 0);
    part.writeBigUInt64LE(BigInt(index + 1), 8);
    part.writeUInt32LE(encoded.length, 16);
    part.writeUInt32LE(directory ? 4 : 8, 20);
    encoded.copy(part, 24);
    parts.push(part);
    bytes += part.length;
  }
  return Buffer.concat(parts);
}
