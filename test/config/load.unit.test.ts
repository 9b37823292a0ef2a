import { expect, test } from "bun:test";
import { type ConfigError, type Env, loadConfig, mayReachHarness } from "../../src/config.ts";

const files: Readonly<Record<string, string>> = { "/run/token": "from-a-file\n", "/run/empty": " \n" };

function load(env: Env, dev?: string) {
  return loadConfig({
    env,
    version: "1.2.3",
    cwd: "/here",
    readSecretFile: (path) => files[path],
    randomId: () => "random",
    ...(dev === undefined ? {} : { devStateDir: dev }),
  });
}

const valid = { DAEMON_TOKEN: "a-token" };

function problemsOf(env: Env): readonly string[] {
  try {
    load(env);
  } catch (error) {
    return (error as ConfigError).problems;
  }
  return [];
}

const UNSIGNED = "SUSPENSION_KEYS is not set: what a person is asked is not signed";

test("a token is all that is needed", () => {
  const config = load(valid);
  expect(config).toMatchObject({
    dev: false,
    bootId: "random",
    version: "1.2.3",
    appRoot: "/here",
    stateDir: "/here/.dispatchd",
    host: "::",
    port: 9000,
    agentUser: null,
    keepaliveMs: 15_000,
    maxRuns: 16,
    logLevel: "info",
    warnings: [UNSIGNED],
  });
  expect(config.token.reveal()).toBe("a-token");
  expect(`${config.token} ${JSON.stringify(config)} ${Bun.inspect(config)}`).not.toContain("a-token");
  expect(Object.isFrozen(config)).toBe(true);
});

test("every problem is in one message", () => {
  const problems = problemsOf({
    DAEMON_TOKEN: "two words",
    DAEMON_BOOT_ID: "with space",
    PROXY_PORT: "70000",
    KEEPALIVE_MS: "0",
    MAX_RUNS: "many",
    LOG_LEVEL: "loud",
    AGENT_USER: "root",
    STATE_DIR: "/app/org/home",
    APP_ROOT: "/app",
    HARNESS_RUNNER_CMD: '["", 1]',
    HARNESS_CAPABILITIES: '{"resume":"yes"}',
    RUN_MAX_BYTES: "5",
  });
  const named = ["DAEMON_TOKEN", "DAEMON_BOOT_ID", "PROXY_PORT", "KEEPALIVE_MS", "MAX_RUNS", "LOG_LEVEL", "AGENT_USER"];
  for (const name of [...named, "STATE_DIR", "HARNESS_RUNNER_CMD", "HARNESS_CAPABILITIES", "RUN_MAX_BYTES"]) {
    expect(problems.filter((problem) => problem.startsWith(`${name} `))).toHaveLength(1);
  }
  expect(problems).toHaveLength(11);
});

test("a token is required, and comes from one place", () => {
  expect(problemsOf({})).toEqual(["DAEMON_TOKEN (or DAEMON_TOKEN_FILE) is required"]);
  expect(problemsOf({ DAEMON_TOKEN: "" })).toHaveLength(1);
  expect(load({ DAEMON_TOKEN_FILE: "/run/token" }).token.reveal()).toBe("from-a-file");
  expect(problemsOf({ ...valid, DAEMON_TOKEN_FILE: "/run/token" })).toEqual([
    "DAEMON_TOKEN and DAEMON_TOKEN_FILE are both set",
  ]);
  expect(problemsOf({ DAEMON_TOKEN_FILE: "/run/none" })).toEqual(["DAEMON_TOKEN_FILE cannot be read"]);
  expect(problemsOf({ DAEMON_TOKEN_FILE: "/run/empty" })).toEqual(["DAEMON_TOKEN_FILE names an empty file"]);
});

test("a missing token is told beside the other problems", () => {
  const problems = problemsOf({ MAX_RUNS: "0" });
  expect(problems).toHaveLength(2);
  expect(problems).toContain("DAEMON_TOKEN (or DAEMON_TOKEN_FILE) is required");
});

test("of several names the first that is set wins", () => {
  expect(load({ ...valid, PORT: "3", DAEMON_PORT: "2", PROXY_PORT: "1" }).port).toBe(1);
  expect(load({ ...valid, PORT: "3", DAEMON_PORT: "2" }).port).toBe(2);
  expect(load({ ...valid, PORT: "3", PROXY_PORT: "" }).port).toBe(3);
  expect(load({ ...valid, WORKDIR: "/w" }).appRoot).toBe("/w");
  expect(load({ ...valid, WORKDIR: "/w", APP_ROOT: "/a" }).appRoot).toBe("/a");
});

