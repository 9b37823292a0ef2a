/** What of a harness's words gets into the log and into messages: some of it, and no secret. */
import { expect, test } from "bun:test";
import { TestDaemon } from "../support/daemon.ts";

const ENV_SECRET = "s3cret-of-the-environment";
const QUOTED_SECRET = 'with "quotes" and \\ too';
const HEADER_SECRET = "token-of-the-mcp-server";
const SECRETS = {
  env: { KEY: ENV_SECRET, QUOTED: QUOTED_SECRET },
  mcp: { url: "http://127.0.0.1:1/", headers: { Authorization: `Bearer ${HEADER_SECRET}` } },
};

test("a flood on stderr is cut, by line and by second, and counted", async () => {
  await using daemon = await TestDaemon.start();
  const startedAt = performance.now();
  await daemon.run({
    runId: "r",
    steps: [{ sh: `yes "$(head -c 5000 /dev/zero | tr '\\0' y)" | head -n 4000 >&2`, wait: true }],
  });
  await daemon.event("dispatch done");
  const seconds = Math.ceil((performance.now() - startedAt) / 1000);
  const logged = daemon.log.filter(({ event }) => event === "harness stderr");
  expect(logged.length).toBeGreaterThanOrEqual(50);
  expect(logged.length).toBeLessThanOrEqual(50 * (seconds + 1));
  for (const { line, cutFrom } of logged)
    expect({ size: String(line).length, cutFrom }).toEqual({ size: 4096, cutFrom: 5000 });
  const dropped = daemon.log.filter(({ event }) => event === "harness lines dropped");
  expect(dropped.reduce((sum, { lines }) => sum + Number(lines), logged.length)).toBe(4000);
});

test("a line on stderr that never ends is one line, and holds no memory", async () => {
  await using daemon = await TestDaemon.start();
  await daemon.run({ runId: "r", steps: [{ sh: "head -c 50000000 /dev/zero | tr '\\0' y >&2", wait: true }] });
  await daemon.event("dispatch done");
  const logged = daemon.log.filter(({ event }) => event === "harness stderr");
  expect(logged.map(({ line, cutFrom }) => [String(line).length, cutFrom])).toEqual([[4096, 50_000_000]]);
});

test("secrets of a run are replaced wherever a harness says them", async () => {
  await using daemon = await TestDaemon.start({ env: { LOG_LEVEL: "debug", EOF_GRACE_MS: "100" } });
  const said = `a ${ENV_SECRET} b ${QUOTED_SECRET} c ${HEADER_SECRET} d`;
  // A secret over the end of what is shown of a line would leave half of it.
  const overTheCut = `${"x".repeat(4090)}${ENV_SECRET} and more`;
  const frames = await daemon.run({
    runId: "r",
    input: SECRETS,
    steps: [
      { stderr: said },
      { stderr: overTheCut },
      { line: said },
      { line: `${said} ${overTheCut}` },
      { line: `${"z".repeat(4090)}${ENV_SECRET}${" ".repeat(300_000)}` },
      { sh: `printf '%s' "last words: $KEY" >&2`, wait: true },
      { json: { outcome: { type: "failed", error: { code: "turn_failed", message: `no: ${said}` } } } },
    ],
  });
  const message = "no: a [secret] b [secret] c [secret] d";
  expect(frames.at(-1)?.error).toEqual({ code: "turn_failed", message });
  await daemon.event("dispatch done");
  const lines = daemon.log.map(({ line }) => line).filter((line) => line !== undefined);
  expect(lines).toContain("a [secret] b [secret] c [secret] d");
  expect(lines).toContain("last words: [secret]");
  expect(lines).toContain(`${"x".repeat(4090)}[secre`);
  expect(lines).toContain(`${"z".repeat(4090)}[secre`);
  const everything = JSON.stringify([daemon.log, daemon.noise, frames, await daemon.show("r")]);
  for (const secret of [ENV_SECRET, QUOTED_SECRET, HEADER_SECRET, ENV_SECRET.slice(0, 6)]) {
    expect(everything).not.toContain(secret);
    expect(everything).not.toContain(JSON.stringify(secret).slice(1, -1));
  }
});

