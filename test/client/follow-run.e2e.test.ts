/** A client on a daemon that keeps the protocol, over connections that do not keep. */
import { afterEach, describe, expect, test } from "bun:test";
import { readUIMessageStream } from "ai";
import type { ClientOptions, Fetch, Frame, Run, RunResult } from "../../src/client/index.ts";
import {
  createClient,
  ProtocolError,
  RefusedError,
  RunGoneError,
  SupersededError,
  UnreachableError,
} from "../../src/client/index.ts";
import {
  type FakeAttempt,
  type FakeDaemon,
  type FakeDaemonOptions,
  failed,
  startFakeDaemon,
  until,
} from "../support/fake-daemon.ts";
import { ManualClock } from "../support/manual-clock.ts";

const open: FakeDaemon[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((daemon) => daemon.stop()));
});

const input = { threadId: "thread", userMessage: "hello" };
/** Quick enough for a test, patient enough for two busy cores. */
const QUICK = { retryBaseMs: 1, retryCapMs: 20, silenceMs: 5000 };

async function start(options: FakeDaemonOptions = {}, client: Partial<ClientOptions> = {}) {
  const daemon = await startFakeDaemon(options);
  open.push(daemon);
  return { daemon, client: createClient({ url: daemon.url, token: daemon.token, ...QUICK, ...client }) };
}

async function collect(run: Run): Promise<{ frames: Frame[]; result: RunResult; error: unknown }> {
  const frames: Frame[] = [];
  let error: unknown;
  try {
    for await (const frame of run.frames()) frames.push(frame);
  } catch (thrown) {
    error = thrown;
  }
  return { frames, result: await run.result(), error };
}

const seqs = (frames: readonly Frame[]): number[] => frames.map(({ seq }) => seq);
const upTo = (n: number): number[] => Array.from({ length: n }, (_, index) => index + 1);
const posts = (daemon: FakeDaemon) => daemon.requests.filter(({ method }) => method === "POST");

describe("a run on a good connection", () => {
  test("gives every frame, the chunks of them, and a result with all that the daemon said", async () => {
    const { daemon, client } = await start({ turn: (attempt) => attempt.whole("one", "two") });
    const { frames, result, error } = await collect(client.dispatch({ runId: "r", input }));
    expect(error).toBeUndefined();
    expect(seqs(frames)).toEqual(upTo(5));
    expect(result).toEqual({
      type: "finished",
      runId: "r",
      attempt: 1,
      bootId: "boot-1",
      lastSeq: 5,
      final: true,
      complete: true,
      preparation: { home: "none", skills: "none", waitedMs: 0, session: "fresh" },
      usage: { inputTokens: 3, outputTokens: 5 },
      settled: { saved: true },
    });
    expect(posts(daemon).map(({ body }) => body)).toEqual([{ runId: "r", after: 0, input }]);

    const chunks = [];
    for await (const chunk of client.attach("r")) chunks.push(chunk);
    expect(chunks.map((chunk) => (chunk as { delta?: string }).delta)).toEqual(["one", "two"]);
  });

  test("makes up a run id, and says when the daemon has taken the run", async () => {
    const { daemon, client } = await start();
    const run = client.dispatch({ input });
    expect(await run.started()).toEqual({ attempt: 1, bootId: "boot-1" });
    expect(run.attempt).toBe(1);
    daemon.attempt(run.runId).whole();
    expect((await run.result()).type).toBe("finished");
  });

  test("knows the outcome before the settling is over", async () => {
    const { daemon, client } = await start({
      turn: (attempt) =>
        attempt.conclude({ type: "interrupt", interrupts: [{ id: "i", toolCallId: "c" }], suspension: "s" }),
    });
    const run = client.dispatch({ runId: "r", input });
    expect(await run.outcome()).toMatchObject({ type: "interrupt", interrupts: [{ id: "i" }], complete: false });
    daemon.attempt("r").end({ saved: false, reason: "no volume" });
    expect(await run.result()).toMatchObject({ complete: true, settled: { saved: false, reason: "no volume" } });
  });

  test("is a stream that readUIMessageStream takes", async () => {
    const { client } = await start({
      turn: (attempt) =>
        attempt
          .frame({ chunks: [{ type: "start", messageId: "m" }, { type: "start-step" }] })
          .frame({ chunks: [{ type: "text-start", id: "t" }] })
          .text("Grüße\u2028")
          .text("🙂")
          .frame({ chunks: [{ type: "text-end", id: "t" }, { type: "finish-step" }, { type: "finish" }] })
          .conclude({ type: "finished" })
          .end(),
    });
    let last: unknown;
    for await (const message of readUIMessageStream({ stream: client.dispatch({ input }).stream() })) last = message;
    expect(last).toMatchObject({ id: "m", parts: [{ type: "step-start" }, { type: "text", text: "Grüße\u2028🙂" }] });
  });

  test.each([
    ["cancelled", { type: "cancelled" }],
    ["superseded", { type: "superseded" }],
    ["harness_crashed", { type: "crashed", code: "harness_crashed" }],
    ["harness_stalled", { type: "crashed", code: "harness_stalled" }],
    ["turn_failed", { type: "failed", code: "turn_failed" }],
    ["storage_failed", { type: "failed", code: "storage_failed" }],
  ] as const)("ends as the daemon says: %s", async (code, expected) => {
    const { client } = await start({ turn: (attempt) => attempt.conclude(failed(code, "why")).end({ saved: false }) });
    const { result, error } = await collect(client.dispatch({ input }));
    expect(error).toBeUndefined();
    expect(result).toMatchObject({ ...expected, message: "why", final: true, complete: true });
  });

  test("tells why a pod could not finish", async () => {
    const outcome = { type: "failed", error: { code: "sandbox_gone", message: "m", reason: "shutdown" } } as const;
    const { client } = await start({ turn: (attempt) => attempt.conclude(outcome).end() });
    expect(await client.dispatch({ input }).result()).toMatchObject({ type: "gone", reason: "shutdown", final: true });
  });

  test("a code that is newer than the client is a failure", async () => {
    const outcome = failed("from_the_future" as "internal", "m");
    const { client } = await start({ turn: (attempt) => attempt.conclude(outcome).end() });
    expect(await client.dispatch({ input }).result()).toMatchObject({ type: "failed", code: "from_the_future" });
  });
});

