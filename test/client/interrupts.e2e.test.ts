/** A run that asks: its questions as objects, answers while it waits, and the run that goes on with them. */
import { afterEach, describe, expect, test } from "bun:test";
import {
  AnswersError,
  answer,
  approve,
  type ClientOptions,
  cancel,
  createClient,
  deny,
  EndedError,
  type Interrupt,
  type Run,
  StaleError,
  UnreachableError,
  type Waiting,
} from "../../src/client/index.ts";
import { type FakeDaemon, type FakeDaemonOptions, failed, startFakeDaemon, until } from "../support/fake-daemon.ts";

const open: FakeDaemon[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((daemon) => daemon.stop()));
});

async function start(options: FakeDaemonOptions = {}, client: Partial<ClientOptions> = {}) {
  const daemon = await startFakeDaemon(options);
  open.push(daemon);
  const quick = { retryBaseMs: 1, retryCapMs: 20, silenceMs: 5000 };
  return { daemon, client: createClient({ url: daemon.url, token: daemon.token, ...quick, ...client }) };
}

const input = { threadId: "thread", userMessage: "hello", organizationId: "o", env: { A: "b" } };

function question(id: string): Interrupt {
  return {
    id,
    reason: "dispatchd:client_tool",
    toolCallId: `call-${id}`,
    expiresAt: "2026-01-03T03:04:05.000Z",
    metadata: { toolName: "connect", input: { account: id } },
  };
}
const [a, b] = [question("a"), question("b")];
const suspendedBy = (...interrupts: Interrupt[]) => ({ type: "interrupt" as const, interrupts, suspension: "token" });
const output = (id: string) => ({ type: "tool-output-available", toolCallId: `call-${id}`, output: {} });
const answersSent = (daemon: FakeDaemon) => daemon.requests.filter(({ path }) => path.endsWith("/answers"));

