/**
 * A filesystem that hangs, fails and lags on command. One process per mount, one thread, one loop:
 *
 *     bun server.ts '{"mountPoint":…,"backing":…,"cache":…,"writeBackMs":null,"listingMs":0}'
 *
 * Commands are JSON lines on stdin, each answered by one on stdout. A held request was read and is not answered: its
 * caller cannot be killed. While frozen nothing is read: callers wait, and can be. The mount goes when stdin ends, and
 * a hold that nobody has touched for `MAX_HOLD_MS` ends with it, so that no test can leave a wedge behind.
 */
import { chmodSync, readFileSync, readSync, utimesSync, writeSync } from "node:fs";
import { join } from "node:path";
import { closeDevice, mountFuse, readRequest, unmount, waitFor, writeReply } from "./native.ts";
import {
  encodeAttributes,
  encodeEntries,
  encodeEntry,
  encodeInit,
  encodeOpen,
  encodeReply,
  encodeStatfs,
  encodeWritten,
  MAX_TRANSFER,
  type Op,
  parseRequest,
  type Request,
  readName,
} from "./protocol.ts";
import { type Delay, ERRNO, type Fault, Rules, type Where } from "./rules.ts";
import { type OpenFile, Tree, type TreeSettings } from "./tree.ts";

export interface ServerSettings extends TreeSettings {
  readonly mountPoint: string;
}

/** Who asked for what. `caller` is the process, by its id and command line. */
export interface Traced {
  readonly op: Op;
  readonly path: string;
  readonly pid: number;
  readonly caller: string;
}

export type Command =
  | { readonly do: "hold"; readonly where: Where }
  | { readonly do: "freeze" | "release" | "heal" | "held" | "counts" | "unwritten" | "vanish" | "forgetListings" }
  | { readonly do: "fail"; readonly fault: Fault }
  | { readonly do: "delay"; readonly delay: Delay }
  | { readonly do: "space"; readonly bytes: number | null }
  | { readonly do: "writeBack"; readonly keep: number }
  | { readonly do: "trace"; readonly on: boolean };

const MAX_HOLD_MS = 120_000;
const EMPTY = Buffer.alloc(0);

const settings = JSON.parse(process.argv[2] ?? "") as ServerSettings;
const tree = new Tree(settings);
const rules = new Rules();

const paths = new Map<number, string>([[1, ""]]);
const nodes = new Map<string, number>([["", 1]]);
let lastNode = 1;
const files = new Map<number, OpenFile>();
const folders = new Map<number, [string, boolean][]>();
let lastHandle = 0;

let held: Request[] = [];
let delayed: { readonly at: number; readonly request: Request }[] = [];
let frozen = false;
let watchdogAt = Number.POSITIVE_INFINITY;
let traced: Traced[] | undefined;
let counts: Record<string, number> = {};

function nodeOf(path: string): number {
  const known = nodes.get(path);
  if (known !== undefined) return known;
  lastNode++;
  paths.set(lastNode, path);
  nodes.set(path, lastNode);
  return lastNode;
}

function below(folder: number, name: string): string {
  return join(paths.get(folder) ?? "", name);
}

/** Which path a request is about: the one that it names, or else its node's. */
function pathOf({ op, node, body }: Request): string {
  const nameAt: Partial<Record<Op, number>> = { lookup: 0, unlink: 0, rmdir: 0, mkdir: 8, rename: 8, create: 16 };
  const at = nameAt[op];
  return at === undefined ? (paths.get(node) ?? "") : below(node, readName(body, at));
}

function moveNodes(from: string, to: string): void {
  nodes.delete(to);
  for (const [path, node] of [...nodes]) {
    if (path !== from && !path.startsWith(`${from}/`)) continue;
    nodes.delete(path);
    nodes.set(to + path.slice(from.length), node);
    paths.set(node, to + path.slice(from.length));
  }
}

function addFile(file: OpenFile): number {
  files.set(++lastHandle, file);
  return lastHandle;
}

function fileAt(body: Buffer): OpenFile {
  const file = files.get(Number(body.readBigUInt64LE(0)));
  if (!file) throw Object.assign(new Error("no such handle"), { code: "EIO" });
  return file;
}

