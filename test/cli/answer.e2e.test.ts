/** `run` where a turn asks: on the terminal, in the same turn and in the next one, and without a terminal. */
import { afterEach, describe, expect, test } from "bun:test";
import { runCli } from "../../src/cli/index.ts";
import type { InterruptReason } from "../../src/client/index.ts";
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

async function start(fake: FakeDaemonOptions, options: MemoryIoOptions = { person: true }) {
  const daemon = await startFakeDaemon(fake);
  open.push(daemon);
  const env = { DISPATCHD_URL: daemon.url, DISPATCHD_TOKEN: daemon.token, ...options.env };
  return { daemon, io: new MemoryIo({ ...options, env }), env };
}

function question(id: string, more: { reason?: InterruptReason; input?: unknown; [key: string]: unknown } = {}) {
  const { reason = "dispatchd:client_tool", input = { account: id }, toolName = "connect", ...rest } = more;
  const facts = { id, reason, toolCallId: `call-${id}`, expiresAt: "2026-01-03T03:04:05.000Z" };
  return { ...facts, metadata: { toolName, input }, ...rest };
}

const CLIENT = "Your answer, JSON or text (Enter: none) ";
const TOO_LATE = "the turn does not wait any longer: the answer goes into the next one";
const suspend = (attempt: FakeAttempt, ...interrupts: { id: string }[]) =>
  attempt.conclude({ type: "interrupt", interrupts, suspension: "token" } as never).end();

/** Asks these; the run that brings answers says thanks. */
function asking(...interrupts: { id: string }[]): FakeDaemonOptions {
  return {
    turn: (attempt) => {
      if (attempt.input.answers) attempt.whole("thanks");
      else suspend(attempt.text("hello"), ...interrupts);
    },
  };
}
const lastInput = (daemon: FakeDaemon) => daemon.requests.at(-1)?.body.input;
const resolved = (interruptId: string, payload: unknown) => ({ interruptId, status: "resolved", payload });