describe("a run that waits", () => {
  test("shows its newest questions, whoever reads it", async () => {
    const { daemon, client } = await start();
    const seen: Waiting[] = [];
    const run = client.dispatch({ runId: "r", input, onWaiting: (waiting) => seen.push(waiting) });
    const result = run.result();
    await run.started();
    const attempt = daemon.attempt("r").ask([a], { suspension: "one" });
    await until(() => seen.length === 1);
    expect(seen[0]).toEqual({ interrupts: [a], suspension: "one", until: "2026-01-02T03:14:05.000Z" });
    attempt.ask([a, b], { suspension: "two" });
    await until(() => run.interrupts.length === 2);
    expect(run.waiting).toEqual({ interrupts: [a, b], suspension: "two", until: "2026-01-02T03:14:05.000Z" });
    // Answered by somebody else; what is preliminary answers nothing.
    attempt.frame({ chunks: [{ ...output("b"), preliminary: true }, output("a")] });
    await until(() => run.interrupts.length === 1);
    expect(run.interrupts).toEqual([b]);
    attempt.ask([]);
    await until(() => run.waiting === undefined);
    attempt.conclude({ type: "finished" }).end();
    expect((await result).type).toBe("finished");
    expect(seen).toHaveLength(2);
  });

  test("is answered from within onWaiting, and goes on", async () => {
    const { daemon, client } = await start({
      turn: (attempt) => attempt.ask([a, b]),
      answered: (attempt) => attempt.text("thanks").conclude({ type: "finished" }).end(),
    });
    const onWaiting = (waiting: Waiting, run: Run): void => {
      void run.answer(waiting.interrupts.map((interrupt) => answer(interrupt, { ok: interrupt.id })));
    };
    const run = client.dispatch({ runId: "r", input, onWaiting });
    const texts: string[] = [];
    for await (const chunk of run) if (chunk.type === "text-delta") texts.push(chunk.delta);
    expect(texts).toEqual(["thanks"]);
    expect(run.interrupts).toEqual([]);
    expect(answersSent(daemon).map(({ body }) => body)).toEqual([
      {
        answers: [
          { interruptId: "a", status: "resolved", payload: { ok: "a" } },
          { interruptId: "b", status: "resolved", payload: { ok: "b" } },
        ],
      },
    ]);
  });

  test("is answered once over connections that break, before and after the answer arrived", async () => {
    const { daemon, client } = await start({ turn: (attempt) => attempt.ask([a]) });
    const run = client.dispatch({ runId: "r", input });
    void run.result();
    await until(() => run.interrupts.length === 1);
    const badGateway = { type: "answer", status: 502, body: "bad gateway" } as const;
    daemon.faults.push({ type: "lose" }, { type: "cut", bytes: 10 }, badGateway, { type: "cut", bytes: 0 });
    expect(await run.answer([answer(a, 1)])).toBe(1);
    expect(answersSent(daemon)).toHaveLength(5);
    expect([...daemon.attempt("r").answers]).toEqual([["a", '{"status":"resolved","payload":1}']]);
    expect(run.interrupts).toEqual([]);
    // On its way when the answer was taken.
    daemon.attempt("r").ask([a, b]);
    await until(() => run.interrupts.length > 0);
    expect(run.interrupts).toEqual([b]);
    daemon.attempt("r").conclude({ type: "finished" }).end();
    await run.result();
  });

  test("keeps the newest questions over a cut", async () => {
    const { daemon, client } = await start({ turn: (attempt) => attempt.ask([a]) });
    const run = client.dispatch({ runId: "r", input });
    void run.result();
    await until(() => run.interrupts.length === 1);
    daemon.cutAll();
    daemon.attempt("r").ask([b]);
    await until(() => run.interrupts[0]?.id === "b");
    expect(run.interrupts).toEqual([b]);
    run.detach();
    await run.result();
    // Whoever stops reading may still answer.
    expect(run.interrupts).toEqual([b]);
    expect(await run.answer([cancel(b)])).toBe(1);
  });

  test("is answered by somebody who does not read it", async () => {
    const { daemon, client } = await start({ turn: (attempt) => attempt.ask([a]) });
    const run = client.dispatch({ runId: "r/1", input });
    await run.started();
    expect(await client.answer("r/1", [deny(a, "no")])).toBe(1);
    expect(daemon.attempt("r/1").answers.get("a")).toBe(
      '{"status":"resolved","payload":{"approved":false,"reason":"no"}}',
    );
    await expect(client.answer("..", [])).rejects.toBeInstanceOf(TypeError);
    run.detach();
  });

  test("refuses by name: what it does not ask, what was answered otherwise, what comes too late", async () => {
    const { daemon, client } = await start({ turn: (attempt) => attempt.ask([a, b]) });
    const run = client.dispatch({ runId: "r", input });
    await run.started();
    const unknown = await run.answer([answer("x", 1), answer(a, 1)]).catch((thrown: unknown) => thrown);
    expect(unknown).toBeInstanceOf(StaleError);
    expect((unknown as StaleError).stale).toEqual({
      interruptId: "x",
      reason: "the run asks no such question",
      dead: true,
    });
    expect(daemon.attempt("r").answers.size).toBe(0);
    await run.answer([answer(a, 1)]);
    expect(await run.answer([answer(a, 1)])).toBe(1);
    await expect(run.answer([answer(a, 2)])).rejects.toMatchObject({
      name: "StaleError",
      status: 409,
      stale: { interruptId: "a", reason: "it was answered otherwise", dead: true },
    });
    await expect(run.answer([answer(b, 1), answer(b, 2)])).rejects.toBeInstanceOf(AnswersError);
    daemon.attempt("r").conclude({ type: "finished" }).end();
    const late = await run.answer([answer(b, 1)]).catch((thrown: unknown) => thrown);
    expect(late).toBeInstanceOf(EndedError);
    expect((late as EndedError).outcome).toEqual({ type: "finished" });
    await run.result();
  });

  test("gives up on a daemon that is not there", async () => {
    const { daemon, client } = await start({}, { silenceMs: 100 });
    await daemon.stop();
    await expect(client.answer("r", [answer("a", 1)])).rejects.toBeInstanceOf(UnreachableError);
    await daemon.listen();
  });
});

