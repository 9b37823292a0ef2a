/** `run` and `attach` on a daemon that keeps the protocol: what is printed, and what the shell learns. */
import { afterEach, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { runCli } from "../../src/cli/index.ts";
import type { Chunk, Outcome } from "../../src/frames/frame.ts";
import {
  type FakeAttempt,
  type FakeDaemon,
  type FakeDaemonOptions,
  failed,
  startFakeDaemon,
  until,
} from "../support/fake-daemon.ts";
import { MemoryIo, type MemoryIoOptions } from "./memory-io.ts";

const open: FakeDaemon[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((daemon) => daemon.stop()));
});

async function start(turn: FakeDaemonOptions["turn"], options: MemoryIoOptions = {}) {
  const daemon = await startFakeDaemon(turn ? { turn } : {});
  open.push(daemon);
  const env = { DISPATCHD_URL: daemon.url, DISPATCHD_TOKEN: daemon.token, ...options.env };
  return { daemon, io: new MemoryIo({ ...options, env }) };
}

const golden = (name: string) => Bun.file(join(import.meta.dir, "golden", name)).text();
const chunks = (...list: Chunk[]) => ({ chunks: list });

/** A turn with a bit of everything, some of it hostile. */
function turn(attempt: FakeAttempt): void {
  const call = (toolCallId: string, toolName: string, input: unknown) =>
    attempt.frame(chunks({ type: "tool-input-available", toolCallId, toolName, input, dynamic: true }));
  const result = (toolCallId: string, output: unknown) =>
    attempt.frame(chunks({ type: "tool-output-available", toolCallId, output, dynamic: true }));
  attempt.frame({ preparation: { home: "timeout", skills: "failed", waitedMs: 1500, session: "restored" } });
  attempt.frame(chunks({ type: "start", messageId: "m" }, { type: "start-step" }));
  attempt.frame(chunks({ type: "reasoning-start", id: "r" }, { type: "reasoning-delta", id: "r", delta: "I should " }));
  attempt.frame(
    chunks({ type: "reasoning-delta", id: "r", delta: "look.\u001b[2J" }, { type: "reasoning-end", id: "r" }),
  );
  attempt.frame(chunks({ type: "text-start", id: "t" }, { type: "text-delta", id: "t", delta: "Let me \u001b[3" }));
  attempt.frame(
    chunks({ type: "text-delta", id: "t", delta: "1mlook.\u001b]0;owned\u0007" }, { type: "text-end", id: "t" }),
  );
  call("1", "bash", { command: "ls -la\nrm -rf /tmp/x", description: "list" });
  result("1", "total 3\na\nb\n");
  call("2", "read", { file_path: "/repo/\u001b]0;x\u0007README.md" });
  call("3", "grep", { pattern: "x".repeat(200) });
  attempt.frame(chunks({ type: "tool-output-available", toolCallId: "2", output: "half", preliminary: true }));
  result("2", [{ type: "text", text: "# dispatchd" }]);
  attempt.frame(chunks({ type: "tool-output-error", toolCallId: "3", errorText: "no such file\n  at x" }));
  call("4", "write", {});
  attempt.frame(chunks({ type: "tool-output-denied", toolCallId: "4" }));
  call("5", "odd\u001b[31m\nname", { a: 1 });
  result("5", { stdout: "", stderr: "" });
  attempt.frame(chunks({ type: "finish-step" }, { type: "start-step" }));
  attempt.frame(
    chunks({ type: "text-start", id: "u" }, { type: "text-delta", id: "u", delta: "All is well.\nReally" }),
  );
  attempt.frame(chunks({ type: "text-delta", id: "u", delta: ".\u202e" }, { type: "text-end", id: "u" }));
  attempt.outcome = {
    type: "finished",
    usage: { inputTokens: 1234, outputTokens: 56, cacheReadTokens: 1_000_000, costUsd: 0.0123 },
  };
  attempt.frame({ ...chunks({ type: "finish-step" }, { type: "finish" }), outcome: attempt.outcome });
  attempt.end({ saved: false, reason: "no org volume" });
}

