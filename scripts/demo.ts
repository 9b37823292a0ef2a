/**
 * The main job, end to end: builds the daemon, starts it as a pod would (own app root with a small git repository, own
 * state and home), and dispatches three turns of one thread to the real Claude Code. The third calls a tool that only a
 * person can answer: it ends with the question, and goes on with the answer. Without a credential Claude Code talks to a
 * scripted model on loopback; with ANTHROPIC_API_KEY to the real one. `--keep` leaves the daemon running.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { PrettyFrames } from "../src/cli/pretty-frames.ts";
import { styleOf } from "../src/cli/style.ts";
import { answer, createClient, type Run, type RunResult, type Tool } from "../src/client/index.ts";
import { startScriptedModel } from "../test/support/scripted-model/index.ts";

const ROOT = join(import.meta.dir, "..");
const TOKEN = randomBytes(16).toString("hex");
const TURNS = ["Say hello, and tell where your words come from.", "What did I write to you before?"];
const ASKING_TURN = "Let me connect my mail account with the connect_account tool, then tell me its address.";
const TOOLS: readonly Tool[] = [
  {
    name: "connect_account",
    description: "Asks the person in the conversation to connect an account in their browser. Returns its address.",
    inputSchema: { type: "object", properties: { provider: { type: "string" } }, required: ["provider"] },
    responseSchema: { type: "object", properties: { address: { type: "string" } }, required: ["address"] },
    kind: "client",
  },
];
const ANSWER = { address: "demo@example.invalid" };

const say = (text = ""): void => void process.stdout.write(`${text}\n`);

/** What a pod has: a checkout, a home, and nothing of ours. */
function makePod(): string {
  const root = mkdtempSync(join(tmpdir(), "dispatchd-demo-"));
  const repo = join(root, "repo");
  mkdirSync(join(root, "home"));
  mkdirSync(repo);
  writeFileSync(join(repo, "README.md"), "# A small repository\n\nThere is nothing here yet.\n");
  const author = ["-c", "user.name=demo", "-c", "user.email=demo@example.invalid"];
  for (const args of [
    ["init", "-q"],
    ["add", "."],
    [...author, "commit", "-qm", "begin"],
  ]) {
    execFileSync("git", ["-C", repo, ...args]);
  }
  return root;
}

function spawnDaemon(root: string): ChildProcess {
  const env: Record<string, string> = {
    PATH: process.env.PATH ?? "/usr/bin:/bin",
    HOME: join(root, "home"),
    APP_ROOT: root,
    DAEMON_TOKEN: TOKEN,
    DAEMON_HOST: "127.0.0.1",
    PROXY_PORT: "0",
    // What the third turn asks is signed with it.
    SUSPENSION_KEYS: `demo:${randomBytes(32).toString("base64url")}`,
    // Claude Code refuses to work unattended as root elsewhere than in a sandbox.
    IS_SANDBOX: "1",
  };
  return spawn(join(ROOT, "dist/dispatchd"), ["serve"], {
    env,
    cwd: root,
    stdio: ["ignore", "pipe", "inherit"],
    // Ctrl-C reaches us alone, and the daemon is told once: a second signal would end it in the middle.
    detached: true,
  });
}

function urlOf(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    child.once("exit", (code) => reject(new Error(`the daemon ended with ${code}`)));
    createInterface({ input: child.stdout as NodeJS.ReadableStream }).on("line", (line) => {
      const event = JSON.parse(line) as { event: string; url: string };
      if (event.event === "listening") resolve(event.url);
    });
  });
}

