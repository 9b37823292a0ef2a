/** What a checkout, a dispatch and a configuration can put into the daemon (nothing), and into a harness. */
import { expect, test } from "bun:test";
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { BINARY, TestDaemon } from "../support/daemon.ts";

/** `env` as a program: what a harness gets, byte by byte, without a runtime that adds or loads something. */
const PRINTS_ENVIRONMENT = ["/bin/sh", "-c", 'env -0 > "$HOME/environment"'];
/** What would change the runtime or the daemon, wherever it comes from. */
const HOSTILE = {
  BUN_OPTIONS: "--preload=./preload.ts",
  BUN_BE_BUN: "1",
  BUN_INSPECT: "1",
  DAEMON_TOKEN: "another-token-of-somebody",
  DAEMON_BOOT_ID: "another-boot",
  SUSPENSION_KEYS: "k:another-key-of-somebody",
  SESSION_KEYS: "k:another-key-of-somebody",
};

async function environmentOf(daemon: TestDaemon): Promise<Record<string, string>> {
  const text = await readFile(daemon.path("environment"), "utf8");
  const entries = text.split("\0").filter(Boolean);
  return Object.fromEntries(
    entries.map((entry) => [entry.slice(0, entry.indexOf("=")), entry.slice(entry.indexOf("=") + 1)]),
  );
}

/** Everything that Bun would load from a working directory, each leaving a file behind if it is. */
async function setTraps(folder: string): Promise<string> {
  const trap = join(folder, "sprung");
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, ".env"), "DAEMON_BOOT_ID=from-dotenv\nLOG_LEVEL=debug\nFROM_DOTENV=1\n");
  await writeFile(join(folder, "bunfig.toml"), 'preload = ["./preload.ts"]\n[serve]\nport = 1\n');
  await writeFile(join(folder, "preload.ts"), `require("node:fs").writeFileSync(${JSON.stringify(trap)}, "");`);
  await writeFile(join(folder, "package.json"), '{"name":"trap","type":"commonjs","imports":{"#x":"./preload.ts"}}');
  await writeFile(join(folder, "tsconfig.json"), '{"compilerOptions":{"paths":{"zod":["./preload.ts"]}}}');
  return trap;
}

test("a daemon that starts in a folder full of traps loads none of them", async () => {
  await using home = await TestDaemon.start({ harness: PRINTS_ENVIRONMENT });
  const trap = await setTraps(home.path("checkout"));
  // They are good ones: Bun itself walks into them.
  expect(
    spawnSync(process.execPath, ["-p", "process.env.FROM_DOTENV"], { cwd: home.path("checkout") }).stdout.toString(),
  ).toBe("1\n");
  expect(existsSync(trap)).toBe(true);
  await rm(trap);
  await using daemon = await TestDaemon.start({
    cwd: home.path("checkout"),
    env: { RUN_ENV_ALLOW: "*", DAEMON_BOOT_ID: undefined },
    harness: PRINTS_ENVIRONMENT,
  });
  const health = await (await fetch(`${daemon.url}/health`)).json();
  expect((health as { bootId: string }).bootId).not.toBe("from-dotenv");
  const frames = await daemon.run({ runId: "r", input: { padding: "x".repeat(1 << 20) } });
  expect(frames.at(-2)?.outcome?.type).toBe("finished");
  expect(await environmentOf(daemon)).not.toHaveProperty("FROM_DOTENV");
  expect(existsSync(trap)).toBe(false);
});

test("the built-in harness, started in a checkout full of traps, loads none of them", async () => {
  await using daemon = await TestDaemon.start({
    harness: [BINARY, "harness", "claude-code"],
    env: { CLAUDE_CODE_PATH: "/does/not/exist" },
  });
  const trap = await setTraps(daemon.path("repo"));
  const frames = await daemon.run({ runId: "r", input: { env: { ...HOSTILE } } });
  expect(frames.at(-1)?.error?.code).toBe("turn_failed");
  expect(existsSync(trap)).toBe(false);
});

