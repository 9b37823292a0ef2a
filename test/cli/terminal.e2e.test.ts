/** `run` on a real terminal: what is typed reaches the turn, and Ctrl-C is what it should be at each moment. */
import { afterEach, beforeEach, expect, test } from "bun:test";
import { join } from "node:path";
import { type FakeAttempt, type FakeDaemon, startFakeDaemon, until } from "../support/fake-daemon.ts";

const PROGRAM = join(import.meta.dir, "../../src/main.ts");
const CTRL_C = "\u0003";
const BACKSPACE = "\u007f";
const metadata = { toolName: "connect", input: { account: "a" } };
const interrupt = { id: "a", reason: "dispatchd:client_tool", toolCallId: "call-a", expiresAt: "2026-01-03", metadata };

let daemon: FakeDaemon;
const terminals: Disposable[] = [];
beforeEach(async () => {
  daemon = await startFakeDaemon({
    turn: (attempt: FakeAttempt) => {
      if (attempt.input.answers) attempt.text("working");
      else attempt.conclude({ type: "interrupt", interrupts: [interrupt], suspension: "token" } as never).end();
    },
  });
});
afterEach(async () => {
  for (const terminal of terminals.splice(0)) terminal[Symbol.dispose]();
  await daemon.stop();
});

function start(...argv: string[]) {
  let shown = "";
  const decoder = new TextDecoder();
  const child = Bun.spawn({
    cmd: [process.execPath, PROGRAM, "run", "--run-id", "r", "--thread", "t", ...argv],
    env: { PATH: process.env.PATH, TERM: "xterm", DISPATCHD_URL: daemon.url, DISPATCHD_TOKEN: daemon.token },
    terminal: {
      cols: 60,
      rows: 24,
      data: (_, bytes) => {
        shown += decoder.decode(bytes, { stream: true });
      },
    },
  });
  terminals.push({
    [Symbol.dispose]() {
      if (child.exitCode === null && child.signalCode === null) child.kill("SIGKILL");
      child.terminal?.close();
    },
  });
  const type = (text: string): void => void child.terminal?.write(text);
  const shows = (text: string): Promise<void> => until(() => shown.includes(text), `${text} in:\n${shown}`);
  return { child, type, shows, shown: () => shown };
}

test("a long line with corrections is the answer, and Ctrl-C cancels what it started", async () => {
  const { child, type, shows } = start("hi");
  await shows("Your answer");
  // Longer than what a terminal takes in a line by itself.
  const long = "x".repeat(10_000);
  type(`{"token": "${long}"}}${BACKSPACE}\r`);
  await shows("working");
  expect(daemon.requests.at(-1)?.body).toMatchObject({
    input: { answers: [{ interruptId: "a", status: "resolved", payload: { token: long } }], suspension: "token" },
  });
  type(CTRL_C);
  expect(await child.exited).toBe(3);
  expect(daemon.tombstones.size).toBe(1);
});

test("what was typed before an approval was shown approves nothing", async () => {
  const approval = { ...interrupt, reason: "tool_call" };
  let ends = (): void => {};
  await daemon.stop();
  daemon = await startFakeDaemon({
    turn: (attempt: FakeAttempt) => {
      attempt.text(attempt.input.answers ? "working" : "thinking");
      const outcome = { type: "interrupt", interrupts: [approval], suspension: "token" };
      ends = () => void attempt.conclude(outcome as never).end();
    },
  });
  const { child, type, shows, shown } = start("hi");
  await shows("thinking");
  type("y\r");
  await shows("y");
  ends();
  await shows("Allow this call?");
  type("n\r");
  await shows("Why not?");
  expect(shown()).not.toContain("working");
  type("\r");
  await shows("working");
  expect(daemon.requests.at(-1)?.body).toMatchObject({ input: { answers: [{ payload: { approved: false } }] } });
  type(CTRL_C);
  expect(await child.exited).toBe(3);
});

test("JSON of several lines is one answer, pasted as it is", async () => {
  const { child, type, shows } = start("hi");
  await shows("Your answer");
  const payload = { list: Array.from({ length: 500 }, (_, n) => ({ n })), last: true };
  type(`${JSON.stringify(payload, null, 2).replaceAll("\n", "\r")}`);
  await shows('"last"');
  type("\r");
  await shows("working");
  expect(daemon.requests.at(-1)?.body).toMatchObject({ input: { answers: [{ interruptId: "a", payload }] } });
  type(CTRL_C);
  expect(await child.exited).toBe(3);
});

test("Ctrl-C at the prompt leaves the turn waiting; a signal too", async () => {
  const typed = start("hi");
  await typed.shows("Your answer");
  typed.type(`half an answer${CTRL_C}`);
  expect(await typed.child.exited).toBe(6);
  await typed.shows("dispatchd run --resume r --thread t");

  const signalled = start("hi");
  await signalled.shows("Your answer");
  signalled.child.kill("SIGINT");
  expect(await signalled.child.exited).toBe(6);
  await signalled.shows("dispatchd run --resume r --thread t");
  expect(daemon.tombstones.size).toBe(0);
  expect(daemon.starts).toEqual(["r#1"]);
});

test("with its output or its input elsewhere nobody is asked", async () => {
  const child = Bun.spawn({
    cmd: [process.execPath, PROGRAM, "run", "--run-id", "r", "--thread", "t", "hi"],
    env: { PATH: process.env.PATH, DISPATCHD_URL: daemon.url, DISPATCHD_TOKEN: daemon.token },
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
  });
  const [err, code] = await Promise.all([child.stderr.text(), child.exited]);
  expect(code).toBe(6);
  expect(err).toContain("to go on, at a terminal or with --answers FILE:\n  dispatchd run --resume r --thread t\n");
});