describe("run, pretty", () => {
  test("on a pipe: the agent's words on stdout, the rest on stderr, no colours", async () => {
    const { io } = await start(turn);
    expect(await runCli(["run", "--run-id", "r", "--thread", "t", "hello"], io)).toBe(0);
    expect(io.out).toBe("Let me look.\nAll is well.\nReally.\n");
    expect(io.terminal).toBe(await golden("turn.plain.txt"));
  });

  test("on a terminal: with colours", async () => {
    const { io } = await start(turn, { isTTY: true });
    expect(await runCli(["run", "--run-id", "r", "--thread", "t", "hello"], io)).toBe(0);
    expect(io.terminal).toBe(await golden("turn.colour.txt"));
  });

  test.each([{ NO_COLOR: "1" }, { TERM: "dumb" }])("on a terminal with %p: without", async (env) => {
    const { io } = await start(turn, { isTTY: true, env });
    await runCli(["run", "--run-id", "r", "--thread", "t", "hello"], io);
    expect(io.terminal).not.toContain("\u001b");
  });

  test("text comes as it comes, before the turn is over", async () => {
    const { daemon, io } = await start((attempt) => attempt.text("half a sen"));
    const code = runCli(["run", "hello", "--run-id", "r"], io);
    await until(() => io.out === "half a sen");
    daemon.attempt("r").text("tence").conclude({ type: "finished" }).end();
    expect(await code).toBe(0);
    expect(io.out).toBe("half a sentence\n");
  });
});

describe("run, as JSON", () => {
  test("the frames, one a line", async () => {
    const { daemon, io } = await start(turn);
    expect(await runCli(["run", "--json", "--run-id", "r", "--thread", "t", "hello"], io)).toBe(0);
    expect(io.out).toBe(daemon.attempt("r").lines.join(""));
    expect(io.out).toBe(await golden("turn.ndjson"));
    expect(io.err).toBe("");
  });

  test("numbers are as they were printed, whatever can be parsed of them", async () => {
    const numbers = '{"big":12345678901234567890,"endless":1e400,"exact":1.10}';
    const line = (seq: number): string => `{"seq":${seq},"chunks":[{"type":"data-x","data":${numbers}}]}\n`;
    const { daemon, io } = await start((attempt) => {
      attempt.lines.push(line(attempt.lines.length + 1));
      attempt.conclude({ type: "finished" }).end();
    });
    expect(await runCli(["run", "--json", "--run-id", "r", "hello"], io)).toBe(0);
    expect(io.out).toContain(numbers);
    expect(io.out).toBe(daemon.attempt("r").lines.join(""));
    const attached = new MemoryIo({ env: io.env });
    expect(await runCli(["attach", "--json", "r"], attached)).toBe(0);
    expect(attached.out).toBe(io.out);
  });

  test("a run without a last frame says so on stderr", async () => {
    const { daemon, io } = await start(undefined);
    daemon.token = "rotated";
    expect(await runCli(["run", "--json", "--run-id", "r", "hello"], io)).toBe(5);
    expect(io.out).toBe("");
    expect(JSON.parse(io.err)).toMatchObject({ type: "refused", status: 401, code: "unauthorized", runId: "r" });
  });
});

