/**
 * A harness that looks for a secret wherever a process can look, and says where it was found. What it looks for comes
 * reversed in `input.spy`, so that it is not itself where the secret is. The report is a `data-report` chunk.
 */
import {
  closeSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  readSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";

export interface SpyOrder {
  readonly reversed: string;
  readonly daemonPid: number;
  readonly stateDir: string;
  /** Files and folders to be read, if they let one. */
  readonly paths?: readonly string[];
}

export interface SpyReport {
  readonly uid: number;
  readonly gid: number;
  readonly groups: readonly number[];
  readonly capabilities: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Where the secret was. */
  readonly found: readonly string[];
  /** How many files were read without finding it. */
  readonly clean: number;
  /** What opening it for reading gives: "open", or an errno name. */
  readonly access: Readonly<Record<string, string>>;
  readonly usable: Readonly<Record<string, string>>;
}

const MAX_FILE_BYTES = 1 << 20;
const found: string[] = [];
let clean = 0;

function attempt<T>(work: () => T): T | string {
  try {
    return work();
  } catch (error) {
    return String((error as { code?: unknown }).code);
  }
}

function look(path: string, needle: Buffer): void {
  attempt(() => {
    const fd = openSync(path, "r");
    try {
      const block = Buffer.alloc(MAX_FILE_BYTES);
      const text = block.subarray(0, readSync(fd, block, 0, block.length, null));
      if (text.includes(needle)) found.push(path);
      else clean++;
    } finally {
      closeSync(fd);
    }
  });
}

function walk(path: string, needle: Buffer): void {
  const entries = attempt(() => readdirSync(path, { withFileTypes: true }));
  for (const entry of typeof entries === "string" ? [] : entries) {
    const child = join(path, entry.name);
    if (entry.isDirectory()) walk(child, needle);
    else if (entry.isFile()) look(child, needle);
  }
}

function accessOf(path: string): string {
  const result = attempt(() => {
    if (statSync(path).isDirectory()) readdirSync(path);
    else closeSync(openSync(path, "r"));
    return "open";
  });
  return result;
}

function spy(order: SpyOrder, writable: Readonly<Record<string, string>>): SpyReport {
  const needle = Buffer.from([...order.reversed].reverse().join(""));
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    look(`/proc/${pid}/environ`, needle);
    look(`/proc/${pid}/cmdline`, needle);
  }
  const daemon = `/proc/${order.daemonPid}`;
  const fds = attempt(() => readdirSync(`${daemon}/fd`));
  for (const fd of typeof fds === "string" ? [] : fds) {
    const target = attempt(() => readlinkSync(`${daemon}/fd/${fd}`));
    // A pipe that is read would have its content taken away, and may never answer.
    if (target.startsWith("/") && !target.startsWith("/dev/")) look(`${daemon}/fd/${fd}`, needle);
  }
  walk(order.stateDir, needle);
  const status = readFileSync("/proc/self/status", "utf8");
  return {
    uid: process.getuid?.() ?? -1,
    gid: process.getgid?.() ?? -1,
    groups: (/^Groups:(.*)$/m.exec(status)?.[1] ?? "").split(/\s+/).filter(Boolean).map(Number),
    capabilities: /^CapEff:\s*(\w+)$/m.exec(status)?.[1] ?? "",
    env: process.env,
    found,
    clean,
    access: Object.fromEntries(
      [`${daemon}/environ`, `${daemon}/mem`, `${daemon}/fd`, `${daemon}/maps`, ...(order.paths ?? [])].map((path) => [
        path.replace(daemon, "daemon"),
        accessOf(path),
      ]),
    ),
    usable: Object.fromEntries(
      Object.entries(writable).map(([name, path]) => [
        name,
        attempt(() => {
          writeFileSync(join(path, "mine"), "");
          return "writable";
        }),
      ]),
    ),
  };
}

if (import.meta.main) {
  const document = JSON.parse(await Bun.stdin.text());
  const { runDir, configDir, cwd } = document.paths;
  const report = spy(document.input.spy, { runDir, configDir, cwd });
  process.stdout.write(`${JSON.stringify({ chunks: [{ type: "data-report", data: report }] })}\n`);
}