describe("a connection that is cut", () => {
  test("at every byte of an answer: each frame once, and the turn runs once", async () => {
    const { daemon, client } = await start({ turn: (attempt) => attempt.whole("a", "é\u2028🙂") });
    const whole = (await collect(client.dispatch({ runId: "whole", input }))).frames;
    // The head, five frames and their framing; the last offset is behind the end.
    for (let bytes = 0; bytes < 700; bytes++) {
      daemon.faults.push({ type: "cut", bytes });
      const { frames, result, error } = await collect(client.dispatch({ runId: `r${bytes}`, input }));
      expect({ bytes, frames, error, complete: result.complete }).toEqual({
        bytes,
        frames: whole,
        error: undefined,
        complete: true,
      });
    }
    expect(daemon.starts).toEqual(["whole#1", ...Array.from({ length: 700 }, (_, n) => `r${n}#1`)]);
    expect(daemon.faults).toEqual([]);
    // The last cut was behind the answer's end, or the loop has not reached every byte.
    expect(posts(daemon).at(-1)?.body.runId).toBe("r699");
    expect(posts(daemon).filter(({ body }) => body.runId === "r699")).toHaveLength(1);
  });

  test("for a reader, again and again: each frame once", async () => {
    const { daemon, client } = await start({ turn: (attempt) => attempt.whole("a", "b", "c") });
    await client.dispatch({ runId: "r", input }).result();
    for (let bytes = 0; bytes < 500; bytes += 7) {
      daemon.faults.push({ type: "cut", bytes }, { type: "cut", bytes: 500 - bytes }, { type: "cut", bytes: 260 });
      const { frames, error } = await collect(client.attach("r", { after: 1 }));
      expect({ bytes, seqs: seqs(frames), error }).toEqual({ bytes, seqs: [2, 3, 4, 5, 6], error: undefined });
      daemon.faults.length = 0;
    }
  });

  test("before the daemon saw the request: it is sent again and starts the turn", async () => {
    const { daemon, client } = await start({ turn: (attempt) => attempt.whole() });
    daemon.faults.push({ type: "lose" }, { type: "lose" });
    expect((await client.dispatch({ runId: "r", input }).result()).type).toBe("finished");
    expect(daemon.starts).toEqual(["r#1"]);
  });

  test("before an answer to a takeover: what is sent again does not take over", async () => {
    const { daemon, client } = await start();
    const first = client.dispatch({ runId: "r", input });
    await first.started();
    daemon.faults.push({ type: "cut", bytes: 0 });
    const second = client.dispatch({ runId: "r", input, takeover: true });
    await second.started();
    expect(daemon.starts).toEqual(["r#1", "r#2"]);
    expect(second.attempt).toBe(2);
    expect(posts(daemon).map(({ body }) => body.after)).toEqual([0, undefined, 0]);
    daemon.attempt("r").whole();
    expect((await first.result()).type).toBe("superseded");
    expect((await second.result()).type).toBe("finished");
  });

  test("makes this side the owner again, behind the last frame it has", async () => {
    const { daemon, client } = await start({ turn: (attempt) => attempt.text("a").text("b") });
    const run = client.dispatch({ runId: "r", input });
    const all = collect(run);
    await until(() => run.lastSeq === 2);
    daemon.cutAll();
    await until(() => daemon.attempt("r").owner !== undefined && daemon.requests.length === 2, "the owner to be back");
    expect(posts(daemon).at(-1)?.body).toEqual({ runId: "r", after: 2, attempt: 1, input });
    daemon.attempt("r").text("c").conclude({ type: "finished" }).end();
    expect(seqs((await all).frames)).toEqual(upTo(5));
  });

  test("and a daemon that is away for a while", async () => {
    const { daemon, client } = await start({ turn: (attempt) => attempt.text("a") });
    const run = client.dispatch({ runId: "r", input });
    const all = collect(run);
    await until(() => run.lastSeq === 1);
    await daemon.stop();
    daemon.attempt("r").text("b").conclude(failed("sandbox_gone", "restarted")).end({ saved: false });
    daemon.bootId = "boot-2";
    await daemon.listen();
    const { frames, result } = await all;
    expect(seqs(frames)).toEqual(upTo(4));
    expect(result).toMatchObject({ type: "gone", bootId: "boot-2", complete: true });
  });

  test("after the outcome, for good: the outcome stands and settled is not known", async () => {
    const { daemon, client } = await start(
      { turn: (attempt) => attempt.text("a").conclude({ type: "finished" }) },
      { settledForMs: 50 },
    );
    const run = client.dispatch({ runId: "r", input });
    const all = collect(run);
    await until(() => run.lastSeq === 2);
    await daemon.stop();
    const { frames, result, error } = await all;
    expect(error).toBeUndefined();
    expect(seqs(frames)).toEqual(upTo(2));
    expect(result).toMatchObject({ type: "finished", final: true, complete: false });
    expect(result.settled).toBeUndefined();
  });
});

