/** Is a connection still open, by the kernel's own table? Asked when a decision depends on it, so it is read at once. */
import { readFileSync } from "node:fs";
import type { Connection } from "../dispatch/reader.ts";

const ESTABLISHED = "01";

/**
 * False when the peer has closed: the kernel knows before the runtime tells. True when it cannot be found out: whoever
 * is believed to be there is.
 */
export function isConnectionOpen(connection: Connection): boolean {
  for (const table of ["/proc/net/tcp6", "/proc/net/tcp"]) {
    const state = stateOf(connection, read(table));
    if (state !== undefined) return state === ESTABLISHED;
  }
  return false;
}

function read(path: string): string {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return ""; // No IPv6 in this kernel, or no such table.
  }
}

function stateOf({ localPort, remoteAddress, remotePort }: Connection, table: string): string | undefined {
  const port = (value: number): string => value.toString(16).toUpperCase().padStart(4, "0");
  for (const line of table.split("\n")) {
    const [, local, remote, state] = line.trim().split(/\s+/);
    if (!local?.endsWith(`:${port(localPort)}`) || !remote?.endsWith(`:${port(remotePort)}`)) continue;
    if (remote.slice(0, -5).endsWith(hexTail(remoteAddress))) return state;
  }
  return undefined;
}

/** The last 32 bits of an address, as the table writes them: bytes of each word turned around. */
function hexTail(address: string): string {
  const ipv4 = /(\d+)\.(\d+)\.(\d+)\.(\d+)$/.exec(address);
  if (!ipv4) return ""; // The two ports are enough to tell IPv6 peers apart in practice.
  return ipv4
    .slice(1)
    .reverse()
    .map((part) => Number(part).toString(16).toUpperCase().padStart(2, "0"))
    .join("");
}