function setAttributes({ body, node }: Request, path: string): Buffer {
  const valid = body.readUInt32LE(0);
  if (valid & 8)
    tree.truncate(path, Number(body.readBigUInt64LE(16)), valid & 64 ? fileAt(body.subarray(8)) : undefined);
  // Where the file is a clean one of the backend; one that is not written yet keeps what it has.
  const backing = join(settings.backing, path);
  const quietly = (change: () => void): void => {
    if (!tree.unwritten.includes(path)) change();
  };
  if (valid & 1) quietly(() => chmodSync(backing, body.readUInt32LE(68) & 0o7777));
  if (valid & 32) {
    const mtime = valid & 256 ? Date.now() / 1000 : Number(body.readBigUInt64LE(40)) + body.readUInt32LE(60) / 1e9;
    quietly(() => utimesSync(backing, mtime, mtime));
  }
  return encodeAttributes(node, tree.stat(path));
}

const handlers: Partial<Record<Op, (request: Request, path: string) => Buffer>> = {
  init: () => encodeInit(),
  lookup: (_, path) => encodeEntry(nodeOf(path), tree.stat(path)),
  getattr: ({ node }, path) => encodeAttributes(node, tree.stat(path)),
  setattr: setAttributes,
  mkdir(request, path) {
    tree.makeFolder(path, request.body.readUInt32LE(0) & 0o777);
    return encodeEntry(nodeOf(path), tree.stat(path));
  },
  unlink(_, path) {
    tree.unlink(path);
    nodes.delete(path);
    return EMPTY;
  },
  rmdir(_, path) {
    tree.removeFolder(path);
    nodes.delete(path);
    return EMPTY;
  },
  rename({ body }, path) {
    const name = readName(body, 8);
    const to = below(Number(body.readBigUInt64LE(0)), readName(body, 8 + Buffer.byteLength(name) + 1));
    tree.rename(path, to);
    moveNodes(path, to);
    return EMPTY;
  },
  open: ({ body }, path) => encodeOpen(addFile(tree.open(path, body.readUInt32LE(0)))),
  create({ body }, path) {
    const file = tree.create(path, body.readUInt32LE(0), body.readUInt32LE(4) & 0o777);
    return Buffer.concat([encodeEntry(nodeOf(path), tree.stat(path)), encodeOpen(addFile(file))]);
  },
  read({ body }) {
    const bytes = tree.read(fileAt(body), Number(body.readBigUInt64LE(8)), body.readUInt32LE(16));
    counts.bytesRead = (counts.bytesRead ?? 0) + bytes.length;
    return bytes;
  },
  write({ body }) {
    const size = body.readUInt32LE(16);
    const taken = tree.write(fileAt(body), body.subarray(40, 40 + size), Number(body.readBigUInt64LE(8)));
    counts.bytesWritten = (counts.bytesWritten ?? 0) + taken;
    return encodeWritten(taken);
  },
  release({ body }) {
    tree.close(fileAt(body), Date.now());
    files.delete(Number(body.readBigUInt64LE(0)));
    return EMPTY;
  },
  opendir(_, path) {
    folders.set(
      ++lastHandle,
      [...tree.list(path)].map(([name, stats]) => [name, stats.isDirectory()]),
    );
    return encodeOpen(lastHandle, true);
  },
  readdir({ body }, path) {
    const entries = folders.get(Number(body.readBigUInt64LE(0))) ?? [];
    const listed = entries.map(([name, directory]) => ({ name, node: nodeOf(join(path, name)), directory }));
    return encodeEntries(listed, Number(body.readBigUInt64LE(8)), body.readUInt32LE(16));
  },
  releasedir({ body }) {
    folders.delete(Number(body.readBigUInt64LE(0)));
    return EMPTY;
  },
  statfs: () => encodeStatfs(tree.freeBytes),
  flush: () => EMPTY,
  fsync: () => EMPTY,
  fsyncdir: () => EMPTY,
  access: () => EMPTY,
};

const device = mountFuse(settings.mountPoint);

function answer(request: Request): void {
  const path = pathOf(request);
  let errno = rules.faultOf(request.op, path);
  let body: Buffer = EMPTY;
  const handler = handlers[request.op];
  if (!handler) errno = ERRNO.ENOSYS;
  else if (errno === 0) {
    try {
      body = handler(request, path);
    } catch (error) {
      const { code } = error as { code?: string };
      errno = ERRNO[code as keyof typeof ERRNO] ?? ERRNO.EIO;
    }
  }
  writeReply(device, encodeReply(request.unique, errno, errno === 0 ? body : EMPTY));
}