describe("a connection that goes quiet", () => {
  test("is replaced after half of the silence that is allowed, at any byte", async () => {
    const { daemon, client } = await start({ turn: (attempt) => attempt.whole("a") }, { silenceMs: 400 });
    for (const bytes of [0, 10, 160, 200, 300, 400]) {
      daemon.faults.push({ type: "mute", bytes });
      const { frames, error } = await collect(client.dispatch({ runId: `r${bytes}`, input }));
      expect({ bytes, seqs: seqs(frames), error }).toEqual({ bytes, seqs: upTo(4), error: undefined });
    }
    expect(daemon.starts).toHaveLength(6);
  });

  test("for ever: unreachable, after the silence that is allowed and not before", async () => {
    const { daemon, client } = await start({}, { silenceMs: 300 });
    for (let n = 0; n < 20; n++) daemon.faults.push({ type: "mute", bytes: 0 });
    const began = performance.now();
    const { frames, result, error } = await collect(client.dispatch({ runId: "r", input }));
    expect(performance.now() - began).toBeGreaterThanOrEqual(299);
    expect(frames).toEqual([]);
    expect(result).toMatchObject({ type: "unreachable", final: false });
    expect(error).toBeInstanceOf(UnreachableError);
    expect(daemon.starts).toEqual(["r#1"]);
  });

  test("after a first frame, for ever: unreachable too, with the place to go on from", async () => {
    const { daemon, client } = await start({ turn: (attempt) => attempt.text("a") }, { silenceMs: 300 });
    const run = client.dispatch({ runId: "r", input });
    for (let n = 0; n < 200; n++) daemon.faults.push({ type: "mute", bytes: 0 });
    daemon.faults.unshift(undefined);
    const { result, error } = await collect(run);
    expect(result).toMatchObject({ type: "unreachable", attempt: 1, lastSeq: 1 });
    expect(error).toBeInstanceOf(UnreachableError);
  });

  test("a daemon that gives headers and never a byte is not waited for endlessly", async () => {
    const { client } = await start({}, { silenceMs: 300 });
    expect(await client.dispatch({ input }).result()).toMatchObject({ type: "unreachable", attempt: 1, lastSeq: 0 });
  });

  test("keepalives alone keep it, however long", async () => {
    const { daemon, client } = await start({ keepaliveMs: 30 }, { silenceMs: 1200 });
    const run = client.dispatch({ runId: "r", input });
    const all = collect(run);
    await run.started();
    // Twice the silence that is allowed.
    await until(() => daemon.attempt("r").keepalives >= 80, "80 keepalives");
    daemon.attempt("r").whole("a");
    const { frames, result } = await all;
    expect(seqs(frames)).toEqual(upTo(4));
    expect(result.type).toBe("finished");
    expect(daemon.requests).toHaveLength(1);
  });

  test("the time that the consumer takes is not silence", async () => {
    const clock = new ManualClock();
    const turn = (attempt: FakeAttempt): void => void attempt.whole("a", "b");
    const { daemon, client } = await start({ turn }, { silenceMs: 400, clock });
    const run = client.dispatch({ runId: "r", input });
    for await (const _ of run.frames()) await clock.advance(500);
    expect((await run.result()).type).toBe("finished");
    expect(daemon.requests).toHaveLength(1);
  });
});

