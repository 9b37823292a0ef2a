/** Secrets that the daemon is given: in no log line, no metric, no frame, no message, whatever goes wrong. */
import { expect, test } from "bun:test";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { TestDaemon } from "../support/daemon.ts";
import { OPEN } from "../support/scripted-harness.ts";

const TOKEN = "token-of-the-daemon-0123456789";
const NEXT_TOKEN = "token-set-by-configuration-0123456789";
const SECRETS = {
  config: "configured-value-0123456789",
  input: 'given "value\\of" 0123456789',
  header: "header-value-0123456789",
  callback: "callback-value-0123456789",
  address: "http://somebody:address-password@127.0.0.1:9/mcp",
};

/** Each secret, and as it looks within JSON. */
const FORMS = [TOKEN, NEXT_TOKEN, ...Object.values(SECRETS)].flatMap((secret) => [
  secret,
  JSON.stringify(secret).slice(1, -1),
]);

function leaks(text: string): string[] {
  return FORMS.filter((form) => text.includes(form));
}

async function filesBelow(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { withFileTypes: true, recursive: true });
  return entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
}

function configure(daemon: TestDaemon, body: unknown): Promise<Response> {
  return daemon.fetch("/config", { method: "POST", body: JSON.stringify(body) });
}

const INPUT = {
  env: { MODEL_KEY: SECRETS.input },
  mcp: { url: SECRETS.address, headers: { authorization: `Bearer ${SECRETS.header}` } },
  callback: { url: "http://127.0.0.1:9/cb", headers: { "x-key": SECRETS.callback } },
};

test("a harness that prints its secrets to stderr, as garbage and as its error", async () => {
  await using daemon = await TestDaemon.start({ token: TOKEN, env: { LOG_LEVEL: "debug", EXIT_GRACE_MS: "50" } });
  await configure(daemon, { token: NEXT_TOKEN, env: { CONFIG_KEY: SECRETS.config } });
  const all = Object.values(SECRETS).join(" and ");
  const frames = await daemon.run({
    runId: "r",
    input: INPUT,
    steps: [
      OPEN,
      { stderr: all },
      { line: all },
      { json: { secret: all } },
      // Around the place where a line is cut, and where a long line is taken in pieces.
      { stderr: `${"x".repeat(4096 - 10)}${SECRETS.config}` },
      { stderr: `${"x".repeat(8192 - 10)}${SECRETS.config}${"y".repeat(20_000)}${SECRETS.header}` },
      { line: `${"x".repeat(4096 - 10)}${SECRETS.config}` },
      { line: `${"x".repeat(200 - 10)}${SECRETS.config}${"y".repeat(300_000)}` },
      { json: { chunks: [], outcome: { type: "failed", error: { code: "turn_failed", message: `refused: ${all}` } } } },
    ],
  });
  expect(frames.at(-1)?.error).toEqual({
    code: "turn_failed",
    message: "refused: [secret] and [secret] and [secret] and [secret] and [secret]",
  });
  const seen = JSON.stringify([frames, daemon.log, daemon.noise, await daemon.show("r")]);
  expect(leaks(seen)).toEqual([]);
  // No piece of one either: that is what is left of a secret when the line is cut before it is cleaned.
  expect(Object.values(SECRETS).filter((secret) => seen.includes(secret.slice(0, 10)))).toEqual([]);
  expect(daemon.log.filter(({ event }) => event === "harness stderr").length).toBeGreaterThanOrEqual(3);
  expect(leaks(await (await daemon.fetch("/metrics")).text())).toEqual([]);
  for (const path of await filesBelow(daemon.stateDir))
    expect([path, leaks(await readFile(path, "utf8"))]).toEqual([path, []]);
});

test("requests that are refused are logged without what they carried", async () => {
  await using daemon = await TestDaemon.start({ token: TOKEN, env: { LOG_LEVEL: "debug" } });
  await fetch(`${daemon.url}/runs`, { headers: { authorization: `Bearer ${SECRETS.config}` } });
  await daemon.fetch("/dispatch", { method: "POST", body: `{"runId": "${SECRETS.config}` });
  await daemon.fetch("/dispatch", {
    method: "POST",
    body: JSON.stringify({ runId: "r", input: { ...INPUT, threadId: 7 } }),
  });
  await configure(daemon, { token: `${SECRETS.config} with spaces` });
  await configure(daemon, { env: { "NOT=A NAME": SECRETS.config } });
  await daemon.event("request refused", 0, ({ path }) => path === "/config");
  expect(daemon.log.filter(({ event }) => event === "request refused").length).toBeGreaterThanOrEqual(4);
  expect(leaks(JSON.stringify([daemon.log, daemon.noise]))).toEqual([]);
});

test("a start that fails names the setting and not its value", async () => {
  const bad = `${TOKEN} with spaces`;
  const start = TestDaemon.start({ token: bad, env: { HARNESS_CAPABILITIES: "{", PROXY_PORT: "x" } });
  const error = await start.then(
    () => "",
    (thrown: Error) => thrown.message,
  );
  expect(error).toContain("DAEMON_TOKEN must be printable ASCII");
  expect(leaks(error)).toEqual([]);
});
