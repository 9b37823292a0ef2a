/** From the start of the process to the first 200 of /health. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { BINARY } from "../test/support/daemon.ts";
import { Floors } from "./floors.ts";
import { exchange } from "./http.ts";
import { atMost, type Bench, inTurns, spreadOf } from "./measure.ts";

const ROUNDS = 41;

export const coldStart: Bench = {
  name: "cold-start",
  about: "start of the process to the first 200 of /health, against a bare compiled Bun server",
  async run() {
    await using floors = await Floors.open();
    const bare = await floors.compile("bare-server");
    const times = await inTurns(ROUNDS, {
      floor: () => start([bare], (port) => ({ PORT: `${port}` }), floors.folder),
      product: () => start([BINARY, "serve"], (port, folder) => daemonEnv(port, folder), floors.folder),
    });
    const product = spreadOf(times.product);
    const floor = spreadOf(times.floor);
    const verdict = atMost("ratio", 1.6, product, floor);
    return { rows: [{ bench: "cold-start", name: "first /health 200", unit: "ms", product, floor, verdict }] };
  },
};

function daemonEnv(port: number, folder: string): Record<string, string> {
  return {
    DAEMON_TOKEN: "a-token-of-the-bench",
    DAEMON_HOST: "127.0.0.1",
    PROXY_PORT: `${port}`,
    APP_ROOT: folder,
    HARNESS_RUNNER_CMD: "true",
    PATH: "/usr/bin:/bin",
    HOME: folder,
  };
}

async function start(
  [command = "", ...args]: readonly string[],
  envOf: (port: number, folder: string) => Record<string, string>,
  below: string,
): Promise<number> {
  const folder = await mkdtemp(join(below, "pod-"));
  const port = await freePort();
  const startedAt = performance.now();
  const child = spawn(command, args, { env: envOf(port, folder), cwd: folder, stdio: "ignore" });
  const exited = once(child, "exit");
  try {
    for (;;) {
      if (child.exitCode !== null) throw new Error(`${command} exited with ${child.exitCode}`);
      const answer = await exchange({ port, path: "/health" }).catch(() => undefined);
      if (answer?.status === 200) return performance.now() - startedAt;
    }
  } finally {
    child.kill("SIGKILL");
    await exited;
    await rm(folder, { recursive: true, force: true });
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  if (address === null || typeof address === "string") throw new Error("no free port");
  return address.port;
}