describe("a body that ends behind the keepalive that it opens with, every time", () => {
  test.each([
    ["breaks", false, "dispatch"],
    ["breaks", false, "attach"],
    ["ends", true, "dispatch"],
    ["ends", true, "attach"],
  ] as const)("%s (orderly: %p, %s): unreachable, after the silence that is allowed", async (_, orderly, how) => {
    const { daemon, client } = await start({ turn: (attempt) => attempt.text("a") }, { silenceMs: 400 });
    if (how === "attach") await client.dispatch({ runId: "r", input }).started();
    daemon.always = { type: "barren", orderly };
    const began = performance.now();
    const run = how === "attach" ? client.attach("r") : client.dispatch({ runId: "r", input });
    const { result, error } = await collect(run);
    const tookMs = performance.now() - began;
    expect(result).toMatchObject({ type: "unreachable", attempt: 1, lastSeq: 0, final: false });
    expect(error).toBeInstanceOf(UnreachableError);
    expect(tookMs).toBeGreaterThanOrEqual(399);
    expect(tookMs).toBeLessThan(3000);
    expect(daemon.starts).toEqual(["r#1"]);
  });

  test("in the middle of a run: unreachable, with the place to go on from", async () => {
    const { daemon, client } = await start({ turn: (attempt) => attempt.text("a") }, { silenceMs: 400 });
    const run = client.dispatch({ runId: "r", input });
    const all = collect(run);
    await until(() => run.lastSeq === 1);
    daemon.always = { type: "barren", orderly: false };
    daemon.cutAll();
    expect((await all).result).toMatchObject({ type: "unreachable", attempt: 1, lastSeq: 1, final: false });
  });

  test("after the outcome: it stands, and settled is tried for as long as that is allowed", async () => {
    const { daemon, client } = await start(
      { turn: (attempt) => attempt.text("a").conclude({ type: "finished" }) },
      { settledForMs: 200, silenceMs: 20_000 },
    );
    const run = client.dispatch({ runId: "r", input });
    const all = collect(run);
    await until(() => run.lastSeq === 2);
    daemon.always = { type: "barren", orderly: false };
    const began = performance.now();
    daemon.cutAll();
    const { result, error } = await all;
    expect(error).toBeUndefined();
    expect(result).toMatchObject({ type: "finished", final: true, complete: false });
    expect(performance.now() - began).toBeGreaterThanOrEqual(199);
    expect(performance.now() - began).toBeLessThan(3000);
  });

  test("is tried again ever less often", async () => {
    const { daemon, client } = await start({}, { silenceMs: 1000, retryBaseMs: 20, retryCapMs: 5000 });
    daemon.always = { type: "barren", orderly: false };
    await client.dispatch({ runId: "r", input }).result();
    // Pauses of 10 to 20, 20 to 40, 40 to 80, … ms.
    expect(daemon.requests.length).toBeLessThanOrEqual(9);
  });
});

