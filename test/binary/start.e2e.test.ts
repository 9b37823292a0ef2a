/** How the binary starts, or says why it does not. */
import { expect, test } from "bun:test";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { BINARY, eventually, TestDaemon } from "../support/daemon.ts";

interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs the binary to its end, which has to come by itself. */
async function run(args: readonly string[], env: Record<string, string> = {}): Promise<Ended> {
  const folder = await mkdtemp(join(tmpdir(), "dispatchd-start-"));
  try {
    const child = spawn(BINARY, args, { cwd: folder, env, stdio: ["ignore", "pipe", "pipe"] });
    const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr), once(child, "exit")]);
    return { code: child.exitCode, stdout, stderr };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Tries to listen there; resolves with "free" or the errno name. */
async function tryPort(host: string, port: number): Promise<string> {
  const server = createServer();
  try {
    server.listen(port, host);
    await once(server, "listening");
    return "free";
  } catch (error) {
    return String((error as { code?: unknown }).code);
  } finally {
    server.close();
  }
}

test("without a token it refuses to start: exit code 2, and the name of what is missing", async () => {
  for (const args of [[], ["serve"]]) {
    expect(await run(args)).toEqual({
      code: 2,
      stdout: "",
      stderr: "dispatchd: configuration: DAEMON_TOKEN (or DAEMON_TOKEN_FILE) is required\n",
    });
  }
});

test("every wrong setting is named in one message", async () => {
  const ended = await run(["serve"], {
    DAEMON_TOKEN: "t",
    DAEMON_TOKEN_FILE: "/x",
    PROXY_PORT: "x",
    LOG_LEVEL: "loud",
  });
  expect(ended.code).toBe(2);
  expect(ended.stderr.split("\n")).toEqual([
    'dispatchd: configuration: DAEMON_TOKEN and DAEMON_TOKEN_FILE are both set; LOG_LEVEL must be one of debug, info, warn, error, not "loud"; PROXY_PORT must be a whole number from 0 to 65535, not "x"',
    "",
  ]);
});

test("an argument that it does not know is refused, and told", async () => {
  const ended = await run(["serve", "--port", "1"], { DAEMON_TOKEN: "t" });
  expect(ended.code).toBe(2);
  expect(ended.stderr).toStartWith("serve: unknown argument --port\n");
});

test("--help and --version need no setting", async () => {
  const { version } = (await Bun.file(join(import.meta.dir, "../../package.json")).json()) as { version: string };
  expect(await run(["--version"])).toEqual({ code: 0, stdout: `${version}\n`, stderr: "" });
  for (const args of [
    ["--help"],
    ["serve", "--help"],
    ["harness", "claude-code", "--help"],
    ["orgfs-worker", "--help"],
  ]) {
    const ended = await run(args);
    expect([args, ended.code, ended.stderr]).toEqual([args, 0, ""]);
    expect(ended.stdout).toContain("dispatchd");
  }
});

test("what the daemon starts by itself says what it is to whoever starts it by hand", async () => {
  const { version } = (await Bun.file(join(import.meta.dir, "../../package.json")).json()) as { version: string };
  expect(await run(["orgfs-worker", "--version"])).toEqual({ code: 0, stdout: `${version}\n`, stderr: "" });
  const wrong = await run(["orgfs-worker", "now"]);
  expect([wrong.code, wrong.stdout]).toEqual([2, ""]);
  expect(wrong.stderr).toStartWith("dispatchd orgfs-worker\n");
  const alone = await run(["orgfs-worker"]);
  expect([alone.code, alone.stderr]).toEqual([1, ""]);
  expect(JSON.parse(alone.stdout)).toEqual({ failed: { code: "bad_order", message: "no order on stdin" } });
});

