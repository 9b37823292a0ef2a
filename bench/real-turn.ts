/** A turn of the real Claude Code through the daemon, against the bare CLI, on the same scripted model. */
import { spawn } from "node:child_process";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findClaudeCode } from "../src/harness/claude-code/find-claude-code.ts";
import { BINARY } from "../test/support/daemon.ts";
import { says, startScriptedModel } from "../test/support/scripted-model/index.ts";
import { dispatchTurn, startBenchDaemon } from "./bench-daemon.ts";
import { atMost, type Bench, inTurns, spreadOf } from "./measure.ts";

const ROUNDS = 15;
const WARMUPS = 2;
const PROMPT = "Say hello.";
const REPLY = "Hello. This is what the scripted model answers to every prompt of this bench.";
/** What a daemon's reader gets as well: the reply by token, as JSON lines. */
const CLI_FLAGS = ["--output-format", "stream-json", "--verbose", "--include-partial-messages"];

export const realTurn: Bench = {
  name: "real-turn",
  about: "a turn of the real Claude Code through the daemon, against the bare CLI on the same scripted model",
  async run() {
    const model = await startScriptedModel();
    model.setHandler(() => says(REPLY));
    const folder = await mkdtemp(join(tmpdir(), "dispatchd-bench-cli-"));
    const env = { ANTHROPIC_BASE_URL: model.url, ANTHROPIC_API_KEY: "a-credential-of-the-bench", IS_SANDBOX: "1" };
    try {
      await using daemon = await startBenchDaemon(null, { IS_SANDBOX: "1" });
      await mkdir(daemon.path("repo"));
      await mkdir(join(folder, "repo"));
      const times = await inTurns(
        ROUNDS,
        {
          floor: () => bareTurn(folder, env),
          product: async () => (await dispatchTurn(daemon, { userMessage: PROMPT, env })).totalMs,
        },
        WARMUPS,
      );
      const product = spreadOf(times.product);
      const floor = spreadOf(times.floor);
      const verdict = atMost("ratio", 1.15, product, floor);
      return { rows: [{ bench: "real-turn", name: "request to last byte", unit: "ms", product, floor, verdict }] };
    } finally {
      await model.stop();
      await rm(folder, { recursive: true, force: true });
    }
  },
};

/** From the spawn until its output has ended and its exit is known. */
async function bareTurn(folder: string, turnEnv: Record<string, string>): Promise<number> {
  const claude = findClaudeCode({
    configured: null,
    execPath: BINARY,
    moduleDir: import.meta.dir,
    path: undefined,
    home: undefined,
  });
  const startedAt = performance.now();
  const child = spawn(claude, ["-p", PROMPT, ...CLI_FLAGS], {
    env: { PATH: "/usr/bin:/bin", HOME: folder, ...turnEnv },
    cwd: join(folder, "repo"),
    stdio: ["ignore", "pipe", "inherit"],
  });
  let output = "";
  child.stdout.on("data", (text) => {
    output += text;
  });
  const code = await new Promise<number | null>((resolve) => void child.on("close", resolve));
  const totalMs = performance.now() - startedAt;
  if (code !== 0 || !output.includes(REPLY)) throw new Error(`the bare CLI failed with ${code}: ${output.slice(-500)}`);
  return totalMs;
}