describe("a suspended run", () => {
  const suspend: FakeDaemonOptions = {
    turn: (attempt) => {
      if (attempt.input.answers) attempt.whole("thanks");
      else attempt.conclude(suspendedBy(a, b)).end({ saved: true, generation: "g7" });
    },
  };

  test("resumes with what it was dispatched with, the answers and the suspension", async () => {
    const { daemon, client } = await start(suspend);
    const run = client.dispatch({ runId: "r", input });
    expect(() => run.resume([])).toThrow(TypeError);
    const result = await run.result();
    if (result.type !== "interrupt") throw new Error(`it ended as ${result.type}`);
    expect(result).toMatchObject({ interrupts: [a, b], suspension: "token", final: true, complete: true });
    expect(run.interrupts).toEqual([a, b]);
    expect(run.waiting).toBeUndefined();
    const answers = [answer(a, { id: 1 }), approve(b)];
    const next = run.resume(answers, { runId: "r2", userMessage: "and hurry", input: { env: { A: "c" } } });
    expect((await next.result()).type).toBe("finished");
    expect(daemon.requests.at(-1)?.body).toEqual({
      runId: "r2",
      after: 0,
      input: {
        threadId: "thread",
        organizationId: "o",
        env: { A: "c" },
        sessionGeneration: "g7",
        userMessage: "and hurry",
        answers,
        suspension: "token",
      },
    });
  });

  test("is resumed by another process from what was stored", async () => {
    const { daemon, client } = await start(suspend);
    const stored = JSON.stringify(await client.dispatch({ input }).result());
    const next = client.resume(JSON.parse(stored), [cancel("a"), cancel("b")], { input, runId: "r2" });
    expect((await next.result()).type).toBe("finished");
    expect(daemon.attempt("r2").input).toEqual({
      threadId: "thread",
      organizationId: "o",
      env: { A: "b" },
      sessionGeneration: "g7",
      answers: [cancel("a"), cancel("b")],
      suspension: "token",
    });
  });

  test("that was attached to has to be told what it was dispatched with", async () => {
    const { daemon, client } = await start(suspend);
    await client.dispatch({ runId: "r", input }).result();
    const run = client.attach("r");
    await run.result();
    expect(() => run.resume([cancel(a), cancel(b)])).toThrow(TypeError);
    await run.resume([cancel(a), cancel(b)], { runId: "r2", input: { threadId: "thread" } }).result();
    expect(daemon.attempt("r2").input).toMatchObject({ threadId: "thread", suspension: "token" });
  });

  test("sends nothing when an answer is missing, doubled or for nothing", async () => {
    const { daemon, client } = await start(suspend);
    const run = client.dispatch({ runId: "r", input });
    await run.result();
    const seen = daemon.requests.length;
    expect(() => run.resume([answer(a, 1)])).toThrow('the question "b" is not answered');
    expect(() => run.resume([answer(a, 1), answer(b, 1), answer("c", 1)])).toThrow('answer to "c"');
    expect(() => run.resume([answer(a, 1), answer(a, 1), answer(b, 1)])).toThrow('"a" is answered twice');
    expect(daemon.requests).toHaveLength(seen);
  });

  test("whose suspension does not count is refused with the question and the reason", async () => {
    const stale = { detail: "the input was changed", interruptId: "b", reason: "the input was changed", dead: true };
    const { daemon, client } = await start({
      ...suspend,
      staleness: ({ answers }) => (answers ? stale : undefined),
    });
    const run = client.dispatch({ runId: "r", input });
    await run.result();
    const next = run.resume([cancel(a), cancel(b)]);
    expect(await next.result()).toMatchObject({
      type: "refused",
      status: 409,
      code: "stale",
      final: false,
      stale: { interruptId: "b", reason: "the input was changed", dead: true },
    });
    await expect(next.started()).rejects.toBeInstanceOf(StaleError);
    expect(daemon.starts).toEqual(["r#1"]);
  });

  test("that turns out stale after the restore says so in its outcome", async () => {
    const outcome = failed("stale", "another run has used it");
    Object.assign((outcome as { error: object }).error, { interruptId: "a", dead: true });
    const { client } = await start({
      turn: (attempt) => {
        if (attempt.input.answers) attempt.conclude(outcome).end();
        else attempt.conclude(suspendedBy(a)).end();
      },
    });
    const run = client.dispatch({ input });
    await run.result();
    expect(await run.resume([cancel(a)]).result()).toMatchObject({
      type: "failed",
      code: "stale",
      final: true,
      stale: { interruptId: "a", reason: "another run has used it", dead: true },
    });
  });

  test("that held before: the answer that came too late goes into the next run", async () => {
    const { daemon, client } = await start({
      turn: (attempt) => {
        if (attempt.input.answers) attempt.whole("thanks");
        else attempt.ask([a]);
      },
    });
    const run = client.dispatch({ runId: "r", input });
    const result = run.result();
    await until(() => run.interrupts.length === 1);
    daemon.attempt("r").conclude(suspendedBy(a)).end();
    await result;
    const late = answer(a, 1);
    await expect(run.answer([late])).rejects.toMatchObject({ name: "StaleError", stale: { dead: false } });
    expect(run.interrupts).toEqual([a]);
    expect((await run.resume([late]).result()).type).toBe("finished");
  });
});