describe("a suspended turn, on a terminal", () => {
  test("is asked, and goes on in the next one", async () => {
    const { daemon, io } = await start(asking(question("a", { message: "Connect \u001b[31mme" }), question("b")));
    const code = runCli(["run", "--run-id", "r", "--thread", "t", "--mode", "plan", "hi"], io);
    await until(() => io.prompt === CLIENT);
    io.type(' {"token": 1} ');
    await until(() => io.prompt === CLIENT);
    io.type("done");
    expect(await code).toBe(0);
    expect(lastInput(daemon)).toEqual({
      threadId: "t",
      mode: "plan",
      answers: [resolved("a", { token: 1 }), resolved("b", "done")],
      suspension: "token",
    });
    const [, second = ""] = daemon.starts;
    expect(io.terminal).toBe(
      [
        "run r · thread t",
        "hello",
        "waits for 2 answers · 2.0 s · first text 1.0 s · saved · 3 frames",
        "? connect Connect me",
        "  │ {",
        '  │   "account": "a"',
        "  │ }",
        `${CLIENT} {"token": 1} `,
        "? connect",
        "  │ {",
        '  │   "account": "b"',
        "  │ }",
        `${CLIENT}done`,
        `run ${second.split("#")[0]} · thread t`,
        "thanks",
        "finished · 2.0 s · first text 1.0 s · 3 tokens in, 5 out · saved · 4 frames",
        "",
      ].join("\n"),
    );
  });

  test.each([
    ["tool_call", "Allow this call? [y/n] ", "Why not? (Enter: no reason) "],
    ["confirmation", "Agree to this plan? [y/n] ", "What should be different? (Enter: nothing) "],
  ] as const)("%s: yes or no, and why", async (reason, ask, why) => {
    const { daemon, io } = await start(
      asking(question("a", { reason }), question("b", { reason }), question("c", { reason })),
    );
    const code = runCli(["run", "hi"], io);
    for (const line of ["", "maybe", "YES", "n", "too early", "no", ""]) {
      await until(() => io.prompt !== undefined);
      io.type(line);
    }
    expect(await code).toBe(0);
    expect(io.terminal.split(ask)).toHaveLength(6);
    expect(io.terminal.split(why)).toHaveLength(3);
    expect(lastInput(daemon)).toMatchObject({
      answers: [
        resolved("a", { approved: true }),
        resolved("b", { approved: false, reason: "too early" }),
        resolved("c", { approved: false }),
      ],
    });
  });

  test("a plan is shown as the text that it is, with all that is agreed to beside it", async () => {
    const input = { plan: "1. look\n2. leap\u001b[8m", allowed: ["rm"] };
    const { io } = await start(asking(question("a", { reason: "confirmation", input })));
    const code = runCli(["run", "hi"], io);
    await until(() => io.prompt !== undefined);
    expect(io.err).toEndWith(
      '  │ 1. look\n  │ 2. leap\\u001b[8m\n  │ {\n  │   "allowed": [\n  │     "rm"\n  │   ]\n  │ }\n',
    );
    io.type("y");
    expect(await code).toBe(0);
  });

  test("the agent's own questions: options by number, or own words", async () => {
    const options = [{ label: "Red", description: "warm" }, { label: "Blue" }];
    const input = {
      questions: [
        { question: "Colour?", header: "c", options, multiSelect: false },
        { question: "Colours?", header: "c", options, multiSelect: true },
        { question: "__proto__", header: "c", options },
      ],
    };
    const { daemon, io } = await start(asking(question("a", { reason: "input_required", input })));
    const code = runCli(["run", "hi"], io);
    await until(() => io.prompt !== undefined);
    expect(io.err).toEndWith("? connect\n  │ Colour?\n  │ 1. Red: warm\n  │ 2. Blue\n");
    for (const line of ["", "2", "1, 2,1", "3"]) {
      await until(() => io.prompt !== undefined);
      io.type(line);
    }
    expect(await code).toBe(0);
    const answers = Object.fromEntries([
      ["Colour?", "Blue"],
      ["Colours?", ["Red", "Blue"]],
      ["__proto__", "3"],
    ]);
    expect(lastInput(daemon)).toMatchObject({ answers: [resolved("a", { answers })] });
  });

  test("a question of another shape is answered as it comes; a schema is shown and kept to", async () => {
    const responseSchema = { type: "object" };
    const { daemon, io } = await start(asking(question("a", { reason: "input_required", responseSchema })));
    const code = runCli(["run", "hi"], io);
    for (const line of ["words", "", "n", "{", "", "{", "}"]) {
      await until(() => io.prompt !== undefined);
      io.type(line);
    }
    expect(await code).toBe(0);
    expect(io.err).toContain('  an answer has to fit {"type":"object"}\n');
    expect(io.err).toContain(
      "  this has to be JSON, and is none (a text that begins with { or [ is written in quotes)\n",
    );
    expect(io.terminal).toContain("Leave it unanswered? [y/n] n\n");
    expect(lastInput(daemon)).toMatchObject({ answers: [resolved("a", {})] });
  });

  test("one that is left unanswered is cancelled", async () => {
    const { daemon, io } = await start(asking(question("a")));
    const code = runCli(["run", "hi"], io);
    for (const line of ["", "y"]) {
      await until(() => io.prompt !== undefined);
      io.type(line);
    }
    expect(await code).toBe(0);
    expect(lastInput(daemon)).toMatchObject({ answers: [{ interruptId: "a", status: "cancelled" }] });
  });

  test("asks again what the daemon does not take, and only that", async () => {
    const stale = { detail: "must have a token", interruptId: "b", reason: "must have a token", dead: false };
    const { daemon, io } = await start({
      ...asking(question("a"), question("b")),
      staleness: ({ answers }) => {
        return (answers as { payload: unknown }[] | undefined)?.some(({ payload }) => payload === "bad")
          ? stale
          : undefined;
      },
    });
    const code = runCli(["run", "hi"], io);
    for (const line of ["good", "bad", "better"]) {
      await until(() => io.prompt !== undefined);
      io.type(line);
    }
    expect(await code).toBe(0);
    expect(io.err).toContain("refused with 409 stale: must have a token");
    const answers = (lastInput(daemon) as { answers: unknown[] }).answers;
    expect(answers).toHaveLength(2);
    expect(answers).toContainEqual(resolved("a", "good"));
    expect(answers).toContainEqual(resolved("b", "better"));
  });

  test("a suspension that is dead is the end", async () => {
    const stale = { detail: "it has expired", reason: "it has expired", dead: true };
    const { daemon, io } = await start({
      ...asking(question("a")),
      staleness: ({ answers }) => (answers ? stale : undefined),
    });
    const code = runCli(["run", "hi"], io);
    await until(() => io.prompt !== undefined);
    io.type("x");
    expect(await code).toBe(5);
    expect(daemon.starts).toHaveLength(1);
  });

  test("an answer that the daemon cannot take is not lost", async () => {
    const { daemon, io, env } = await start(asking(question("a")));
    const code = runCli(["run", "--run-id", "r", "--thread", "t", "hi"], io);
    await until(() => io.prompt !== undefined);
    daemon.draining = true;
    io.type("a long answer");
    expect(await code).toBe(5);
    const entries = JSON.stringify([resolved("a", "a long answer")]);
    expect(io.err.split("\n").slice(-7)).toEqual([
      "the answers were not taken. To go on, with --answers FILE:",
      "  dispatchd run --resume r --thread t",
      "the answers:",
      `  ${entries}`,
      "on another pod: --suspension FILE in place of --resume, with this in the file:",
      "token",
      "",
    ]);
    daemon.draining = false;
    const later = new MemoryIo({ env, files: { a: entries } });
    expect(await runCli(["run", "--resume", "r", "--thread", "t", "--answers", "a"], later)).toBe(0);
  });

  test.each([
    ["Ctrl-C", (io: MemoryIo) => io.ctrlC()],
    ["the end of the input", (io: MemoryIo) => io.type(undefined)],
  ])("%s at the prompt leaves it waiting, and says how to go on", async (_, leave) => {
    const { daemon, io, env } = await start(asking(question("a")), {
      person: true,
      files: { "tools.json": '[{"name":"connect"}]' },
      env: { KEY: "s3cr3t" },
    });
    const options = ["--thread", "t", "--tools", "tools.json", "--env", "KEY", "--hold", "0"];
    const code = runCli(["run", "--run-id", "r", ...options, "hi"], io);
    await until(() => io.prompt !== undefined);
    leave(io);
    expect(await code).toBe(6);
    expect(io.interruptible).toBe(false);
    expect(daemon.tombstones.size).toBe(0);
    const command = "dispatchd run --resume r --thread t --tools tools.json --hold 0 --env KEY";
    expect(io.err).toEndWith(`the turn waits for an answer. To go on:\n  ${command}\n`);

    const later = new MemoryIo({ env, person: true, files: { "tools.json": '[{"name":"connect"}]' } });
    const next = runCli(command.split(" ").slice(1), later);
    await until(() => later.prompt === CLIENT);
    later.type("done");
    expect(await next).toBe(0);
    expect(lastInput(daemon)).toEqual({
      threadId: "t",
      tools: [{ name: "connect" }],
      clientTools: { holdSeconds: 0 },
      env: { KEY: "s3cr3t" },
      answers: [resolved("a", "done")],
      suspension: "token",
    });
  });
});

