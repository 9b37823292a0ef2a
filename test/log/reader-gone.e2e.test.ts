import { expect, test } from "bun:test";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BINARY, eventually } from "../support/daemon.ts";

const TOKEN = "a-token-of-the-tests";

test("a daemon whose log reader is gone goes on with its runs, and ends as told", async () => {
  const folder = await mkdtemp(join(tmpdir(), "dispatchd-log-gone-"));
  const child = spawn(BINARY, ["serve"], {
    cwd: folder,
    env: {
      PATH: "/usr/bin:/bin",
      DAEMON_TOKEN: TOKEN,
      DAEMON_HOST: "127.0.0.1",
      PROXY_PORT: "0",
      LOG_LEVEL: "debug",
      HARNESS_RUNNER_CMD: JSON.stringify(["/bin/sh", "-c", "cat > /dev/null; echo oops >&2"]),
    },
    stdio: ["ignore", "pipe", "ignore"],
  });
  const exited = once(child, "exit");
  try {
    let log = "";
    child.stdout.on("data", (piece) => {
      log += piece;
    });
    await eventually(() => log.includes('"event":"ready"'));
    const url = /"url":"([^"]+)"/.exec(log)?.[1];
    child.stdout.destroy();
    for (const runId of ["r1", "r2", "r3"]) {
      const response = await fetch(`${url}/dispatch`, {
        method: "POST",
        headers: { authorization: `Bearer ${TOKEN}` },
        body: JSON.stringify({ runId, input: { threadId: "t", userMessage: "hi" } }),
      });
      expect(response.status).toBe(200);
      expect(await response.text()).toContain('"done":true');
    }
    expect((await fetch(`${url}/health`)).status).toBe(200);
    child.kill("SIGTERM");
    expect((await exited)[0]).toBe(0);
  } finally {
    child.kill("SIGKILL");
    await exited;
    await rm(folder, { recursive: true, force: true });
  }
});
