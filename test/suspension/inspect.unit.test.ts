/** `dispatchd suspension inspect`: what an operator learns of a token, and a script by the exit code. */
import { describe, expect, test } from "bun:test";
import { runCli } from "../../src/cli/index.ts";
import { unsignedToken } from "../../src/suspension/token.ts";
import { MemoryIo, type MemoryIoOptions } from "../cli/memory-io.ts";
import { INTERRUPTS, issue, KEY, keyOf, NOW, STATE, TTL_MS } from "./asked.ts";

const KEYS = `one:${KEY.key.reveal()}`;

async function inspect(args: readonly string[], options: MemoryIoOptions = {}, now = NOW + 60_000) {
  const io = new MemoryIo(options);
  Object.assign(io, { clock: { ...io.clock, now: () => now } });
  const code = await runCli(["suspension", "inspect", ...args], io);
  return { code, out: io.out, err: io.err };
}

test("shows all that was asked, and that it verifies", async () => {
  const { token, id } = await issue();
  const { code, out } = await inspect([token], { env: { SUSPENSION_KEYS: KEYS } });
  expect(code).toBe(0);
  expect(out).toBe(
    `verdict       verified with key one
form          signed, names key one
id            ${id}
audience      dispatchd
organization  acme
thread        thread-1
run           run-1
mode          plan
issued        2026-01-02T03:04:05.000Z, 61 s ago
expires       2026-01-02T04:04:06.000Z, in 59 min
bytes         ${token.length}

interrupt     i1  (dispatchd:client_tool)
  tool        connect_account
  call        toolu_1
  input
    {
      "__proto__": {
        "admin": false
      },
      "provider": "github",
      "scopes": [
        "repo"
      ]
    }

interrupt     i2  (tool_call)
  tool        delete_branch
  call        toolu_2
  input
    {
      "branch": "old"
    }

interrupt     i3  (input_required)
  tool        AskUserQuestion, the harness's own
  call        toolu_3
  input
    null

subagent      Task
  call        toolu_0
  input
    {
      "prompt": "look around"
    }
`,
  );
});

test("--json has the same in one line", async () => {
  const { token, id } = await issue();
  const { code, out } = await inspect([token, "--json"], { env: { SUSPENSION_KEYS: KEYS } });
  expect(code).toBe(0);
  expect(out.split("\n")).toHaveLength(2);
  expect(JSON.parse(out)).toEqual({
    verified: true,
    form: "signed",
    keyId: "one",
    bytes: token.length,
    issuedAt: "2026-01-02T03:04:05.000Z",
    expiresAt: "2026-01-02T04:04:06.000Z",
    id,
    ...JSON.parse(JSON.stringify(STATE)),
  });
});

test("a token and keys are found in every place that is named", async () => {
  const { token } = await issue();
  const files = { token: `${token}\n`, keys: `${KEYS}\n` };
  for (const [args, options] of [
    [["--file", "token", "--keys-file", "keys"], {}],
    [["-", "--keys-file", "keys"], { stdin: `${token}\n` }],
    [[], { stdin: token, env: { SUSPENSION_KEYS_FILE: "keys" } }],
    // What is asked for by name wins.
    [[token, "--keys-file", "keys"], { env: { SUSPENSION_KEYS: "two:x" } }],
  ] satisfies [string[], MemoryIoOptions][]) {
    expect((await inspect(args, { ...options, files })).code).toBe(0);
  }
});