test("what is said last on a stderr that somebody keeps open is as safe", async () => {
  await using daemon = await TestDaemon.start({ env: { EXIT_GRACE_MS: "100", KILL_GRACE_MS: "100" } });
  await daemon.run({
    runId: "r",
    input: SECRETS,
    steps: [
      { sh: `trap '' TERM; printf '%s' "held: $KEY" >&2; touch ${daemon.path("said")}; while :; do sleep 1; done` },
      { waitFor: daemon.path("said") },
      { json: { outcome: { type: "finished" } } },
    ],
  });
  await daemon.event("harness stderr", 0, ({ line }) => line === "held: [secret]");
});

test("a message is cut at 2 KiB, between characters", async () => {
  await using daemon = await TestDaemon.start();
  const messageOf = async (runId: string, message: string): Promise<string> => {
    const outcome = { type: "failed", error: { code: "turn_failed", message } };
    const frames = await daemon.run({ runId, steps: [{ json: { outcome } }] });
    return frames.at(-1)?.error?.message ?? "";
  };
  expect(await messageOf("fits", "x".repeat(2048))).toBe("x".repeat(2048));
  expect(await messageOf("ascii", "x".repeat(2049))).toBe(`${"x".repeat(2045)}…`);
  for (let shift = 0; shift < 4; shift++) {
    const cut = await messageOf(`shift ${shift}`, `${"x".repeat(shift)}${"𝄞".repeat(600)}`);
    expect(cut).toMatch(/^x*(𝄞)+…$/u);
    expect(Buffer.byteLength(cut)).toBeGreaterThan(2048 - 4);
    expect(Buffer.byteLength(cut)).toBeLessThanOrEqual(2048);
  }
});

test("of the usage that a harness tells, known numbers are passed on", async () => {
  await using daemon = await TestDaemon.start();
  const usageOf = async (runId: string, usage: unknown): Promise<unknown> => {
    const frames = await daemon.run({ runId, steps: [{ json: { outcome: { type: "finished", usage } } }] });
    return frames.at(-2)?.outcome;
  };
  const whole = { inputTokens: 1, outputTokens: 2, cacheReadTokens: 3, cacheWriteTokens: 4, costUsd: 0.5, turns: 6 };
  expect(await usageOf("whole", { ...whole, mood: 7, more: { turns: 8 } })).toEqual({ type: "finished", usage: whole });
  expect(await usageOf("odd", { inputTokens: "1", turns: null, costUsd: 0 })).toEqual({
    type: "finished",
    usage: { costUsd: 0 },
  });
  for (const none of [null, 5, "x", [], {}, { inputTokens: [1] }]) {
    expect(await usageOf(`none ${JSON.stringify(none)}`, none)).toEqual({ type: "finished" });
  }
});

test("a harness's codes are its own four; any other is a failed turn", async () => {
  await using daemon = await TestDaemon.start();
  const endOf = async (runId: string, outcome: unknown): Promise<unknown> => {
    const frames = await daemon.run({ runId, steps: [{ json: { outcome } }] });
    return frames.at(-1)?.error;
  };
  for (const code of ["turn_failed", "mcp_unavailable", "harness_stalled", "stale"]) {
    expect(await endOf(code, { type: "failed", error: { code, message: "m" } })).toEqual({ code, message: "m" });
  }
  for (const code of ["cancelled", "superseded", "sandbox_gone", "internal", "nonsense", 5, undefined]) {
    const told = await endOf(`not ${code}`, { type: "failed", error: { code, message: "m", reason: "shutdown" } });
    expect(told).toEqual({ code: "turn_failed", message: "m" });
  }
  const odd = [
    { type: "failed" },
    { type: "failed", error: null },
    { type: "failed", error: { message: 5 } },
    { type: "x" },
    {},
  ];
  for (const [index, outcome] of odd.entries()) {
    expect(await endOf(`odd ${index}`, outcome)).toMatchObject({ code: "turn_failed" });
  }
});
