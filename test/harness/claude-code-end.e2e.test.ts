/** How turns end that do not end by themselves: failures of the model, kills from outside, readers that are gone. */
import { expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { HarnessBench, type RunningTurn } from "../support/claude-code-harness/run-turn.ts";
import { calls, fails, says } from "../support/scripted-model/index.ts";

/** Ids of the processes whose environment names the bench: Claude Code, and the shells that it started. */
function processesOf(bench: HarnessBench): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .filter((name) => {
      try {
        return readFileSync(`/proc/${name}/environ`, "utf8").includes(`CLAUDE_CONFIG_DIR=${bench.configDir}`);
      } catch {
        return false;
      }
    })
    .map(Number);
}

async function until(condition: () => boolean, ms = 5000): Promise<void> {
  const end = performance.now() + ms;
  while (!condition()) {
    if (performance.now() > end) throw new Error("the condition was not met in time");
    await Bun.sleep(20);
  }
}

/** A turn that is within a shell command, some text said. */
async function turnInShell(bench: HarnessBench): Promise<RunningTurn> {
  const started = join(bench.root, "started");
  bench.model.push(calls(["Bash", { command: `touch ${started}; sleep 7; touch ${bench.root}/after` }]), says("Done."));
  const turn = bench.start();
  await turn.seen((line) => line.chunks?.some((chunk) => chunk.type === "tool-input-available") === true);
  await until(() => existsSync(started));
  return turn;
}

test.each([
  [401, "the model's endpoint refused the credential (status 401)"],
  [400, "the model could not be used (status 400): API Error: 400 about [secret]"],
  [529, "the model could not be used (status 529)"],
])(
  "a model that answers %i fails the turn with a message without secrets",
  async (status, message) => {
    await using bench = await HarnessBench.open();
    bench.model.setHandler(() => fails(status, { message: "about scripted-credential", retryAfterSeconds: 0 }));
    const turn = await bench.run();
    expect(turn.outcome).toMatchObject({
      type: "failed",
      error: { code: "turn_failed", message: expect.stringContaining(message) },
    });
    expect(turn.texts).toEqual([]);
    expect(turn.exitCode).toBe(1);
  },
  20_000,
);

test("a model that is overloaded for a moment is asked again", async () => {
  await using bench = await HarnessBench.open();
  bench.model.push(fails(529, { retryAfterSeconds: 0 }), fails(429, { retryAfterSeconds: 0 }), says("At last."));
  const turn = await bench.run();
  expect(turn.outcome?.type).toBe("finished");
  expect(turn.texts).toEqual(["At last."]);
}, 20_000);

test("streams that are cut again and again leave chunks that can be read", async () => {
  await using bench = await HarnessBench.open();
  bench.model.setHandler((request) =>
    request.body?.stream === true ? { ...says("Never whole, whatever is tried."), cutAfterDeltas: 2 } : fails(500),
  );
  const turn = await bench.run();
  expect(turn.outcome).toMatchObject({ type: "failed", error: { code: "turn_failed" } });
  expect(turn.texts.length).toBeGreaterThan(1);
  expect(new Set(turn.texts)).toEqual(new Set(["Never whole, wha"]));
}, 30_000);

test("told to stop, it ends Claude Code and its shells at once, without an outcome", async () => {
  await using bench = await HarnessBench.open();
  const turn = await turnInShell(bench);
  const before = performance.now();
  turn.child.kill("SIGTERM");
  const end = await turn.finished;
  expect(performance.now() - before).toBeLessThan(2500);
  expect(end.exitCode).toBe(143);
  expect(end.outcome).toBeUndefined();
  await until(() => processesOf(bench).length === 0);
  expect(existsSync(join(bench.root, "after"))).toBe(false);
});

test("killed, it takes Claude Code and its shells along", async () => {
  await using bench = await HarnessBench.open();
  const turn = await turnInShell(bench);
  expect(processesOf(bench).length).toBeGreaterThan(0);
  turn.child.kill("SIGKILL");
  await turn.finished;
  await until(() => processesOf(bench).length === 0);
  expect(existsSync(join(bench.root, "after"))).toBe(false);
});

test("a Claude Code that is killed fails the turn", async () => {
  await using bench = await HarnessBench.open();
  bench.model.push({ ...says("Some words before."), hangAfterDeltas: 1 });
  const turn = bench.start();
  await turn.seen((line) => line.chunks?.some((chunk) => chunk.type === "text-delta") === true);
  for (const pid of processesOf(bench)) process.kill(pid, "SIGKILL");
  const end = await turn.finished;
  expect(end.outcome).toMatchObject({
    type: "failed",
    error: { code: "turn_failed", message: expect.stringContaining("Claude Code ended before the turn did") },
  });
  expect(end.texts).toEqual(["Some wor"]);
});

test("nothing is left over after a turn that ended well, a background shell included", async () => {
  await using bench = await HarnessBench.open();
  bench.model.push(calls(["Bash", { command: "sleep 70003", run_in_background: true }]), says("It runs."));
  const turn = await bench.run();
  expect(turn.outcome?.type).toBe("finished");
  expect(processesOf(bench)).toEqual([]);
});

test("a reader that is gone ends the turn", async () => {
  await using bench = await HarnessBench.open();
  bench.model.push({ ...says("A long answer that nobody reads any more, word by word."), betweenDeltasMs: 150 });
  const turn = bench.start();
  await turn.seen((line) => line.chunks?.some((chunk) => chunk.type === "text-delta") === true);
  turn.child.stdout?.destroy();
  await new Promise((resolve) => void turn.child.once("exit", resolve));
  await until(() => processesOf(bench).length === 0);
});

test("the environment of the agent is the one given, with nothing of the runtime's", async () => {
  await using bench = await HarnessBench.open();
  bench.model.push(calls(["Bash", { command: "env" }, "env-call"]), says("Seen."));
  const turn = await bench.run({ env: { RUN_OWN: "yes", BUN_ANYTHING: "no" } });
  const output = String(turn.chunks.find((chunk) => chunk.type === "tool-output-available")?.output);
  expect(output).toContain("RUN_OWN=yes");
  expect(output).toContain(`CLAUDE_CONFIG_DIR=${bench.configDir}`);
  expect(output).toContain("DISABLE_TELEMETRY=1");
  expect(output).not.toContain("BUN_ANYTHING");
});