test("the org volume is there when the sidecar's files are named, on the pod's own disk", () => {
  expect(load(valid).org).toMatchObject({
    statusPath: null,
    configPath: null,
    readyBudgetMs: 90_000,
    retryEveryMs: 15_000,
  });
  const named = { ORGFS_SIDECAR_STATUS_PATH: "run/status.json", ORGFS_SIDECAR_CONFIG_PATH: "/run/config.json" };
  expect(load({ ...valid, ...named, ORG_READY_BUDGET_MS: "0" }).org).toMatchObject({
    statusPath: "/here/run/status.json",
    configPath: "/run/config.json",
    readyBudgetMs: 0,
  });
  const below = { ORGFS_SIDECAR_STATUS_PATH: "/app/org/s", ORGFS_SIDECAR_CONFIG_PATH: "/app/org/c" };
  const problems = problemsOf({ ...valid, ...below, APP_ROOT: "/app", CLAUDE_CONFIG_DIR: "/app/org/home/.claude" });
  for (const name of [...Object.keys(below), "CLAUDE_CONFIG_DIR"]) {
    expect(problems).toContain(`${name} must not be below APP_ROOT/org: it has to be on the pod's own disk`);
  }
});

test("what Kubernetes says of a service is ignored, with a warning", () => {
  const config = load({ ...valid, PROXY_PORT: "tcp://10.0.0.1:80", DAEMON_PORT: "udp://10.0.0.1:80", PORT: "77" });
  expect(config.port).toBe(77);
  expect(config.warnings).toEqual([
    UNSIGNED,
    "PROXY_PORT is ignored: it looks like a Kubernetes service link",
    "DAEMON_PORT is ignored: it looks like a Kubernetes service link",
  ]);
});

test("suspensions are signed with SUSPENSION_KEYS, and SUSPENSION_REQUIRED refuses to start without", () => {
  const [one, two] = [1, 2].map((byte) => Buffer.alloc(32, byte).toString("base64url"));
  expect(load(valid).suspension).toEqual({ keys: [], ttlMs: 86_400_000, audience: "dispatchd" });
  const config = load({
    ...valid,
    SUSPENSION_KEYS: `new:${one},old:${two}`,
    SUSPENSION_TTL_MS: "31536000000",
    SUSPENSION_AUDIENCE: "eu-west/prod",
    SUSPENSION_REQUIRED: "1",
  });
  expect(config.suspension).toMatchObject({ ttlMs: 31_536_000_000, audience: "eu-west/prod" });
  expect(config.suspension.keys.map(({ id, key }) => [id, key.reveal()])).toEqual([
    ["new", one ?? ""],
    ["old", two ?? ""],
  ]);
  expect(config.warnings).toEqual([]);
  expect(`${JSON.stringify(config)} ${Bun.inspect(config)}`).not.toContain(one ?? "-");

  expect(problemsOf({ ...valid, SUSPENSION_REQUIRED: "1" })).toEqual([
    "SUSPENSION_KEYS (or SUSPENSION_KEYS_FILE) is required: SUSPENSION_REQUIRED is 1",
  ]);
  expect(problemsOf({ SUSPENSION_REQUIRED: "1" })).toHaveLength(2);
  for (const [keys, problem] of [
    ["k:short", "key 1 is not kid:base64url of 32 bytes"],
    [`a:${one} a:${two}`, "key 2 has an id that another one has"],
    [" ", "has no key in it"],
  ] as const) {
    for (const required of ["0", "1"]) {
      const env = { ...valid, SUSPENSION_KEYS: keys, SUSPENSION_REQUIRED: required };
      expect(problemsOf(env)).toEqual([`SUSPENSION_KEYS: ${problem}`]);
    }
  }
  const wrong = { SUSPENSION_AUDIENCE: "two words", SUSPENSION_TTL_MS: "0", SUSPENSION_REQUIRED: "yes" };
  expect(
    problemsOf({ ...valid, ...wrong })
      .map((problem) => problem.split(" ")[0])
      .sort(),
  ).toEqual(Object.keys(wrong).sort());
  // For somebody who tries it there is nothing to sign against.
  expect(load({}, "/tmp/dev").warnings).toEqual([]);
});

test("--dev needs nothing: loopback, a token of its own, a state folder of its own", () => {
  const config = load({}, "/tmp/dev");
  expect(config).toMatchObject({ dev: true, host: "127.0.0.1", stateDir: "/tmp/dev" });
  expect(config.token.reveal()).toBe("random");
  expect(load({ ...valid, STATE_DIR: "/s", DAEMON_HOST: "::" }, "/tmp/dev")).toMatchObject({
    stateDir: "/s",
    host: "::",
  });
});

test("numbers are whole and within their range, at both ends", () => {
  const cases: [string, string, boolean][] = [
    ["PROXY_PORT", "0", true],
    ["PROXY_PORT", "65535", true],
    ["PROXY_PORT", "65536", false],
    ["PROXY_PORT", "-1", false],
    ["PROXY_PORT", "1e3", false],
    ["PROXY_PORT", " 80", false],
    ["KILL_GRACE_MS", "0", true],
    ["KEEPALIVE_MS", "1", true],
    ["KEEPALIVE_MS", "2147483647", true],
    ["KEEPALIVE_MS", "2147483648", false],
    ["KEEPALIVE_MS", "1.5", false],
    ["MAX_READERS", "0", false],
    ["MAX_BODY_BYTES", "1023", false],
    ["MAX_BODY_BYTES", "1024", true],
  ];
  for (const [name, value, fits] of cases) {
    expect([name, value, problemsOf({ ...valid, [name]: value }).length]).toEqual([name, value, fits ? 0 : 1]);
  }
});