describe("owners and attempts", () => {
  test("a second dispatch of an id follows the run; the first goes on as a reader, and neither fights", async () => {
    const { daemon, client } = await start({ turn: (attempt) => attempt.text("a") });
    const [first, second] = [client.dispatch({ runId: "r", input }), client.dispatch({ runId: "r", input })];
    const [one, two] = [collect(first), collect(second)];
    await until(() => daemon.requests.length === 3 && daemon.attempt("r").readers.size === 2, "both to read");
    daemon.attempt("r").text("b").conclude({ type: "finished" }).end();
    expect(seqs((await one).frames)).toEqual(upTo(4));
    expect(seqs((await two).frames)).toEqual(upTo(4));
    expect(daemon.starts).toEqual(["r#1"]);
    expect(daemon.requests.map(({ method }) => method)).toEqual(["POST", "POST", "GET"]);
  });

  test("a takeover starts the next attempt and ends the first as superseded", async () => {
    const { daemon, client } = await start({ turn: (attempt) => attempt.text(`attempt ${attempt.number}`) });
    const first = client.dispatch({ runId: "r", input });
    await first.started();
    const second = client.dispatch({ runId: "r", input, takeover: true });
    await second.started();
    daemon.attempt("r").whole();
    expect(await first.result()).toMatchObject({ type: "superseded", attempt: 1, final: true, complete: true });
    expect(await second.result()).toMatchObject({ type: "finished", attempt: 2 });
  });

  test("an attempt that was taken over during a cut is superseded, and its next frames are not mistaken for ours", async () => {
    const { daemon, client } = await start({ turn: (attempt) => attempt.text("a").text("b") });
    const run = client.dispatch({ runId: "r", input });
    const all = collect(run);
    await until(() => run.lastSeq === 2);
    daemon.cutAll();
    daemon.takeOver("r").text("not ours").text("not ours").text("not ours");
    const { frames, result, error } = await all;
    expect(seqs(frames)).toEqual([1, 2]);
    expect(result).toMatchObject({ type: "superseded", attempt: 1, final: true });
    expect(error).toBeInstanceOf(SupersededError);
    expect(posts(daemon).at(-1)?.body).toMatchObject({ after: 2, attempt: 1 });
  });

  test("a takeover of a run whose owner is lost reads it whole", async () => {
    const { daemon, client } = await start({ turn: (attempt) => attempt.text("a").text("b") });
    const first = client.dispatch({ runId: "r", input });
    for await (const frame of first.frames()) if (frame.seq === 2) break;
    await until(() => daemon.attempt("r").owner === undefined, "the owner to be lost");
    const second = client.dispatch({ runId: "r", input, takeover: true });
    const all = collect(second);
    daemon.attempt("r").text("c");
    await until(() => second.lastSeq === 3);
    daemon.attempt("r").conclude({ type: "finished" }).end();
    expect(seqs((await all).frames)).toEqual(upTo(5));
    expect(daemon.starts).toEqual(["r#1"]);
  });

  test("another attempt than the one that was asked for", async () => {
    const { client } = await start({ turn: (attempt) => attempt.whole() });
    await client.dispatch({ runId: "r", input }).result();
    const { result, error } = await collect(client.attach("r", { attempt: 2 }));
    expect(result).toMatchObject({ type: "superseded" });
    expect(error).toBeInstanceOf(SupersededError);
  });
});