describe("what is not good is told, and by the exit code", () => {
  test("without keys it is read and not believed", async () => {
    const { token } = await issue();
    const { code, out } = await inspect([token]);
    expect(code).toBe(3);
    expect(out).toStartWith(
      "verdict       NOT VERIFIED: there are no keys to verify it with; anybody may have written it\n",
    );
    const unsigned = await inspect([(await issue(STATE, [])).token]);
    expect(unsigned.code).toBe(3);
    expect(unsigned.out).toStartWith(
      "verdict       NOT VERIFIED: it is not signed; anybody may have written it\nform          unsigned\n",
    );
    expect(JSON.parse((await inspect([token, "--json"])).out)).toMatchObject({ verified: null });
  });

  test.each([
    ["another key", `one:${keyOf("one", 9).key.reveal()}`, NOW, "the suspension's signature does not verify"],
    [
      "a retired key",
      `two:${keyOf("two", 2).key.reveal()}`,
      NOW,
      "the suspension's key is not listed, or not any more\n",
    ],
    ["expired", KEYS, NOW + TTL_MS + 62_000, "the suspension has expired (verified with key one)\n"],
    ["of the future", KEYS, NOW - 62_000, "the suspension was issued in the future (verified with key one)\n"],
    ["expired, without keys", "", NOW + TTL_MS + 62_000, "the suspension has expired\n"],
  ])("%s", async (_name, keys, now, reason) => {
    const { token } = await issue();
    const { code, out } = await inspect([token], { env: { SUSPENSION_KEYS: keys } }, now);
    expect(code).toBe(1);
    expect(out).toStartWith(`verdict       NOT GOOD: ${reason}`);
    // It is shown all the same.
    expect(out).toContain('"provider": "github"');
  });

  test("one argument changed", async () => {
    const { token } = await issue();
    const [header, payload, signature] = token.split(".");
    const changed = Buffer.from(payload ?? "", "base64url")
      .toString()
      .replace("github", "gitlab");
    const forged = `${header}.${Buffer.from(changed).toString("base64url")}.${signature}`;
    const { code, out } = await inspect([forged, "--json"], { env: { SUSPENSION_KEYS: KEYS } });
    expect(code).toBe(1);
    expect(JSON.parse(out)).toMatchObject({ verified: false, interrupts: [{ input: { provider: "gitlab" } }, {}, {}] });
  });

  test("unsigned, where there are keys", async () => {
    const { token } = await issue(STATE, []);
    const { code, out } = await inspect([token], { env: { SUSPENSION_KEYS: KEYS } });
    expect(code).toBe(1);
    expect(out).toContain("NOT GOOD: the suspension is not signed, and this daemon has keys\n");
  });

  test.each([
    ["nothing", ""],
    ["some text", "hello"],
    ["a token that is cut", "eyJhbGciOiJIUzI1NiJ9.e30"],
    ["claims that are none", unsignedToken("[]")],
    ["a token of something else", `${Buffer.from('{"alg":"HS256"}').toString("base64url")}.e30.AAAA`],
  ])("%s", async (_name, token) => {
    const { code, out, err } = await inspect(["-"], { stdin: token });
    expect([code, out]).toEqual([1, ""]);
    expect(err).toMatch(/^dispatchd suspension: (this is no|the suspension) .*\n$/);
  });
});

test.each([
  [["show"], 'there is no action "show"'],
  [[], "an action (inspect) is missing"],
  [["inspect", "a", "b"], "too many arguments: b"],
  [["inspect", "a", "--file", "f"], "both a TOKEN and --file are given"],
  [["inspect", "--file", "none"], "--file cannot be read"],
  [["inspect", "a", "--keys-file", "none"], "--keys-file cannot be read"],
  [["inspect", "a", "--keys-file", "short"], "--keys-file: key 1 is not kid:base64url of 32 bytes"],
])("%j is a question of usage", async (args, problem) => {
  const io = new MemoryIo({ files: { short: "one:a-secret-that-is-short" } });
  expect(await runCli(["suspension", ...args], io)).toBe(2);
  expect(io.err).toBe(`dispatchd suspension: ${problem}\nTry "dispatchd suspension --help".\n`);
  expect(io.terminal).not.toContain("a-secret");
});

test("two places for keys are refused", async () => {
  const { code, err } = await inspect(["a"], { env: { SUSPENSION_KEYS: KEYS, SUSPENSION_KEYS_FILE: "f" } });
  expect(code).toBe(2);
  expect(err).not.toContain(KEY.key.reveal());
});

test("no text of a token steers the terminal or hides, and no key is printed", async () => {
  const hostile = "\u001b]0;owned\u0007\u001b[2J\r\n\u009b31m\u202egnp.exe\u2066\u200b\u0000\u2028\ufeff\u{e0041}";
  const [interrupt] = INTERRUPTS;
  const { token } = await issue({
    ...STATE,
    threadId: hostile,
    runId: hostile,
    mode: hostile,
    interrupts: [{ ...interrupt, id: hostile, toolName: hostile, toolCallId: hostile, input: { [hostile]: hostile } }],
  });
  for (const args of [[token], [token, "--json"]]) {
    const { code, out } = await inspect(args, { env: { SUSPENSION_KEYS: KEYS } });
    expect(code).toBe(0);
    expect(out.replaceAll("\n", "")).not.toMatch(/[\p{C}\u2028\u2029]/u);
    expect(out).toContain("\\u202egnp.exe\\u2066\\u200b");
    expect(out).not.toContain(KEY.key.reveal());
    // One line each, whatever is in it.
    expect(out.match(/^thread {8}.*$/gm) ?? []).toHaveLength(args.length === 1 ? 1 : 0);
  }
  const { out } = await inspect([token, "--json"], { env: { SUSPENSION_KEYS: KEYS } });
  expect(JSON.parse(out)).toMatchObject({ threadId: hostile, interrupts: [{ input: { [hostile]: hostile } }] });
});
