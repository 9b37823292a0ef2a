/** What a harness that looks everywhere finds of the daemon's token: as the same user, and as another one. */
import { expect, test } from "bun:test";
import { randomBytes } from "node:crypto";
import { chmod, chown, mkdir, mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startMcpEndpoint } from "../support/claude-code-harness/mcp-endpoint.ts";
import { type DaemonSetup, TestDaemon } from "../support/daemon.ts";
import { needsRoot } from "../support/needs-root.ts";
import { calls, says, startScriptedModel } from "../support/scripted-model/index.ts";
import type { SpyOrder, SpyReport } from "./spy-harness.ts";

const SPY = [process.execPath, join(import.meta.dir, "spy-harness.ts")];
const NOBODY = { uid: 23456, gid: 23457 };
const ANYBODY_MAY_PASS = 0o711;

const newToken = (): string => randomBytes(24).toString("hex");

function startSpied(setup: DaemonSetup & { token: string }): Promise<TestDaemon> {
  return TestDaemon.start({ harness: SPY, ...setup, env: { HARNESS_STARTS: undefined, ...setup.env } });
}

async function spyOn(daemon: TestDaemon, paths: readonly string[] = []): Promise<SpyReport> {
  const spy: SpyOrder = {
    reversed: [...daemon.token].reverse().join(""),
    daemonPid: daemon.pid,
    stateDir: daemon.stateDir,
    paths,
  };
  const frames = await daemon.run({ runId: "spy", input: { spy } });
  const chunk = frames.flatMap(({ chunks }) => chunks).find(({ type }) => type === "data-report");
  if (!chunk) throw new Error(`no report: ${JSON.stringify(frames)} ${JSON.stringify(daemon.log)}`);
  return chunk.data as SpyReport;
}

test("a harness of the daemon's user finds the token nowhere in /proc and nowhere in the state folder", async () => {
  await using daemon = await startSpied({ token: newToken() });
  const report = await spyOn(daemon);
  expect(report.found).toEqual([]);
  expect(report.clean).toBeGreaterThan(10);
});

test("a token from a file is not in the environment, and neither are keys", async () => {
  const folder = await mkdtemp(join(tmpdir(), "dispatchd-secret-"));
  try {
    const token = newToken();
    await writeFile(join(folder, "token"), `${token}\n`, { mode: 0o600 });
    await using daemon = await startSpied({
      token,
      env: { DAEMON_TOKEN: undefined, DAEMON_TOKEN_FILE: join(folder, "token") },
    });
    expect((await daemon.fetch("/idle")).status).toBe(200);
    expect((await spyOn(daemon)).found).toEqual([]);

    const key = randomBytes(32).toString("base64url");
    await using other = await startSpied({
      token: newToken(),
      env: { SUSPENSION_KEYS: `k:${key}`, SESSION_KEYS: `k:${key}` },
    });
    const spy = { reversed: [...key].reverse().join(""), daemonPid: other.pid, stateDir: other.stateDir };
    const frames = await other.run({ runId: "spy", input: { spy } });
    const report = frames.flatMap(({ chunks }) => chunks).find(({ type }) => type === "data-report");
    expect(report?.data).toMatchObject({ found: [] });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

needsRoot("the daemon's memory and environment are closed to its own user, if that is not root", async () => {
  await using daemon = await startSpied({ token: newToken(), user: NOBODY });
  const report = await spyOn(daemon);
  expect(report).toMatchObject({ uid: NOBODY.uid, gid: NOBODY.gid, groups: [], found: [] });
  expect(report.access).toEqual({
    "daemon/environ": "EACCES",
    "daemon/mem": "EACCES",
    "daemon/fd": "EACCES",
    "daemon/maps": "EACCES",
  });
  expect(await (await fetch(`${daemon.url}/health`)).json()).toMatchObject({ isolation: "none" });
});

needsRoot("AGENT_USER: another user, without groups, shut out of the daemon and of its half of the state", async () => {
  const outside = await mkdtemp(join(tmpdir(), "dispatchd-state-"));
  try {
    await chmod(outside, ANYBODY_MAY_PASS);
    const stateDir = join(outside, "state");
    const home = join(outside, "home");
    await mkdir(home, { mode: 0o700 });
    await chown(home, NOBODY.uid, NOBODY.gid);
    await using daemon = await startSpied({
      token: newToken(),
      env: {
        AGENT_USER: `${NOBODY.uid}:${NOBODY.gid}`,
        STATE_DIR: stateDir,
        HOME: home,
        HARNESS_CAPABILITIES: '{"resume":true,"sessionFiles":{"main":"s/<id>","side":"d/<id>"}}',
      },
    });
    await daemon.cancel("a-tombstone");
    const { uid, gid } = NOBODY;
    const closed = [
      "",
      "own",
      "own/runs",
      "own/threads",
      "own/tombstones",
      "own/nonces",
      "lock",
      "agent",
      "agent/runs",
      "agent/threads",
    ];
    const report = await spyOn(
      daemon,
      closed.map((name) => join(stateDir, name)),
    );
    expect(report).toMatchObject({ uid, gid, groups: [], found: [] });
    expect(Number.parseInt(report.capabilities, 16)).toBe(0);
    expect(Object.values(report.access)).toEqual(Array.from({ length: 4 + closed.length }, () => "EACCES"));
    expect(report.usable).toEqual({ runDir: "writable", configDir: "writable", cwd: "writable" });
    const given = await stat(join(home, ".claude"));
    expect([given.uid, given.gid, given.mode & 0o777]).toEqual([uid, gid, 0o700]);
    expect(await (await fetch(`${daemon.url}/health`)).json()).toMatchObject({ isolation: "user" });
  } finally {
    await rm(outside, { recursive: true, force: true });
  }
});

test("a real turn carries the secrets of its MCP endpoint in no command line and no environment", async () => {
  await using daemon = await TestDaemon.start({ token: newToken(), harness: null });
  await using endpoint = startMcpEndpoint({ tools: [{ name: "lookup", readOnly: true }] });
  const model = await startScriptedModel();
  try {
    const secret = newToken();
    const needles = daemon.path("needles");
    await writeFile(needles, `${secret}\n${daemon.token}\n`);
    // By a file: in grep's own command line it would find itself.
    const look = `grep -laFf "${needles}" /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null; echo looked`;
    model.push(calls(["Bash", { command: look }]), says("Done."));
    const frames = await daemon.run({
      runId: "r",
      input: {
        userMessage: "Look around.",
        env: { ANTHROPIC_BASE_URL: model.url, ANTHROPIC_API_KEY: "no-credential" },
        mcp: { url: endpoint.url, headers: { authorization: `Bearer ${secret}` } },
      },
    });
    const output = frames.flatMap(({ chunks }) => chunks).find(({ type }) => type === "tool-output-available")?.output;
    expect(output).toBe("looked");
    expect(endpoint.headers.some((headers) => headers.get("authorization") === `Bearer ${secret}`)).toBe(true);
  } finally {
    await model.stop();
  }
});