describe("what the daemon says instead of frames", () => {
  test.each([0, 1])("404 after it had begun, with %d frames read: gone, and no second turn", async (frames) => {
    const { daemon, client } = await start({ turn: (attempt) => frames > 0 && attempt.text("a") });
    const run = client.dispatch({ runId: "r", input });
    const all = collect(run);
    await run.started();
    await until(() => run.lastSeq === frames);
    daemon.cutAll();
    daemon.forget("boot-2");
    const { result, error } = await all;
    expect(result).toMatchObject({ type: "gone", reason: "unknown_run", attempt: 1, final: false });
    expect(error).toBeInstanceOf(RunGoneError);
    expect(daemon.starts).toEqual(["r#1"]);
  });

  test("404 for a place to go on from: gone; for a reader: refused", async () => {
    const { daemon, client } = await start();
    expect(await client.dispatch({ runId: "r", input, after: 3 }).result()).toMatchObject({
      type: "gone",
      reason: "unknown_run",
    });
    const { result, error } = await collect(client.attach("r"));
    expect(result).toMatchObject({ type: "refused", status: 404, code: "unknown_run" });
    expect(error).toBeInstanceOf(RefusedError);
    expect(daemon.starts).toEqual([]);
  });

  test("410 ended: the outcome is known, the frames are not to be had", async () => {
    const { daemon, client } = await start({ turn: (attempt) => attempt.whole("a") });
    await client.dispatch({ runId: "r", input }).result();
    daemon.drop("r");
    const { frames, result, error } = await collect(client.dispatch({ runId: "r", input }));
    expect(frames).toEqual([]);
    expect(result).toMatchObject({ type: "finished", final: true, complete: false, settled: { saved: true } });
    expect(error).toBeInstanceOf(RefusedError);
  });

  test("410 ended behind the outcome's frame: nothing is missing", async () => {
    const { daemon, client } = await start({ turn: (attempt) => attempt.text("a").conclude({ type: "finished" }) });
    const run = client.dispatch({ runId: "r", input });
    const all = collect(run);
    await until(() => run.lastSeq === 2);
    await daemon.stop();
    daemon.attempt("r").end();
    daemon.drop("r");
    await daemon.listen();
    const { result, error } = await all;
    expect(error).toBeUndefined();
    expect(result).toMatchObject({ type: "finished", complete: false, settled: { saved: true } });
  });

  test("410 tombstoned at once: refused; after a cut: the rest is read, and it was cancelled", async () => {
    const { daemon, client } = await start({ turn: (attempt) => attempt.text("a") });
    await client.cancel("dead");
    expect(await client.dispatch({ runId: "dead", input }).result()).toMatchObject({
      type: "refused",
      status: 410,
      code: "tombstoned",
    });
    const run = client.dispatch({ runId: "r", input });
    const all = collect(run);
    await until(() => run.lastSeq === 1);
    await daemon.stop();
    daemon.tombstones.add("r");
    daemon.attempt("r").conclude(failed("cancelled", "somebody asked")).end({ saved: false });
    await daemon.listen();
    const { frames, result } = await all;
    expect(seqs(frames)).toEqual(upTo(3));
    expect(result).toMatchObject({ type: "cancelled", complete: true });
  });

  test("cancelled by this side before the dispatch arrived: cancelled, and nothing is thrown", async () => {
    const { daemon, client } = await start({ turn: (attempt) => attempt.text("a") });
    daemon.tombstones.add("r");
    const run = client.dispatch({ runId: "r", input });
    const cancelled = run.cancel();
    const { result, error } = await collect(run);
    await cancelled;
    expect(error).toBeUndefined();
    expect(result).toMatchObject({ type: "cancelled", final: true });
  });

  test("410 tombstoned and no memory of it: cancelled", async () => {
    const { daemon, client } = await start({ turn: (attempt) => attempt.text("a") });
    const run = client.dispatch({ runId: "r", input });
    const all = collect(run);
    await until(() => run.lastSeq === 1);
    await daemon.stop();
    daemon.tombstones.add("r");
    daemon.forget("boot-2");
    await daemon.listen();
    expect((await all).result).toMatchObject({ type: "cancelled", final: true });
  });

  test.each(["dispatch", "attach"] as const)("204 to a %s behind the end: the outcome is asked for", async (how) => {
    const { client } = await start({ turn: (attempt) => attempt.whole("a") });
    await client.dispatch({ runId: "r", input }).result();
    const run = how === "attach" ? client.attach("r", { after: 4 }) : client.dispatch({ runId: "r", input, after: 4 });
    const { frames, result, error } = await collect(run);
    expect(error).toBeUndefined();
    expect(frames).toEqual([]);
    expect(result).toMatchObject({ type: "finished", final: true, settled: { saved: true } });
  });

  test("a reader that begins behind the outcome's frame still learns it", async () => {
    const { client } = await start({ turn: (attempt) => attempt.whole("a") });
    await client.dispatch({ runId: "r", input }).result();
    const { frames, result } = await collect(client.attach("r", { after: 3 }));
    expect(seqs(frames)).toEqual([4]);
    expect(result).toMatchObject({ type: "finished", complete: true });
  });

  test("409 bad_after and run_conflict, 401: refused", async () => {
    const { daemon, client } = await start({ turn: (attempt) => attempt.text("a") });
    const run = client.dispatch({ runId: "r", input });
    await run.started();
    expect(await client.attach("r", { after: 9 }).result()).toMatchObject({ type: "refused", code: "bad_after" });
    const other = { ...input, threadId: "another" };
    expect(await client.dispatch({ runId: "r", input: other }).result()).toMatchObject({ code: "run_conflict" });
    const stranger = createClient({ url: daemon.url, token: "wrong" });
    const { result, error } = await collect(stranger.dispatch({ input }));
    expect(result).toMatchObject({ type: "refused", status: 401, code: "unauthorized", final: false });
    expect(error).toMatchObject({ name: "RefusedError", status: 401, code: "unauthorized" });
    run.detach();
  });

  test("503 draining: refused with the time to wait, or asked again as often as the caller chose", async () => {
    const { daemon, client } = await start({ turn: (attempt) => attempt.whole() });
    daemon.draining = true;
    expect(await client.dispatch({ input }).result()).toMatchObject({ code: "draining", retryAfterMs: 2000 });
    daemon.draining = false;
    const answer = {
      type: "answer",
      status: 503,
      headers: { "Retry-After": "0" },
      body: `{"error":"draining"}`,
    } as const;
    const patient = createClient({ url: daemon.url, token: daemon.token, ...QUICK, startRetries: 2 });
    daemon.faults.push(answer, answer);
    expect((await patient.dispatch({ input }).result()).type).toBe("finished");
    daemon.faults.push(answer, answer, answer);
    expect(await patient.dispatch({ input }).result()).toMatchObject({ type: "refused", code: "draining" });
  });

  test("a proxy that cannot reach the daemon is a cut", async () => {
    const { daemon, client } = await start({ turn: (attempt) => attempt.whole() });
    for (const status of [502, 503, 504]) daemon.faults.push({ type: "answer", status, body: "<html>" });
    expect((await client.dispatch({ input }).result()).type).toBe("finished");
  });

  test("somebody else who answers 200 is not believed", async () => {
    const { daemon, client } = await start();
    for (let n = 0; n < 5; n++) daemon.faults.push({ type: "answer", status: 200, body: "<html>welcome</html>" });
    const result = await client.dispatch({ input }).result();
    expect(result).toMatchObject({ type: "unreachable" });
    expect((result as { cause?: unknown }).cause).toBeInstanceOf(ProtocolError);
    expect(daemon.requests).toHaveLength(3);
  });

  test("a redirect is not followed", async () => {
    const { daemon, client } = await start();
    daemon.faults.push({ type: "answer", status: 307, headers: { Location: `${daemon.url}/elsewhere` } });
    expect(await client.dispatch({ input }).result()).toMatchObject({ type: "refused", status: 307, code: "" });
    expect(daemon.requests).toHaveLength(1);
  });

  test("a gap in seq is not handed on: the frames in between are fetched", async () => {
    const { daemon, client } = await start({ turn: (attempt) => attempt.whole("a", "b") });
    await client.dispatch({ runId: "r", input }).result();
    const lines = daemon.attempt("r").lines;
    const body = [lines[0], "\n", lines[0], lines[2]].join("");
    daemon.faults.push({ type: "answer", status: 200, headers: { "X-Run-Attempt": "1" }, body });
    const { frames, error } = await collect(client.attach("r"));
    expect(error).toBeUndefined();
    expect(seqs(frames)).toEqual(upTo(5));
    expect(daemon.requests.at(-1)?.query.get("after")).toBe("1");
  });

  test("frames that the pod's disk has lost are asked for once more, and then passed over", async () => {
    const { daemon, client } = await start({ turn: (attempt) => attempt.whole("a", "b") });
    await client.dispatch({ runId: "r", input }).result();
    const { lines } = daemon.attempt("r");
    // As after a restart of a daemon whose disk was full: the ending is told again at the seqs that it was told with.
    lines.splice(2, 1);
    const { frames, result, error } = await collect(client.attach("r"));
    expect(error).toBeUndefined();
    expect(seqs(frames)).toEqual([1, 2, 4, 5]);
    expect(result).toMatchObject({ type: "finished", complete: true, final: true });
  });

  test("a line that is no frame is a fault, three of them the end", async () => {
    const { daemon, client } = await start();
    const answer = { type: "answer", status: 200, headers: { "X-Run-Attempt": "1" }, body: "[1]\n" } as const;
    daemon.faults.push(answer, answer, answer);
    expect(await client.dispatch({ input }).result()).toMatchObject({ type: "unreachable" });
  });
});