describe("exit codes", () => {
  const gone: Outcome = { type: "failed", error: { code: "sandbox_gone", message: "why", reason: "shutdown" } };
  const interrupts = [{ id: "i1", reason: "tool_call", metadata: { toolName: "deploy", input: { command: "make" } } }];
  test.each([
    ["finished", { type: "finished" }, 0, "finished · "],
    ["turn_failed", failed("turn_failed", "no credit"), 1, "failed (turn_failed): no credit · "],
    ["harness_crashed", failed("harness_crashed", "exit 1"), 1, "crashed (harness_crashed): exit 1 · "],
    ["cancelled", failed("cancelled", "asked"), 3, "cancelled: asked · "],
    ["superseded", failed("superseded", "newer"), 3, "superseded: newer · "],
    ["sandbox_gone", gone, 4, "gone (shutdown): why · "],
    ["interrupt", { type: "interrupt", interrupts }, 6, "? deploy: make [i1]\nwaits for 1 answer · "],
  ] as [string, Outcome, number, string][])("%s", async (_name, outcome, code, line) => {
    const { io } = await start((attempt) => attempt.conclude(outcome).end());
    expect(await runCli(["run", "hello"], io)).toBe(code);
    expect(io.err).toContain(line);
  });

  test("refused, unreachable, and a usage error", async () => {
    const { daemon, io } = await start(undefined);
    daemon.draining = true;
    expect(await runCli(["run", "hello"], io)).toBe(5);
    expect(io.err).toContain("refused with 503 draining");
    await daemon.stop();
    expect(await runCli(["run", "hello"], io)).toBe(4);
    expect(io.err).toContain("unreachable: ");
    expect(io.err).not.toContain(daemon.token);
    await daemon.listen();
  });
});

describe("what is sent", () => {
  async function sent(argv: string[], options: MemoryIoOptions = {}) {
    const { daemon, io } = await start((attempt) => attempt.whole(), options);
    const code = await runCli(["run", ...argv], io);
    return { code, body: daemon.requests[0]?.body as { runId: string; input: Record<string, unknown> }, io };
  }
  const message = (text: string) => ({ parts: [{ type: "text", text }] });

  test("of a bare prompt: a new thread and a new run", async () => {
    const { body } = await sent(["hello", "world"]);
    expect(body.input).toEqual({ threadId: body.input.threadId, userMessage: message("hello world") });
    expect(body.input.threadId).toMatch(/^cli-[0-9a-f-]{36}$/);
    expect(body.runId).toMatch(/^[0-9a-f-]{36}$/);
  });

  test("of everything", async () => {
    const argv = ["-", "--thread", "t", "--run-id", "r", "--model", "m", "--mode", "plan", "--cwd", "null"];
    const { body } = await sent([...argv, "--env", "A=b=c", "--env", "SECRET"], {
      stdin: "from stdin\n",
      env: { SECRET: "s3cr3t" },
    });
    expect(body).toEqual({
      runId: "r",
      after: 0,
      input: {
        threadId: "t",
        userMessage: message("from stdin"),
        models: "m",
        mode: "plan",
        workspace: { cwd: null },
        env: { A: "b=c", SECRET: "s3cr3t" },
      },
    } as never);
  });

  test("of a file, and of options above it", async () => {
    const file = {
      threadId: "f",
      userMessage: "x",
      agent: { id: "a" },
      env: { A: "1", B: "2" },
      workspace: { repo: "r" },
    };
    const files = { "in.json": JSON.stringify(file) };
    const { body } = await sent(["--input", "in.json", "--env", "A=3", "--cwd", "/repo"], { files });
    expect(body.input).toEqual({ ...file, env: { A: "3", B: "2" }, workspace: { repo: "r", cwd: "/repo" } });
    const stdin = JSON.stringify(file);
    expect((await sent(["--input", "-", "words"], { stdin })).body.input.userMessage).toEqual(message("words"));
  });

  test.each([
    [[], "PROMPT is missing"],
    [["--nope", "x"], "Unknown option '--nope'"],
    [["-"], "there is no prompt on stdin"],
    [["x", "--cwd", "/etc"], '--cwd must be /repo or null, not "/etc"'],
    [["x", "--env", "NOT_SET"], "--env NOT_SET: it is not set here, and no value was given"],
    [["x", "--env", "1A=b"], '--env: "1A" is no name of a variable'],
    [["x", "--input", "none.json"], "none.json cannot be read: no such file: none.json"],
    [["x", "--input", "-"], "stdin is no JSON object"],
    [["-", "--input", "-"], "stdin"],
    [["x", "--run-id", ".."], 'no URL can name the run id ".."'],
    [["x", "--url", "ftp://h"], 'the daemon\'s url must begin with http:// or https://, not "ftp://h"'],
    [["x", "--token", "a b"], "the token of --token must be printable ASCII without spaces"],
    [["x", "--token", "a", "--token-file", "b"], "--token and --token-file exclude each other"],
    [["x", "--token-file", "none"], "none cannot be read: no such file: none"],
    [["x", "--model"], "Option '--model <value>' argument missing"],
  ])("usage: %p", async (argv, problem) => {
    const { code, body, io } = await sent(argv);
    expect(io.err).toStartWith(`dispatchd run: ${problem}`);
    expect(io.err).toEndWith('\nTry "dispatchd run --help".\n');
    expect(code).toBe(2);
    expect(body).toBeUndefined();
  });
});

