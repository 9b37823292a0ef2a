/**
 * What the kernel knows of a connection's other end, from /proc/net/tcp and /proc/net/tcp6. A cut cable raises no
 * event for a quarter of an hour, and a reader that has stopped reading raises none at all; both show here:
 *
 * | the reader | timer | retransmits | probes | tx queue |
 * | --- | --- | --- | --- | --- |
 * | takes everything | none or retransmit | 0 | 0 | 0 again and again, however full it is in between |
 * | is cut off (the link down at either side, the peer's address gone) | retransmit | 1 within 0.3 s of the first byte, 6 after 10 s, 9 after 30 s; stands still for a while where our own side is down | 0 | grows by what is written until the send buffer is full, never shrinks |
 * | has stopped reading, its kernel answers | zero-window | 0 | 0, 1 for the moment of an answer | stands still |
 * | has stopped reading and is then cut off | zero-window | 0 | 1 after the next probe, which may be 2 minutes away | stands still |
 * | reads slowly | zero-window most of the time | 0 | 0 | shrinks and is filled up again; stands still until the reader has emptied a good part of its own receive buffer (some MB: at 20 kB/s a minute) |
 *
 * "Acknowledged" is what the peer's kernel has, not what the reader has read.
 */
import { readFile } from "node:fs/promises";
import { errnoOf } from "../errors.ts";

/** One accepted connection. `remoteAddress` is as `server.requestIP()` gives it. */
export interface Connection {
  readonly localPort: number;
  readonly remoteAddress: string;
  readonly remotePort: number;
}

export interface PeerState {
  /** Bytes that the peer has not acknowledged, sent or not. */
  readonly txQueueBytes: number;
  /** Since the peer last acknowledged something new. */
  readonly retransmits: number;
  /** Questions whether the window is still closed, since the last answer. */
  readonly probes: number;
  readonly timer: PeerTimer;
}

const TIMERS = ["none", "retransmit", "keepalive", "time-wait", "zero-window"] as const;
export type PeerTimer = (typeof TIMERS)[number];

/** ESTABLISHED, and CLOSE_WAIT: a client may close its half and go on reading. In all others we have closed ours. */
const OPEN_STATES = new Set(["01", "08"]);

/** For each connection what the kernel says of it now, or undefined when it is no longer there. */
export async function readPeerStates(connections: readonly Connection[]): Promise<(PeerState | undefined)[]> {
  if (connections.length === 0) return [];
  const [v4, v6] = await Promise.all([readTable("/proc/net/tcp"), readTable("/proc/net/tcp6")]);
  const [states4, states6] = [parsePeerStates(v4), parsePeerStates(v6)];
  return connections.map((connection) => {
    const keys = kernelKeys(connection);
    return (keys.v4 && states4.get(keys.v4)) || (keys.v6 && states6.get(keys.v6)) || undefined;
  });
}

async function readTable(path: string): Promise<string> {
  try {
    return await readFile(path, "latin1");
  } catch (thrown) {
    // No IPv6 on this machine.
    if (errnoOf(thrown) === "ENOENT") return "";
    throw thrown;
  }
}

/**
 * The open connections of one table, under "local port, remote address:port" in the kernel's notation:
 *
 *     sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode …
 */
export function parsePeerStates(table: string): Map<string, PeerState> {
  const states = new Map<string, PeerState>();
  for (const line of table.split("\n")) {
    const [, local = "", remote = "", state = "", queues = "", timer = "", retransmits = "", , probes = ""] = line
      .trim()
      .split(/\s+/);
    if (!OPEN_STATES.has(state)) continue;
    states.set(`${local.slice(local.indexOf(":") + 1)} ${remote}`, {
      txQueueBytes: Number.parseInt(queues, 16),
      retransmits: Number.parseInt(retransmits, 16),
      probes: Number.parseInt(probes, 10),
      timer: TIMERS[Number.parseInt(timer, 16)] ?? "none",
    });
  }
  return states;
}

/** Where a connection is to be found. One of an IPv4 client is in the IPv6 table when the listener is a `::` one. */
export function kernelKeys(connection: Connection): { v4?: string; v6?: string } {
  const groups = parseAddress(connection.remoteAddress);
  if (!groups) return {};
  const key = (words: readonly number[]): string =>
    `${hex(connection.localPort, 4)} ${words.map((word) => hex(swapBytes(word), 8)).join("")}:${hex(connection.remotePort, 4)}`;
  const words: number[] = [];
  for (let at = 0; at < 8; at += 2) words.push((groups[at] ?? 0) * 65_536 + (groups[at + 1] ?? 0));
  const isMapped = words[0] === 0 && words[1] === 0 && words[2] === 0xffff;
  return isMapped ? { v4: key(words.slice(3)), v6: key(words) } : { v6: key(words) };
}

/** The eight groups of an IPv6 address; an IPv4 address as the mapped one. */
function parseAddress(text: string): number[] | undefined {
  const [address = ""] = text.split("%");
  const dotted = /(\d+)\.(\d+)\.(\d+)\.(\d+)$/.exec(address);
  if (dotted) {
    const [a = 0, b = 0, c = 0, d = 0] = dotted.slice(1).map(Number);
    const tail = `${(a * 256 + b).toString(16)}:${(c * 256 + d).toString(16)}`;
    return parseAddress(dotted.index === 0 ? `::ffff:${tail}` : `${address.slice(0, dotted.index)}${tail}`);
  }
  const [head = "", tail] = address.split("::");
  const groupsOf = (part: string): number[] =>
    part === "" ? [] : part.split(":").map((group) => Number(`0x${group}`));
  const before = groupsOf(head);
  const after = tail === undefined ? [] : groupsOf(tail);
  const gap = tail === undefined ? 0 : 8 - before.length - after.length;
  if (gap < 0) return undefined;
  const groups = [...before, ...Array<number>(gap).fill(0), ...after];
  return groups.length === 8 && groups.every((group) => group <= 0xffff) ? groups : undefined;
}

/** The kernel prints addresses as numbers of the machine, and Bun runs on little-endian ones. */
function swapBytes(word: number): number {
  return (((word & 0xff) << 24) | ((word & 0xff00) << 8) | ((word >>> 8) & 0xff00) | (word >>> 24)) >>> 0;
}

function hex(value: number, digits: number): string {
  return value.toString(16).toUpperCase().padStart(digits, "0");
}