describe("a daemon that is not there", () => {
  test("is tried for as long as the caller wants", async () => {
    const { daemon } = await start();
    await daemon.stop();
    const began = performance.now();
    const hasty = createClient({ url: daemon.url, token: "t", connectForMs: 0 });
    expect(await hasty.dispatch({ input }).result()).toMatchObject({ type: "unreachable", lastSeq: 0 });
    expect(performance.now() - began).toBeLessThan(2000);
    const { error } = await collect(createClient({ url: daemon.url, token: "t", connectForMs: 0 }).attach("r"));
    expect(error).toBeInstanceOf(UnreachableError);
  });

  test("and comes: it is sent the input as it was when it was dispatched", async () => {
    let tries = 0;
    const counting: Fetch = (url, init) => {
      tries++;
      return fetch(url, init);
    };
    const { daemon, client } = await start({ turn: (attempt) => attempt.whole() }, { fetch: counting });
    await daemon.stop();
    const mine: Record<string, unknown> & typeof input = { ...input, env: { A: "a" } };
    const run = client.dispatch({ input: mine });
    mine.env = { A: "of the next turn" };
    await until(() => tries > 1, "a second try");
    await daemon.listen();
    expect((await run.result()).type).toBe("finished");
    expect(posts(daemon).map(({ body }) => body.input)).toEqual([{ ...input, env: { A: "a" } }]);
  });

  test.each([["circular"], ["a bigint"]])("is not asked for what is no JSON: %s", async (what) => {
    const { daemon, client } = await start();
    const mine: Record<string, unknown> & typeof input = { ...input };
    mine.odd = what === "circular" ? mine : 1n;
    expect(() => client.dispatch({ input: mine })).toThrow(TypeError);
    expect(daemon.requests).toEqual([]);
  });

  test("and comes: the turn starts, also as the takeover that was asked for", async () => {
    const { daemon, client } = await start({ turn: (attempt) => attempt.whole() });
    await daemon.stop();
    const run = client.dispatch({ input, takeover: true });
    await Bun.sleep(20);
    await daemon.listen();
    expect((await run.result()).type).toBe("finished");
    expect(posts(daemon).map(({ body }) => body.after)).toEqual([undefined]);
  });
});