test("variables of the runtime and of the daemon reach no harness, from wherever they come", async () => {
  await using daemon = await TestDaemon.start({
    harness: PRINTS_ENVIRONMENT,
    env: {
      RUN_ENV_ALLOW: "*",
      BUN_CONFIG_VERBOSE_FETCH: "0",
      SESSION_KEYS: `k:${Buffer.alloc(32, 7).toString("base64url")}`,
      SUSPENSION_TTL_MS: "1",
      DAEMON_BOOT_ID: "b",
    },
  });
  const given = await daemon.fetch("/config", {
    method: "POST",
    body: JSON.stringify({ env: { ...HOSTILE, FROM_CONFIG: "1" } }),
  });
  expect(given.status).toBe(204);
  await daemon.run({ runId: "r", input: { env: { ...HOSTILE, FROM_INPUT: "1", DISPATCHD_RUN_ID: "forged" } } });
  const env = await environmentOf(daemon);
  expect(Object.keys(env).filter((name) => /^(BUN|DAEMON|SUSPENSION|SESSION)_/.test(name))).toEqual([]);
  expect(env).toMatchObject({ FROM_CONFIG: "1", FROM_INPUT: "1", DISPATCHD_RUN_ID: "r", DISPATCHD_ATTEMPT: "1" });
  // Nor have they changed the daemon.
  expect((await daemon.fetch("/idle")).status).toBe(200);
  expect(
    (await fetch(`${daemon.url}/idle`, { headers: { authorization: `Bearer ${HOSTILE.DAEMON_TOKEN}` } })).status,
  ).toBe(401);
});

test("the allow-list, then /config, then the dispatch, then the daemon: the later one wins", async () => {
  await using daemon = await TestDaemon.start({
    harness: PRINTS_ENVIRONMENT,
    env: { RUN_ENV_ALLOW: "PATH, HOME, LC_*, A, B, C", A: "pod", B: "pod", C: "pod", LC_ALL: "C", NOT_ALLOWED: "pod" },
  });
  const configure = (env: Record<string, string>) =>
    daemon.fetch("/config", { method: "POST", body: JSON.stringify({ env }) });
  await configure({ B: "config", C: "config", D: "config", E: "config" });
  await daemon.run({
    runId: "first",
    input: { env: { C: "dispatch", E: "dispatch", DISPATCHD_ATTEMPT: "9" } },
    headers: { traceparent: `00-${"a".repeat(32)}-${"b".repeat(16)}-01` },
  });
  const first = await environmentOf(daemon);
  expect(first).toMatchObject({ A: "pod", B: "config", C: "dispatch", D: "config", E: "dispatch", LC_ALL: "C" });
  expect(first).toMatchObject({
    DISPATCHD_RUN_ID: "first",
    DISPATCHD_ATTEMPT: "1",
    TRACEPARENT: `00-${"a".repeat(32)}-${"b".repeat(16)}-01`,
  });
  expect(first).not.toHaveProperty("NOT_ALLOWED");

  // What a later call does not name is gone.
  await configure({ F: "config" });
  await daemon.run({ runId: "second" });
  const second = await environmentOf(daemon);
  expect(second).toMatchObject({ A: "pod", B: "pod", C: "pod", F: "config" });
  expect(second).not.toHaveProperty("D");

  // A restart returns to the configured ones.
  await daemon.stop();
  await daemon.launch();
  await daemon.run({ runId: "third" });
  expect(await environmentOf(daemon)).not.toHaveProperty("F");
});

test("a variable that no process could be started with is refused with its name's path", async () => {
  await using daemon = await TestDaemon.start({ harness: PRINTS_ENVIRONMENT });
  for (const env of [{ "A=B": "" }, { A: "x\0y" }, { "": "x" }]) {
    const response = await daemon.dispatch({ runId: "r", input: { env } });
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ error: "bad_input", detail: expect.stringMatching(/^input\.env/) });
  }
  expect(await (await daemon.fetch("/runs")).json()).toEqual({ runs: [] });
});