test("a port in use and a state folder in use are told in one line each: exit code 1", async () => {
  await using daemon = await TestDaemon.start();
  const other = { ...daemon.environment(), PROXY_PORT: String(daemon.port), STATE_DIR: daemon.path("another") };
  const inUse = await run(["serve"], other);
  expect([inUse.code, inUse.stderr]).toEqual([
    1,
    `dispatchd: cannot listen on 127.0.0.1 port ${daemon.port}: EADDRINUSE\n`,
  ]);
  const sameState = await run(["serve"], daemon.environment());
  expect([sameState.code, sameState.stderr]).toEqual([
    1,
    `dispatchd: another daemon uses the state folder ${daemon.stateDir}\n`,
  ]);
  // Nor can a program that is ready to share the port.
  expect(() =>
    Bun.serve({ hostname: "127.0.0.1", port: daemon.port, reusePort: true, fetch: () => new Response() }),
  ).toThrow("in use");
  // The one that runs was not disturbed.
  expect((await daemon.run({ runId: "r" })).at(-2)?.outcome?.type).toBe("finished");
});

test("a state folder that cannot be made is told with its reason", async () => {
  const ended = await run(["serve"], { DAEMON_TOKEN: "t", PROXY_PORT: "0", STATE_DIR: "/proc/nothing" });
  expect(ended.code).toBe(1);
  expect(ended.stderr).toMatch(/^dispatchd: the state folder \/proc\/nothing cannot be made: E[A-Z]+\n$/);
});

test("on :: it serves both families, and nobody can take the other one's port", async () => {
  await using daemon = await TestDaemon.start({ env: { DAEMON_HOST: undefined } });
  for (const host of ["127.0.0.1", "[::1]"]) {
    const response = await fetch(`http://${host}:${daemon.port}/health`);
    expect([host, response.status]).toEqual([host, 200]);
  }
  for (const host of ["127.0.0.1", "0.0.0.0", "::1", "::"]) {
    expect([host, await tryPort(host, daemon.port)]).toEqual([host, "EADDRINUSE"]);
  }
});

test("a value like tcp://… is ignored with a warning; what is not safe is told", async () => {
  await using daemon = await TestDaemon.start({
    env: { PROXY_PORT: "tcp://10.0.0.1:80", DAEMON_PORT: "0", BUN_CONFIG_VERBOSE_FETCH: "0" },
  });
  const warnings = daemon.log.filter(({ event }) => event === "configuration").map(({ warning }) => warning);
  expect(warnings).toEqual([
    "SUSPENSION_KEYS is not set: what a person is asked is not signed",
    "PROXY_PORT is ignored: it looks like a Kubernetes service link",
    "BUN_CONFIG_VERBOSE_FETCH can change how this program runs",
  ]);
});

test("serve --dev needs no setting, and prints the token and the url that work", async () => {
  const folder = await mkdtemp(join(tmpdir(), "dispatchd-dev-test-"));
  const child = spawn(BINARY, ["--dev"], {
    cwd: folder,
    // A port of its own, so that two of these tests can run at a time; the rest is made up.
    env: { PORT: "0", TMPDIR: folder },
    stdio: ["ignore", "pipe", "pipe"],
  });
  try {
    let output = "";
    child.stdout.on("data", (piece) => {
      output += piece;
    });
    const line = (name: string) => new RegExp(`^${name}: (.*)$`, "m").exec(output)?.[1];
    await eventually(() => line("state") !== undefined && child.exitCode === null);
    expect(line("url")).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
    expect(line("state")).toStartWith(folder);
    const runs = await fetch(`${line("url")}/runs`, { headers: { authorization: `Bearer ${line("token")}` } });
    expect(runs.status).toBe(200);
  } finally {
    const exited = once(child, "exit");
    child.kill();
    await exited;
    await rm(folder, { recursive: true, force: true });
  }
  expect(child.exitCode).toBe(0);
});

test("an APP_ROOT that is not there is refused, and not made", async () => {
  const folder = await mkdtemp(join(tmpdir(), "dispatchd-no-root-"));
  try {
    const root = join(folder, "nothing");
    const child = spawn(BINARY, ["serve"], {
      cwd: folder,
      env: { DAEMON_TOKEN: "t", PROXY_PORT: "0", DAEMON_HOST: "127.0.0.1", APP_ROOT: root },
      stdio: ["ignore", "ignore", "pipe"],
    });
    const exited = once(child, "exit");
    const said = await text(child.stderr);
    expect((await exited)[0]).toBe(1);
    expect(said).toBe(`dispatchd: APP_ROOT ${root} is not there\n`);
    expect(existsSync(root)).toBe(false);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