describe("a reader that goes away", () => {
  test("by break: the connection closes, nothing is cancelled", async () => {
    const { daemon, client } = await start({ turn: (attempt) => attempt.text("a").text("b") });
    const run = client.dispatch({ runId: "r", input });
    for await (const chunk of run) {
      expect(chunk).toMatchObject({ delta: "a" });
      break;
    }
    await until(() => daemon.attempt("r").readers.size === 0, "the connection to close");
    expect(await run.result()).toMatchObject({ type: "detached", final: false, lastSeq: 1, attempt: 1 });
    expect(daemon.requests.map(({ method }) => method)).toEqual(["POST"]);
    expect(daemon.attempt("r").outcome).toBeUndefined();
  });

  test("by signal, while it waits: the iteration throws the reason", async () => {
    const { daemon, client } = await start({ turn: (attempt) => attempt.text("a") });
    const controller = new AbortController();
    const run = client.dispatch({ runId: "r", input, signal: controller.signal });
    const all = collect(run);
    await until(() => run.lastSeq === 1);
    controller.abort(new Error("enough"));
    const { frames, result, error } = await all;
    expect(seqs(frames)).toEqual([1]);
    expect(error).toEqual(new Error("enough"));
    expect(result.type).toBe("detached");
    await until(() => daemon.attempt("r").readers.size === 0, "the connection to close");
  });

  test("between two frames: the iteration throws the signal's reason, or ends", async () => {
    const { client } = await start({ turn: (attempt) => attempt.text("a").text("b") });
    for (const reason of [new Error("enough"), undefined]) {
      const controller = new AbortController();
      const run = client.dispatch({ input, signal: controller.signal });
      let frames = 0;
      const read = async (): Promise<void> => {
        for await (const _ of run.frames()) {
          frames++;
          if (reason) controller.abort(reason);
          else run.detach();
        }
      };
      expect(await read().catch((thrown: unknown) => thrown)).toBe(reason);
      expect(frames).toBe(1);
      expect((await run.result()).type).toBe("detached");
    }
  });

  test("before it began", async () => {
    const { daemon, client } = await start();
    const run = client.dispatch({ input, signal: AbortSignal.abort(new Error("never mind")) });
    expect((await run.result()).type).toBe("detached");
    await expect(run.started()).rejects.toThrow("detached");
    expect(daemon.starts).toEqual([]);
  });

  test("without ever having read", async () => {
    const { daemon, client } = await start({ turn: (attempt) => attempt.text("a") });
    const run = client.dispatch({ runId: "r", input });
    await run.started();
    run.detach();
    expect((await run.result()).type).toBe("detached");
    await until(() => daemon.attempt("r").readers.size === 0, "the connection to close");
  });

  test("after the outcome: the outcome stands", async () => {
    const { client } = await start({ turn: (attempt) => attempt.conclude({ type: "finished" }) });
    const run = client.dispatch({ input });
    for await (const frame of run.frames()) if (frame.outcome) break;
    expect(await run.result()).toMatchObject({ type: "finished", final: true, complete: false });
  });

  test("a run has one reader: a second one is told so", async () => {
    const { client } = await start({ turn: (attempt) => attempt.whole() });
    const run = client.dispatch({ input });
    await run.result();
    expect(() => run.frames()).toThrow(TypeError);
    expect(() => run[Symbol.asyncIterator]()).toThrow("one reader");
  });

  test("cancel ends the run, and its frames come to their end", async () => {
    const { client } = await start({ turn: (attempt) => attempt.text("a") });
    const run = client.dispatch({ input });
    await run.started();
    await run.cancel();
    expect(await run.result()).toMatchObject({ type: "cancelled", complete: true });
  });
});