describe("a turn that waits, on a terminal", () => {
  const thank: FakeDaemonOptions["answered"] = (attempt) => {
    if (attempt.asked.size === 0) attempt.text(" thanks").conclude({ type: "finished" }).end();
  };

  test("is answered, one question after the other, and goes on", async () => {
    const { daemon, io } = await start({
      turn: (attempt) => attempt.text("hello").ask([question("a"), question("b")]),
      answered: thank,
    });
    const code = runCli(["run", "--run-id", "r", "--hold", "60", "hi"], io);
    await until(() => io.prompt !== undefined);
    expect(io.terminal).toContain('hello\n? connect\n  │ {\n  │   "account": "a"\n  │ }\n');
    // What comes meanwhile does not run into the line that is typed.
    daemon.attempt("r").text(" and more");
    io.type("1");
    await until(() => io.prompt !== undefined);
    io.type("2");
    expect(await code).toBe(0);
    expect(daemon.starts).toEqual(["r#1"]);
    expect(daemon.attempt("r").input).toMatchObject({ clientTools: { holdSeconds: 60 } });
    expect([...daemon.attempt("r").answers]).toEqual([
      ["a", '{"status":"resolved","payload":1}'],
      ["b", '{"status":"resolved","payload":2}'],
    ]);
    expect(io.terminal).toContain(`${CLIENT}1\n`);
    expect(io.out).toContain(" and more");
    expect(io.out).toEndWith(" thanks\n");
  });

  test("that ends while somebody types takes the answer into the next one", async () => {
    const { daemon, io } = await start({
      turn: (attempt) => {
        if (attempt.input.answers) attempt.whole("thanks");
        else attempt.ask([question("a"), question("b")]);
      },
    });
    const code = runCli(["run", "--run-id", "r", "hi"], io);
    await until(() => io.prompt !== undefined);
    suspend(daemon.attempt("r"), question("a"), question("b"));
    await until(() => daemon.attempt("r").readers.size === 0, "the run to be read to its end");
    expect(io.prompt).toBe(CLIENT);
    io.type("1");
    await until(() => io.prompt !== undefined);
    expect(io.err).toContain(`${TOO_LATE}\nwaits for 2 answers · `);
    io.type("2");
    expect(await code).toBe(0);
    expect(lastInput(daemon)).toMatchObject({ answers: [resolved("a", 1), resolved("b", 2)], suspension: "token" });
  });

  test("that ends at the very moment of the answer takes it into the next one", async () => {
    const { daemon, io } = await start({
      turn: (attempt) => {
        if (attempt.input.answers) attempt.whole("thanks");
        else attempt.ask([question("a")]);
      },
    });
    const code = runCli(["run", "--run-id", "r", "hi"], io);
    await until(() => io.prompt !== undefined);
    // The daemon parks it before the reader knows.
    daemon.faults.push({
      type: "answer",
      status: 409,
      body: JSON.stringify({ error: "stale", interruptId: "a", reason: "the run does not wait any more", dead: false }),
    });
    io.type("1");
    await until(() => io.err.includes(TOO_LATE));
    suspend(daemon.attempt("r"), question("a"));
    expect(await code).toBe(0);
    expect(lastInput(daemon)).toMatchObject({ answers: [resolved("a", 1)] });
  });

  test("forgets an answer that came too late for what is not asked any more", async () => {
    const { daemon, io } = await start({
      turn: (attempt) => {
        if (attempt.input.answers) attempt.whole("thanks");
        else attempt.ask([question("a"), question("b")]);
      },
    });
    const code = runCli(["run", "--run-id", "r", "hi"], io);
    await until(() => io.prompt !== undefined);
    const stale = { error: "stale", interruptId: "a", reason: "it does not wait any more", dead: false };
    daemon.faults.push({ type: "answer", status: 409, body: JSON.stringify(stale) });
    io.type("1");
    await until(() => io.prompt !== undefined);
    suspend(daemon.attempt("r"), question("b"));
    io.type("2");
    expect(await code).toBe(0);
    expect(lastInput(daemon)).toMatchObject({ answers: [resolved("b", 2)] });
  });

  test("withdraws a question that somebody else answered", async () => {
    const { daemon, io } = await start({
      turn: (attempt) => attempt.ask([question("a"), question("b")]),
      answered: thank,
    });
    const code = runCli(["run", "--run-id", "r", "hi"], io);
    await until(() => io.prompt !== undefined);
    daemon.attempt("r").frame({ chunks: [{ type: "tool-output-available", toolCallId: "call-a", output: 1 }] });
    await until(() => io.err.includes("the question is answered elsewhere"));
    await until(() => io.terminal.includes('"account": "b"'));
    daemon.attempt("r").asked.delete("a");
    await until(() => io.prompt !== undefined);
    io.type("2");
    expect(await code).toBe(0);
  });

  test("asks again for an answer that does not fit", async () => {
    const { daemon, io } = await start({ turn: (attempt) => attempt.ask([question("a")]), answered: thank });
    const code = runCli(["run", "--run-id", "r", "hi"], io);
    await until(() => io.prompt !== undefined);
    const detail = "answers.0.payload: must be an object";
    daemon.faults.push({ type: "answer", status: 400, body: JSON.stringify({ error: "bad_input", detail }) });
    io.type("1");
    await until(() => io.prompt !== undefined);
    expect(io.err).toContain(`not taken: refused with 400 bad_input: ${detail}\n`);
    io.type("{}");
    expect(await code).toBe(0);
  });

  test("that is cancelled withdraws its question", async () => {
    const { daemon, io } = await start({ turn: (attempt) => attempt.ask([question("a")]) });
    const code = runCli(["run", "--run-id", "r", "hi"], io);
    await until(() => io.prompt !== undefined);
    daemon
      .attempt("r")
      .conclude({ type: "failed", error: { code: "cancelled", message: "asked" } })
      .end();
    expect(await code).toBe(3);
    expect(io.prompt).toBeUndefined();
  });

  test.each([["at the prompt"], ["without a terminal"], ["as JSON"]])(
    "that is lost with its pod says how to go on elsewhere: %s",
    async (where) => {
      const asks = where === "at the prompt";
      const inSubagent = { metadata: { toolName: "connect", input: {}, inSubagent: true } };
      const { daemon, io, env } = await start(
        {
          turn: (attempt) => {
            if (attempt.input.answers) attempt.whole("thanks");
            else attempt.text("hello").ask([question("a"), question("b", inSubagent)]);
          },
        },
        { person: asks },
      );
      const argv = ["run", "--run-id", "r", "--thread", "t", "--hold", "60"];
      const code = runCli([...argv, ...(where === "as JSON" ? ["--json"] : []), "hi"], io);
      await until(() => (asks ? io.prompt !== undefined : (where === "as JSON" ? io.out : io.err).includes("connect")));
      daemon.forget("boot-2");
      daemon.cutAll();
      expect(await code).toBe(4);
      const answers = JSON.stringify([resolved("a", null)]);
      if (where !== "as JSON") {
        expect(io.err.split("\n").slice(-7)).toEqual([
          "the turn waited for an answer. To go on, at a terminal or with --answers FILE:",
          "  dispatchd run --suspension FILE --thread t --hold 60",
          "with this in the file of --suspension:",
          "token",
          "answers, with what was answered in place of null:",
          `  ${answers}`,
          "",
        ]);
      }
      // What was printed is what it takes.
      const files = { s: where === "as JSON" ? io.out : "token", a: answers };
      const later = new MemoryIo({ env, files });
      expect(await runCli(["run", "--suspension", "s", "--thread", "t", "--answers", "a"], later)).toBe(0);
      expect(lastInput(daemon)).toMatchObject({ answers: [resolved("a", null)], suspension: "token" });
    },
  );

  test("whose daemon came back on its state says so too; one that was answered before does not", async () => {
    for (const answered of [false, true]) {
      const { daemon, io } = await start({ turn: (attempt) => attempt.text("hello").ask([question("a")]) });
      const code = runCli(["run", "--run-id", "r", "--thread", "t", "--hold", "60", "hi"], io);
      await until(() => io.prompt !== undefined);
      const attempt = daemon.attempt("r");
      if (answered) attempt.frame({ chunks: [{ type: "tool-output-available", toolCallId: "call-a", output: 1 }] });
      attempt.conclude(failed("sandbox_gone", "restarted")).end();
      expect(await code).toBe(4);
      expect(io.err.includes("the turn waited for an answer. To go on")).toBe(!answered);
    }
  });

  test.each([
    ["it has finished since", { chunks: [], outcome: { type: "finished" } }],
    ["it asked nothing at its end", { chunks: [], waiting: { interrupts: [], until: "2026-01-03" } }],
  ])("is not gone back to when %s", async (_, last) => {
    const waiting = { interrupts: [question("a")], suspension: "token", until: "2026-01-03" };
    const text = [{ chunks: [], waiting }, last].map((frame) => JSON.stringify(frame)).join("\n");
    const { io } = await start(asking(), { files: { s: text, a: JSON.stringify([resolved("a", 1)]) } });
    expect(await runCli(["run", "--suspension", "s", "--thread", "t", "--answers", "a"], io)).toBe(2);
    expect(io.err).toContain("s holds no suspension");
  });

  test("Ctrl-C at the prompt leaves it waiting; the command for later answers it where it waits", async () => {
    const { daemon, io, env } = await start({ turn: (attempt) => attempt.ask([question("a")]), answered: thank });
    const code = runCli(["run", "--run-id", "r", "--thread", "t", "hi"], io);
    await until(() => io.prompt !== undefined);
    io.ctrlC();
    expect(await code).toBe(6);
    expect(io.err).toEndWith("To go on:\n  dispatchd run --resume r --thread t\n");
    await until(() => daemon.attempt("r").readers.size === 0, "the connection to close");
    expect(daemon.tombstones.size).toBe(0);
    const later = new MemoryIo({ env, person: true });
    const next = runCli(["run", "--resume", "r"], later);
    await until(() => later.prompt === CLIENT);
    later.type("1");
    expect(await next).toBe(0);
    expect(daemon.starts).toEqual(["r#1"]);
  });
});

