/** Is a connection still open, by the kernel's own table? Asked when a decision depends on it, so it is read at once. */
import { readFileSync } from "node:fs";
import type { Connection } from "../dispatch/reader.ts";
import { errnoOf } from "../errors.ts";
import { kernelKeys } from "./peer-state.ts";

const ESTABLISHED = "01";

/**
 * False when the peer has closed its end, or the connection is gone: the kernel knows it before the runtime tells, and
 * the runtime closes a connection of which one half is closed.
 */
export function isConnectionOpen(connection: Connection): boolean {
  const { v4, v6 } = kernelKeys(connection);
  return isEstablished("/proc/net/tcp6", v6) || isEstablished("/proc/net/tcp", v4);
}

function isEstablished(path: string, key: string | undefined): boolean {
  if (key === undefined) return false;
  return readTable(path)
    .split("\n")
    .some((line) => {
      const [, local = "", remote = "", state] = line.trim().split(/\s+/);
      return state === ESTABLISHED && `${local.slice(local.indexOf(":") + 1)} ${remote}` === key;
    });
}

function readTable(path: string): string {
  try {
    return readFileSync(path, "latin1");
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return ""; // No IPv6 on this machine.
    throw error;
  }
}