describe("the daemon and its token", () => {
  test.each([
    ["DAEMON_TOKEN and the pod's port", (port: string) => ({ env: { DAEMON_TOKEN: "tok", PROXY_PORT: port } })],
    [
      "a link of Kubernetes is no port",
      (port: string) => ({ env: { DAEMON_TOKEN: "tok", PROXY_PORT: "tcp://x", PORT: port } }),
    ],
    [
      "DISPATCHD_TOKEN before DAEMON_TOKEN",
      (port: string) => ({ env: { DISPATCHD_TOKEN: "tok", DAEMON_TOKEN: "no", PORT: port, DAEMON_HOST: "::" } }),
    ],
    [
      "DISPATCHD_TOKEN_FILE",
      (port: string) => ({ env: { DISPATCHD_TOKEN_FILE: "f", DAEMON_PORT: port }, files: { f: "tok\n" } }),
    ],
  ] as [string, (port: string) => MemoryIoOptions][])("%s", async (_name, options) => {
    const daemon = await startFakeDaemon({ token: "tok", turn: (attempt) => attempt.whole() });
    open.push(daemon);
    const io = new MemoryIo(options(new URL(daemon.url).port));
    expect(await runCli(["run", "hello"], io)).toBe(0);
    expect(io.bypassed).toEqual(["127.0.0.1"]);
  });

  test("options before the environment", async () => {
    const daemon = await startFakeDaemon({ token: "tok", turn: (attempt) => attempt.whole() });
    open.push(daemon);
    const env = { DISPATCHD_URL: "http://127.0.0.1:1", DISPATCHD_TOKEN: "no" };
    const io = new MemoryIo({ env, files: { f: " tok " } });
    expect(await runCli(["run", "hello", "--url", `${daemon.url}/`, "--token-file", "f"], io)).toBe(0);
    expect(await runCli(["run", "hello", "--url", daemon.url, "--token", "tok"], io)).toBe(0);
  });

  test("no token, and a port that is none", async () => {
    const io = new MemoryIo({ env: { PROXY_PORT: "0", DAEMON_TOKEN: "t" } });
    expect(await runCli(["runs"], io)).toBe(2);
    expect(io.err).toContain("PROXY_PORT=0 names no port to connect to");
    const bare = new MemoryIo();
    expect(await runCli(["runs"], bare)).toBe(2);
    expect(bare.err).toContain("no token: set DISPATCHD_TOKEN");
  });
});

