import { expect, test } from "bun:test";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BINARY, eventually } from "../support/daemon.ts";

const TOKEN = "a-token-of-the-tests";
const MIB = 2 ** 20;
const REQUESTS = 40_000;

async function residentBytes(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) * 1024;
}

test("a daemon whose log nobody reads goes on with flat memory, and says what it dropped", async () => {
  const folder = await mkdtemp(join(tmpdir(), "dispatchd-unread-"));
  const child = spawn(BINARY, ["serve"], {
    cwd: folder,
    env: { PATH: "/usr/bin:/bin", DAEMON_TOKEN: TOKEN, DAEMON_HOST: "127.0.0.1", PROXY_PORT: "0", LOG_LEVEL: "debug" },
    stdio: ["ignore", "pipe", "ignore"],
  });
  try {
    let log = "";
    child.stdout.on("data", (piece) => {
      log += piece;
    });
    await eventually(() => log.includes('"event":"ready"'));
    const url = /"url":"([^"]+)"/.exec(log)?.[1];
    child.stdout.pause();

    // Each of them is a log line of some 3 KB at debug: 120 MB that would have to wait somewhere.
    const refuse = async (count: number): Promise<void> => {
      for (let i = 0; i < count; i++) {
        const response = await fetch(`${url}/${"x".repeat(3000)}`, { headers: { authorization: `Bearer ${TOKEN}` } });
        await response.arrayBuffer();
      }
    };
    const together = (count: number) => Promise.all(Array.from({ length: 16 }, () => refuse(count / 16)));
    await together(REQUESTS / 4);
    const before = await residentBytes(child.pid ?? 0);
    await together(REQUESTS);
    const grown = (await residentBytes(child.pid ?? 0)) - before;
    expect(grown).toBeLessThan(48 * MIB);
    expect((await fetch(`${url}/health`)).status).toBe(200);

    log = "";
    child.stdout.resume();
    // The first line that finds room again brings the count.
    await eventually(async () => {
      await refuse(1);
      return log.includes("log lines dropped");
    });
    const dropped = Number(/"event":"log lines dropped","lines":(\d+)/.exec(log)?.[1]);
    const kept = log.slice(0, log.indexOf("log lines dropped")).split("\n").length;
    expect(dropped).toBeGreaterThan(REQUESTS / 2);
    expect(kept).toBeLessThan(REQUESTS / 2);
    for (const line of log.split("\n").slice(1, -1)) JSON.parse(line);
  } finally {
    const exited = once(child, "exit");
    child.kill();
    await exited;
    await rm(folder, { recursive: true, force: true });
  }
});