/** One turn, printed as it streams. Throws when it does not end as `ending`. */
async function showTurn<T extends RunResult["type"]>(run: Run, ending: T): Promise<RunResult & { type: T }> {
  const startedAt = performance.now();
  const since = (): number => performance.now() - startedAt;
  const output = { isTTY: process.stdout.isTTY === true, columns: process.stdout.columns };
  const style = styleOf({ ...output, closed: new AbortController().signal, write: async () => {} }, process.env);
  const pretty = new PrettyFrames({ style, columns: output.columns ?? 100, elapsedMs: since });
  const put = (pieces: { text: string }[]): void => {
    for (const { text } of pieces) process.stdout.write(text);
  };
  const frames = run.frames();
  const started = run.started().then(() => since());
  started.catch(() => {}); // The frames throw the same.
  let firstTextMs: number | undefined;
  for await (const frame of frames) {
    if (frame.chunks.some(({ type }) => type === "text-delta")) firstTextMs ??= since();
    put(pretty.frame(frame));
  }
  const result = await run.result();
  put(pretty.finished(result));
  const ms = (value: number | undefined): string => (value === undefined ? "none" : `${Math.round(value)} ms`);
  const session = result.preparation?.session ?? "unknown";
  say(`run ${run.runId} · ${result.lastSeq} frames · session ${session}`);
  say(`first byte ${ms(await started)} · first text ${ms(firstTextMs)} · all ${ms(since())}\n`);
  if (!endsAs(result, ending)) throw new Error(`the turn ended as ${result.type}, not as ${ending}`);
  return result;
}

function endsAs<T extends RunResult["type"]>(result: RunResult, type: T): result is RunResult & { type: T } {
  return result.type === type;
}

const EXIT_INTERRUPTED = 130;

/** Resolves with the exit code. */
async function main(): Promise<number> {
  // Also in the middle of a turn: nothing is to stay behind.
  const interrupted = new Promise<number>((resolve) => {
    for (const name of ["SIGINT", "SIGTERM"] as const) process.on(name, () => resolve(EXIT_INTERRUPTED));
  });
  execFileSync("sh", [join(ROOT, "scripts/build.sh")], { stdio: ["ignore", "ignore", "inherit"] });
  const root = makePod();
  const key = process.env.ANTHROPIC_API_KEY;
  const model = key ? undefined : await startScriptedModel();
  const base = key ? process.env.ANTHROPIC_BASE_URL : model?.url;
  const env = { ANTHROPIC_API_KEY: key ?? "no-credential-needed", ...(base ? { ANTHROPIC_BASE_URL: base } : {}) };
  const child = spawnDaemon(root);
  const show = async (): Promise<number> => {
    const url = await urlOf(child);
    say(`dispatchd listens on ${url}; ${key ? "the model is the real one" : "the model is scripted"}\n`);
    const client = createClient({ url, token: TOKEN });
    const threadId = `demo-${randomUUID()}`;
    for (const prompt of TURNS) {
      say(`> ${prompt}`);
      await showTurn(client.dispatch({ input: { threadId, userMessage: prompt, env } }), "finished");
    }
    say(`> ${ASKING_TURN}`);
    const asking = client.dispatch({ input: { threadId, userMessage: ASKING_TURN, env, tools: TOOLS } });
    const { interrupts } = await showTurn(asking, "interrupt");
    say(`> (the person's answer, as the result of the call) ${JSON.stringify(ANSWER)}`);
    await showTurn(asking.resume(interrupts.map((interrupt) => answer(interrupt, ANSWER))), "finished");

    const body = JSON.stringify({
      runId: randomUUID(),
      input: { threadId, userMessage: "And again?", env: key ? {} : env },
    });
    say("To talk to a daemon yourself (this one stays up with --keep):\n");
    say(`  curl ${url}/health`);
    say(`  curl -N ${url}/dispatch -H 'Authorization: Bearer ${TOKEN}' -d '${body}'`);
    say(`  curl ${url}/runs -H 'Authorization: Bearer ${TOKEN}'`);
    if (key) say("\n(the credential goes into input.env as ANTHROPIC_API_KEY)");
    if (process.argv.includes("--keep")) {
      say("\nCtrl-C ends it.");
      await once(child, "exit");
    }
    return 0;
  };
  try {
    const shown = show();
    // What comes of it after an interrupt is nobody's business.
    shown.catch(() => {});
    return await Promise.race([shown, interrupted]);
  } finally {
    if (child.exitCode === null && child.signalCode === null) {
      const exited = once(child, "exit");
      child.kill("SIGTERM");
      await exited;
    }
    await model?.stop();
    rmSync(root, { recursive: true, force: true });
  }
}

main().then(process.exit, (error: unknown) => {
  console.error(`demo: ${error instanceof Error ? error.message : String(error)}`);
  process.exit(1);
});