describe("Ctrl-C", () => {
  test("cancels the run and says so; its end is still shown", async () => {
    const { daemon, io } = await start((attempt) => attempt.text("working"));
    const code = runCli(["run", "hello", "--run-id", "r"], io);
    await until(() => io.out === "working");
    io.ctrlC();
    expect(await code).toBe(3);
    expect([...daemon.tombstones]).toEqual(["r"]);
    expect(io.err).toContain("cancelling (Ctrl-C again leaves at once)\ncancelled: somebody asked for it · ");
    expect(io.interruptible).toBe(false);
  });

  test("twice: leaves at once, also when the daemon does not answer and nobody takes the output", async () => {
    const { daemon, io } = await start((attempt) => attempt.text("working"));
    const code = runCli(["run", "hello", "--run-id", "r"], io);
    await until(() => io.out === "working");
    daemon.faults.push({ type: "mute", bytes: 0 });
    io.stuck = true;
    daemon.attempt("r").text("more");
    io.ctrlC();
    io.ctrlC();
    expect(await code).toBe(130);
    await until(() => daemon.attempt("r").readers.size === 0, "the connection to close");
  });

  test("a cancel that does not work is said", async () => {
    const { daemon, io } = await start((attempt) => attempt.text("working"));
    const code = runCli(["run", "hello", "--run-id", "r"], io);
    await until(() => io.out === "working");
    daemon.token = "rotated";
    io.ctrlC();
    await until(() => io.err.includes("not cancelled: refused with 401 unauthorized"));
    daemon.attempt("r").conclude({ type: "finished" }).end();
    expect(await code).toBe(0);
  });

  test("in attach leaves and cancels nothing", async () => {
    const { daemon, io } = await start((attempt) => attempt.text("working"));
    const run = runCli(["run", "hello", "--run-id", "r"], io);
    await until(() => io.out === "working");
    const other = new MemoryIo({ env: io.env });
    const code = runCli(["attach", "r"], other);
    await until(() => other.out === "working");
    other.ctrlC();
    expect(await code).toBe(130);
    expect([...daemon.tombstones]).toEqual([]);
    daemon.attempt("r").conclude({ type: "finished" }).end();
    expect(await run).toBe(0);
  });

  test("nobody reads stdout any more: the run is left", async () => {
    const { daemon, io } = await start((attempt) => attempt.text("working"));
    const code = runCli(["run", "hello", "--run-id", "r"], io);
    await until(() => io.out === "working");
    io.stdoutClosed.abort();
    expect(await code).toBe(141);
    expect([...daemon.tombstones]).toEqual([]);
  });
});

describe("attach", () => {
  test("shows a run from a frame on, and ends as it ended", async () => {
    const { io } = await start((attempt) => attempt.whole("one", "two"));
    await runCli(["run", "hello", "--run-id", "r"], io);
    const all = new MemoryIo({ env: io.env });
    expect(await runCli(["attach", "r"], all)).toBe(0);
    expect(all.out).toBe("onetwo\n");
    const some = new MemoryIo({ env: io.env });
    expect(await runCli(["attach", "r", "--after", "2", "--json"], some)).toBe(0);
    expect(
      some.out
        .split("\n")
        .filter(Boolean)
        .map((line) => JSON.parse(line).seq),
    ).toEqual([3, 4, 5]);
  });

  test.each([
    [["r", "--after", "x"], '--after must be a whole number, not "x"'],
    [["r", "--attempt", "0"], '--attempt must be a whole number of at least 1, not "0"'],
    [[], "RUN_ID is missing"],
    [["a", "b"], "too many arguments: b"],
    [[".."], '".." is no run id'],
  ])("usage: %p", async (argv, problem) => {
    const io = new MemoryIo();
    expect(await runCli(["attach", ...argv], io)).toBe(2);
    expect(io.err).toBe(`dispatchd attach: ${problem}\nTry "dispatchd attach --help".\n`);
  });

  test("an unknown run is refused, an attempt that is not the newest superseded", async () => {
    const { io } = await start((attempt) => attempt.whole());
    expect(await runCli(["attach", "r"], io)).toBe(5);
    expect(io.err).toContain("refused with 404 unknown_run");
    await runCli(["run", "hello", "--run-id", "r"], io);
    expect(await runCli(["attach", "r", "--attempt", "7"], io)).toBe(3);
  });
});