test("AGENT_USER is two numbers, and never root", () => {
  expect(load({ ...valid, AGENT_USER: "1000:1001" }).agentUser).toEqual({ uid: 1000, gid: 1001 });
  for (const text of [
    "1000",
    "0:1000",
    "1000:0",
    "a:b",
    "1000:1000:1000",
    "01:1",
    "-1:1",
    "4294967295:1",
    "99999999999:1",
  ]) {
    expect([text, problemsOf({ ...valid, AGENT_USER: text }).length]).toEqual([text, 1]);
  }
});

test("a command is a JSON array, or words", () => {
  const argvOf = (text: string) => load({ ...valid, HARNESS_RUNNER_CMD: text }).harness.runner?.argv;
  expect(argvOf('["/bin/my agent","--x"," y "]')).toEqual(["/bin/my agent", "--x", " y "]);
  expect(argvOf("  run  --fast ")).toEqual(["run", "--fast"]);
  expect(load(valid).harness.runner).toBeNull();
  for (const text of ["[]", "[1]", '[""]', "[", '["a"', "   "]) {
    expect([text, problemsOf({ ...valid, HARNESS_RUNNER_CMD: text }).length]).toEqual([text, 1]);
  }
});

test("capabilities are checked, and mean nothing without a program", () => {
  const of = (text: string) => load({ ...valid, HARNESS_RUNNER_CMD: "x", HARNESS_CAPABILITIES: text }).harness.runner;
  expect(load({ ...valid, HARNESS_RUNNER_CMD: "x" }).harness.runner?.capabilities).toEqual({
    resume: false,
    clientTools: "none",
    sessionFiles: null,
  });
  const files = { main: "s/*/<id>.jsonl", side: "s/*/<id>" };
  expect(of(JSON.stringify({ resume: true, clientTools: "native", sessionFiles: files }))?.capabilities).toEqual({
    resume: true,
    clientTools: "native",
    sessionFiles: files,
  });
  const bad = [
    "[]",
    "{",
    '{"resume":1}',
    '{"x":1}',
    '{"clientTools":"all"}',
    '{"sessionFiles":{"main":"a"}}',
    '{"sessionFiles":7}',
  ];
  const escaping = [
    { ...files, main: "/<id>" },
    { ...files, main: "../<id>" },
    { ...files, side: "no-id" },
    { ...files, main: "a/*/b/*/<id>" },
  ];
  for (const text of [...bad, ...escaping.map((sessionFiles) => JSON.stringify({ sessionFiles }))]) {
    const problems = problemsOf({ ...valid, HARNESS_RUNNER_CMD: "x", HARNESS_CAPABILITIES: text });
    expect([text, problems.length]).toEqual([text, 1]);
  }
  expect(problemsOf({ ...valid, HARNESS_CAPABILITIES: "{}" })).toEqual([
    "HARNESS_CAPABILITIES is set without HARNESS_RUNNER_CMD",
  ]);
});

test("of the environment a harness sees what is allowed, and never what is the daemon's", () => {
  const env = {
    ...valid,
    PATH: "/bin",
    HOME: "/h",
    LC_ALL: "C",
    LC_TIME: "C",
    LCX: "no",
    SECRET: "no",
    BUN_OPTIONS: "no",
  };
  expect(load(env).runEnv).toEqual({ PATH: "/bin", HOME: "/h", LC_ALL: "C", LC_TIME: "C" });
  expect(load({ ...env, RUN_ENV_ALLOW: "SECRET LC*" }).runEnv).toEqual({
    SECRET: "no",
    LC_ALL: "C",
    LC_TIME: "C",
    LCX: "no",
  });
  expect(Object.keys(load({ ...env, RUN_ENV_ALLOW: "*" }).runEnv)).not.toContain("DAEMON_TOKEN");
  for (const name of ["BUN_X", "DAEMON_X", "SUSPENSION_X", "SESSION_X"]) expect(mayReachHarness(name)).toBe(false);
  for (const name of ["BUNDLE", "DAEMONIZE", "SESSIONX", "PATH"]) expect(mayReachHarness(name)).toBe(true);
});

test("relative folders are the working directory's", () => {
  expect(load({ ...valid, APP_ROOT: "app", CLAUDE_CONFIG_DIR: "conf" })).toMatchObject({
    appRoot: "/here/app",
    stateDir: "/here/app/.dispatchd",
    harness: { claudeConfigDir: "/here/conf" },
  });
  expect(load({ ...valid, HOME: "/home/x" }).harness.claudeConfigDir).toBe("/home/x/.claude");
});