describe("without a terminal", () => {
  const plain: MemoryIoOptions = {};

  test("prints what waits, and ends with a code of its own", async () => {
    const { io } = await start(asking(question("a", { message: "Connect" }), question("b")), plain);
    expect(await runCli(["run", "--run-id", "r", "--thread", "t", "hi"], io)).toBe(6);
    expect(io.out).toBe("hello\n");
    expect(io.err.split("\n").slice(1)).toEqual([
      "? connect: Connect [a]",
      '? connect: {"account":"b"} [b]',
      "waits for 2 answers · 2.0 s · first text 1.0 s · saved · 3 frames",
      "to go on, at a terminal or with --answers FILE:",
      "  dispatchd run --resume r --thread t",
      "answers, with what was answered in place of null:",
      '  [{"interruptId":"a","status":"resolved","payload":null},{"interruptId":"b","status":"resolved","payload":null}]',
      "on another pod: --suspension FILE in place of --resume, with this in the file:",
      "token",
      "",
    ]);
  });

  test("with --json the frames say it, and go on later from what was printed", async () => {
    const { daemon, io, env } = await start(asking(question("a")), { person: true });
    expect(await runCli(["run", "--json", "--run-id", "r", "--thread", "t", "hi"], io)).toBe(6);
    expect(io.out).toBe(daemon.attempt("r").lines.join(""));
    expect(io.err).toBe("");
    daemon.forget("boot-2");
    const answers = [resolved("a", { ok: true })];
    const files = { "turn.ndjson": io.out, "answers.json": JSON.stringify(answers) };
    const later = new MemoryIo({ env, files });
    const argv = ["run", "--thread", "t", "--suspension", "turn.ndjson", "--answers", "answers.json"];
    expect(await runCli([...argv, "--run-id", "r2", "and", "hurry"], later)).toBe(0);
    expect(daemon.attempt("r2").input).toEqual({
      threadId: "t",
      userMessage: { parts: [{ type: "text", text: "and hurry" }] },
      answers,
      suspension: "token",
    });
  });

  test.each([
    ["the suspension's text", "token\n"],
    ["an outcome", JSON.stringify({ interrupts: [question("a")], suspension: "token" }, null, 2)],
    [
      "a run, as the daemon tells of it",
      JSON.stringify({ outcome: { interrupts: [question("a")], suspension: "token" } }),
    ],
  ])("goes on from %s", async (_, text) => {
    const files = { s: text, a: JSON.stringify([resolved("a", 1)]) };
    const { daemon, io } = await start(asking(question("a")), { files });
    expect(await runCli(["run", "--thread", "t", "--suspension", "s", "--answers", "a"], io)).toBe(0);
    expect(lastInput(daemon)).toEqual({ threadId: "t", answers: [resolved("a", 1)], suspension: "token" });
  });

  test("on a terminal a stored suspension is asked for what --answers leaves open", async () => {
    const text = JSON.stringify({ interrupts: [question("a"), question("b")], suspension: "token" });
    const { daemon, io } = await start(asking(), {
      person: true,
      files: { s: text, a: JSON.stringify([resolved("b", 2)]) },
    });
    const code = runCli(["run", "--thread", "t", "--suspension", "s", "--answers", "a"], io);
    await until(() => io.prompt !== undefined);
    io.type("1");
    expect(await code).toBe(0);
    expect(lastInput(daemon)).toMatchObject({ answers: [resolved("b", 2), resolved("a", 1)] });
  });

  test("--answers goes to a run that waits still; what it leaves open keeps it waiting", async () => {
    const { daemon, io, env } = await start(
      {
        turn: (attempt) => attempt.ask([question("a"), question("b")]),
        answered: (attempt) => suspend(attempt, question("b")),
      },
      plain,
    );
    const first = runCli(["run", "--run-id", "r", "--thread", "t", "hi"], io);
    await until(() => io.err.includes("waiting for 2 answers, until 2026-01-02T03:14:05.000Z\n"));
    const later = new MemoryIo({ env, files: { a: JSON.stringify([resolved("a", 1)]) } });
    expect(await runCli(["run", "--resume", "r", "--answers", "a"], later)).toBe(6);
    expect(await first).toBe(6);
    expect(daemon.attempt("r").answers.get("a")).toBe('{"status":"resolved","payload":1}');
    expect(later.err).toContain('[{"interruptId":"b","status":"resolved","payload":null}]');
  });

  test("a run that the daemon has dropped needs its thread; one that does not wait is said", async () => {
    const { daemon, io, env } = await start(asking(question("a")), plain);
    await runCli(["run", "--run-id", "r", "--thread", "t", "hi"], io);
    daemon.drop("r");
    const files = { a: JSON.stringify([resolved("a", 1)]) };
    const dropped = new MemoryIo({ env, files });
    expect(await runCli(["run", "--resume", "r", "--answers", "a"], dropped)).toBe(2);
    expect(dropped.err).toContain("the daemon has dropped run r: --thread is missing");
    expect(await runCli(["run", "--resume", "r", "--answers", "a", "--thread", "t", "--run-id", "r2"], dropped)).toBe(
      0,
    );
    const finished = new MemoryIo({ env });
    expect(await runCli(["run", "--resume", "r2"], finished)).toBe(2);
    expect(finished.err).toContain("run r2 does not wait for answers: it has ended as finished");
    expect(await runCli(["run", "--resume", "unknown"], finished)).toBe(5);
  });

  test.each([
    [["x", "--answers", "a"], "--answers needs the run that asked: --resume or --suspension"],
    [["--resume", "r", "--suspension", "s"], "--resume and --suspension exclude each other"],
    [["--suspension", "s", "--answers", "a"], "--suspension needs the conversation that it is of: --thread"],
    [["--suspension", "s", "--thread", "t"], "the text of a suspension alone does not say what is asked"],
    [
      ["--suspension", "bad", "--thread", "t"],
      "bad holds no suspension: neither its text, nor frames of a run that waits",
    ],
    [["--resume", "..", "--answers", "a"], '".." is no run id'],
    [["x", "--answers", "s", "--resume", "r"], "s is no JSON array of answers"],
    [["x", "--answers", "twice", "--resume", "r"], 'twice answers "a" twice'],
    [["x", "--tools", "bad"], "bad is no JSON array of tools, each with a name"],
    [["x", "--hold", "-1"], "Option '--hold' argument is ambiguous"],
    [["x", "--hold", "1.5"], '--hold must be a whole number, not "1.5"'],
    [["x", "--callback", "ftp://h"], '--callback must begin with http:// or https://, not "ftp://h"'],
    [["-", "--tools", "-"], "stdin cannot be two things at once"],
  ])("usage: %p", async (argv, problem) => {
    const files = { a: JSON.stringify([resolved("a", 1)]), s: "token", bad: '{"seq":1}', twice: "" };
    files.twice = JSON.stringify([resolved("a", 1), resolved("a", 2)]);
    const { daemon, io } = await start({}, { files });
    expect(await runCli(["run", ...argv], io)).toBe(2);
    expect(io.err).toStartWith(`dispatchd run: ${problem}`);
    expect(daemon.starts).toEqual([]);
  });

  test("an answer for nothing is a usage error; nothing is sent", async () => {
    const text = JSON.stringify({ interrupts: [question("a")], suspension: "token" });
    const files = { s: text, a: JSON.stringify([resolved("a", 1), resolved("z", 1)]) };
    const { daemon, io } = await start(asking(), { files });
    expect(await runCli(["run", "--thread", "t", "--suspension", "s", "--answers", "a"], io)).toBe(2);
    expect(io.err).toContain('nothing asks for an answer to "z"');
    expect(daemon.requests).toEqual([]);
  });

  test("stdin that is a file's is nobody's to type at", async () => {
    const { io } = await start(asking(question("a")), { person: true, stdin: "hello" });
    expect(await runCli(["run", "-"], io)).toBe(6);
  });
});

test("what is sent of tools, hold and callback, above a file", async () => {
  const files = {
    "tools.json": JSON.stringify([{ name: "connect", kind: "client" }]),
    "in.json": JSON.stringify({
      callback: { url: "http://old", headers: { a: "b" } },
      clientTools: { holdSeconds: 1 },
    }),
  };
  const { daemon, io } = await start({ turn: (attempt) => attempt.whole() }, { files });
  const argv = ["--tools", "tools.json", "--hold", "30", "--callback", "https://host/cb", "--input", "in.json"];
  expect(await runCli(["run", "x", "--thread", "t", ...argv], io)).toBe(0);
  expect(lastInput(daemon)).toMatchObject({
    tools: [{ name: "connect", kind: "client" }],
    clientTools: { holdSeconds: 30 },
    callback: { url: "https://host/cb", headers: { a: "b" } },
  });
});