function take(request: Request): void {
  const { op } = request;
  // They are answered by nobody.
  if (op === "forget" || op === "batchForget" || op === "interrupt") return;
  const path = pathOf(request);
  counts[op] = (counts[op] ?? 0) + 1;
  traced?.push({ op, path, ...callerOf(request.tid) });
  if (rules.holds(op, path)) {
    held.push(request);
    return;
  }
  const ms = rules.delayOf(op, path);
  if (ms > 0) delayed.push({ at: performance.now() + ms, request });
  else answer(request);
}

function callerOf(tid: number): { pid: number; caller: string } {
  try {
    const pid = Number(/^Tgid:\s*(\d+)/m.exec(readFileSync(`/proc/${tid}/status`, "utf8"))?.[1] ?? 0);
    return { pid, caller: readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ").trim() };
  } catch {
    return { pid: 0, caller: "" }; // Of the kernel itself, or already gone.
  }
}

function releaseHeld(): number {
  rules.release();
  frozen = false;
  watchdogAt = Number.POSITIVE_INFINITY;
  const waiting = held;
  held = [];
  for (const request of waiting) answer(request);
  return waiting.length;
}

function carryOut(command: Command): unknown {
  if (watchdogAt < Number.POSITIVE_INFINITY) watchdogAt = performance.now() + MAX_HOLD_MS;
  switch (command.do) {
    case "hold":
      watchdogAt = performance.now() + MAX_HOLD_MS;
      return rules.hold(command.where);
    case "freeze":
      watchdogAt = performance.now() + MAX_HOLD_MS;
      frozen = true;
      return null;
    case "release":
      return releaseHeld();
    case "fail":
      return rules.fail(command.fault);
    case "delay":
      return rules.delay(command.delay);
    case "heal":
      return rules.heal();
    case "space":
      tree.freeBytes = command.bytes ?? Number.POSITIVE_INFINITY;
      return null;
    case "writeBack":
      return tree.writeBack(Date.now(), { all: true, keep: command.keep });
    case "unwritten":
      return tree.unwritten;
    case "forgetListings":
      return tree.forgetListings();
    case "held":
      return held.map((request) => ({ op: request.op, path: pathOf(request), ...callerOf(request.tid) }));
    case "counts": {
      const was = counts;
      counts = {};
      return was;
    }
    case "trace": {
      const was = traced ?? [];
      traced = command.on ? [] : undefined;
      return was;
    }
    case "vanish":
      // The mount stays, and nobody is behind it: every call fails with ENOTCONN.
      closeDevice(device);
      say(null);
      return process.exit(0);
  }
}

function say(value: unknown): void {
  writeSync(1, `${JSON.stringify(value ?? null)}\n`);
}

function quit(): never {
  unmount(settings.mountPoint);
  process.exit(0);
}

/** Milliseconds until something is due, -1 for never. */
function idleMs(): number {
  const now = performance.now();
  const due = [
    ...delayed.map(({ at }) => at - now),
    ...(watchdogAt < Number.POSITIVE_INFINITY ? [watchdogAt - now] : []),
    tree.nextDue(Date.now()) ?? Number.POSITIVE_INFINITY,
  ];
  const next = Math.min(...due);
  return next === Number.POSITIVE_INFINITY ? -1 : Math.max(0, Math.ceil(next));
}

// A signal to the test's group is the test's to answer: the end of stdin ends this.
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => {});
const buffer = Buffer.alloc(MAX_TRANSFER + 8192);
const input = Buffer.alloc(1 << 16);
let line = "";
say("mounted");
for (;;) {
  const ready = waitFor(frozen ? -1 : device, idleMs());
  if (performance.now() > watchdogAt) quit();
  const now = performance.now();
  const due = delayed.filter(({ at }) => at <= now);
  delayed = delayed.filter(({ at }) => at > now);
  for (const { request } of due) answer(request);
  tree.writeBack(Date.now());
  if (ready.command) {
    const bytes = readSync(0, input);
    if (bytes === 0) quit();
    line += input.toString("utf8", 0, bytes);
    const lines = line.split("\n");
    line = lines.pop() ?? "";
    for (const one of lines) say(carryOut(JSON.parse(one) as Command));
  }
  if (ready.gone) quit();
  if (ready.request) {
    const bytes = readRequest(device, buffer);
    if (bytes) take(parseRequest(bytes));
  }
}
