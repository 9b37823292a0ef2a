/** The client on the daemon itself: its rows of the table, its deaths, and connections that are cut. */
import { describe, expect, test } from "bun:test";
import { writeFile } from "node:fs/promises";
import { readUIMessageStream } from "ai";
import { runCli } from "../../src/cli/index.ts";
import { type Client, createClient, type Frame, ProofError, type Run } from "../../src/client/index.ts";
import { MemoryIo } from "../cli/memory-io.ts";
import { until } from "../support/fake-daemon.ts";
import { CuttingProxy, RealDaemon, type Script } from "./real-daemon.ts";

const QUICK = { retryBaseMs: 5, retryCapMs: 200, silenceMs: 20_000 };
const TIMEOUT_MS = 60_000;

function clientOf(daemon: RealDaemon, url = daemon.url): Client {
  return createClient({ url, token: daemon.token, ...QUICK });
}

function inputOf(script: Script, threadId = "thread") {
  return { threadId, userMessage: JSON.stringify(script), workspace: { cwd: null } };
}

async function collect(run: Run): Promise<Frame[]> {
  const frames: Frame[] = [];
  for await (const frame of run.frames()) frames.push(frame);
  return frames;
}

const seqs = (frames: readonly Frame[]): number[] => frames.map(({ seq }) => seq);
const upTo = (n: number): number[] => Array.from({ length: n }, (_, index) => index + 1);
const text = (frames: readonly Frame[]): string =>
  frames
    .flatMap(({ chunks }) => chunks)
    .map(({ delta }) => (typeof delta === "string" ? delta : ""))
    .join("");

describe("on the daemon itself", () => {
  test(
    "a turn is read whole, and what is said of it agrees",
    async () => {
      await using daemon = await RealDaemon.start();
      const client = clientOf(daemon);
      const run = client.dispatch({ runId: "a/b", input: inputOf({ texts: ["one ", "é\u2028🙂"] }) });
      const frames = await collect(run);
      expect(text(frames)).toBe("one é\u2028🙂");
      expect(seqs(frames)).toEqual(upTo(frames.length));
      const result = await run.result();
      expect(result).toMatchObject({ type: "finished", attempt: 1, final: true, complete: true });
      expect(result.preparation).toBeDefined();
      expect(result.settled).toBeDefined();
      expect(await client.run("a/b")).toMatchObject({ runId: "a/b", state: "ended", lastSeq: frames.length });
      expect(await client.runs()).toHaveLength(1);
      expect(seqs(await collect(client.attach("a/b", { after: 2 })))).toEqual(upTo(frames.length).slice(2));
      expect(seqs(await collect(client.dispatch({ runId: "a/b", input: inputOf({ texts: [] }) })))).toEqual(
        seqs(frames),
      );
      // Behind the end: 204, and the outcome is asked for.
      const nothing = client.attach("a/b", { after: frames.length });
      expect(await nothing.result()).toMatchObject({ type: "finished", final: true });
      expect(await daemon.starts()).toEqual(["a/b#1"]);

      let last: { parts?: unknown } = {};
      for await (const message of readUIMessageStream({ stream: client.attach("a/b").stream() })) last = message;
      expect(last.parts).toMatchObject([
        { type: "step-start" },
        { type: "text", text: "one é\u2028🙂", state: "done" },
      ]);
    },
    TIMEOUT_MS,
  );

  test(
    "health is proven, a new token taken over, the rest answered",
    async () => {
      await using daemon = await RealDaemon.start();
      const client = clientOf(daemon);
      const health = await client.health({ nonce: "some nonce" });
      expect(health).toMatchObject({ draining: false, runs: 0 });
      await expect(createClient({ url: daemon.url, token: "x" }).health({ nonce: "n" })).rejects.toBeInstanceOf(
        ProofError,
      );
      expect((await client.idle()).idleMs).toBeGreaterThanOrEqual(0);
      expect(await client.metrics()).toContain("# TYPE");
      await client.setConfig({ token: "another-token-of-the-daemon", env: { A: "b" } });
      expect(await client.runs()).toEqual([]);
      await expect(client.run("nobody")).rejects.toMatchObject({ status: 404, code: "unknown_run" });
      expect(
        await createClient({ url: daemon.url, token: "x" })
          .dispatch({ input: inputOf({ texts: [] }) })
          .result(),
      ).toMatchObject({
        type: "refused",
        status: 401,
      });
      expect(await client.dispatch({ input: { threadId: "t" } }).result()).toMatchObject({
        type: "refused",
        code: "bad_input",
      });
    },
    TIMEOUT_MS,
  );

  test(
    "over connections that are cut, at bytes all over the answer: each frame once, and the turn runs once",
    async () => {
      await using daemon = await RealDaemon.start();
      const texts = Array.from({ length: 40 }, (_, n) => `${n} é\u2028🙂 `);
      // Whole answer: about 5 kB. Every connection ends after 1, 38, 75, … bytes; later ones get further.
      let budget = 0;
      let cuts = 0;
      await using proxy = new CuttingProxy(daemon.port, () => budget + 300 * cuts++);
      const client = clientOf(daemon, await proxy.listen());
      const runIds: string[] = [];
      for (budget = 1; budget < 2500; budget += 37) {
        cuts = 0;
        const runId = `r${budget}`;
        runIds.push(`${runId}#1`);
        const run = client.dispatch({ runId, input: inputOf({ texts }, runId) });
        const frames = await collect(run);
        expect({ budget, seqs: seqs(frames), text: text(frames) }).toEqual({
          budget,
          seqs: upTo(frames.length),
          text: texts.join(""),
        });
        expect(await run.result()).toMatchObject({ type: "finished", complete: true });
        expect(cuts).toBeGreaterThan(1);
      }
      expect((await daemon.starts()).sort()).toEqual(runIds.sort());
    },
    TIMEOUT_MS,
  );

  test(
    "keepalives keep a quiet run, for longer than the silence that is allowed",
    async () => {
      await using daemon = await RealDaemon.start({ KEEPALIVE_MS: "100" });
      const client = createClient({ url: daemon.url, token: daemon.token, silenceMs: 1500 });
      const go = daemon.path("go");
      const run = client.dispatch({ runId: "r", input: inputOf({ texts: ["a"], until: go, after: ["b"] }) });
      const all = collect(run);
      const began = performance.now();
      await until(() => run.lastSeq >= 3);
      // The one thing that only time can show.
      await until(() => performance.now() - began > 3500, "three and a half seconds");
      await writeFile(go, "");
      expect(text(await all)).toBe("ab");
      expect(await run.result()).toMatchObject({ type: "finished" });
    },
    TIMEOUT_MS,
  );

  test(
    "a second dispatch follows, the first goes on as a reader; a takeover supersedes both",
    async () => {
      await using daemon = await RealDaemon.start();
      const client = clientOf(daemon);
      const input = inputOf({ texts: ["a"], until: daemon.path("go") });
      const first = client.dispatch({ runId: "r", input });
      const one = collect(first);
      await until(() => first.lastSeq >= 3);
      const second = client.dispatch({ runId: "r", input });
      const two = collect(second);
      await until(() => second.lastSeq === first.lastSeq);
      await until(async () => (await client.run("r")).readers === 2, "the first to be back as a reader");
      expect(await daemon.starts()).toEqual(["r#1"]);
      const third = client.dispatch({ runId: "r", input, takeover: true });
      const three = collect(third);
      await writeFile(daemon.path("go"), "");
      expect(seqs(await one)).toEqual(seqs(await two));
      for (const run of [first, second]) {
        expect(await run.result()).toMatchObject({ type: "superseded", attempt: 1, complete: true });
      }
      await three;
      expect(await third.result()).toMatchObject({ type: "finished", attempt: 2 });
      expect(await daemon.starts()).toEqual(["r#1", "r#2"]);
      expect(await client.attach("r", { attempt: 1 }).result()).toMatchObject({ type: "superseded" });
    },
    TIMEOUT_MS,
  );

  test(
    "cancelled, refused for a minute, and still readable",
    async () => {
      await using daemon = await RealDaemon.start();
      const client = clientOf(daemon);
      const input = inputOf({ texts: ["a"], until: daemon.path("never") });
      const run = client.dispatch({ runId: "r", input });
      const all = collect(run);
      await until(() => run.lastSeq >= 3);
      await run.cancel({ wait: true });
      await all;
      expect(await run.result()).toMatchObject({ type: "cancelled", final: true, complete: true });
      expect(await client.dispatch({ runId: "r", input }).result()).toMatchObject({
        type: "refused",
        code: "tombstoned",
      });
      expect(await client.attach("r").result()).toMatchObject({ type: "cancelled", complete: true });
      // A dispatch that goes on where it was is refused, reads the rest instead, and misses nothing.
      const on = client.dispatch({ runId: "r", input, after: 2, attempt: 1 });
      expect(seqs(await collect(on))[0]).toBe(3);
      expect(await on.result()).toMatchObject({ type: "cancelled", complete: true });
    },
    TIMEOUT_MS,
  );

  test(
    "a harness that dies",
    async () => {
      await using daemon = await RealDaemon.start();
      const run = clientOf(daemon).dispatch({ input: inputOf({ texts: ["a"], exit: 3 }) });
      expect(await run.result()).toMatchObject({ type: "crashed", code: "harness_crashed", final: true });
    },
    TIMEOUT_MS,
  );

  test(
    "SIGTERM: gone, with the last frame",
    async () => {
      await using daemon = await RealDaemon.start();
      const run = clientOf(daemon).dispatch({
        runId: "r",
        input: inputOf({ texts: ["a"], until: daemon.path("never") }),
      });
      const all = collect(run);
      await until(() => run.lastSeq >= 3);
      await daemon.stop();
      await all;
      expect(await run.result()).toMatchObject({ type: "gone", reason: "shutdown", final: true, complete: true });
    },
    TIMEOUT_MS,
  );

  test(
    "kill -9 and a restart on the same state: gone, and never run twice",
    async () => {
      await using daemon = await RealDaemon.start();
      const run = clientOf(daemon).dispatch({
        runId: "r",
        input: inputOf({ texts: ["a"], until: daemon.path("never") }),
      });
      const all = collect(run);
      await until(() => run.lastSeq >= 3);
      const bootId = (await run.started()).bootId;
      await daemon.stop("SIGKILL");
      await daemon.listen();
      const frames = await all;
      expect(seqs(frames)).toEqual(upTo(frames.length));
      const result = await run.result();
      expect(result).toMatchObject({ type: "gone", reason: "restarted", final: true, complete: true });
      expect(result.bootId).not.toBe(bootId);
      expect(await daemon.starts()).toEqual(["r#1"]);
    },
    TIMEOUT_MS,
  );

  test(
    "kill -9 and another pod: gone, and never run twice",
    async () => {
      await using daemon = await RealDaemon.start();
      const run = clientOf(daemon).dispatch({
        runId: "r",
        input: inputOf({ texts: ["a"], until: daemon.path("never") }),
      });
      const all = collect(run);
      await until(() => run.lastSeq >= 3);
      await daemon.stop("SIGKILL");
      await daemon.listen("another-state");
      await expect(all).rejects.toMatchObject({ name: "RunGoneError" });
      expect(await run.result()).toMatchObject({ type: "gone", reason: "unknown_run", final: false });
      expect(await daemon.starts()).toEqual(["r#1"]);
    },
    TIMEOUT_MS,
  );

  test(
    "what was dropped keeps its outcome",
    async () => {
      await using daemon = await RealDaemon.start({ RUN_RETENTION_MS: "1" });
      const client = clientOf(daemon);
      const input = inputOf({ texts: ["a"] });
      await client.dispatch({ runId: "r", input }).result();
      const isDropped = async (): Promise<boolean> => {
        const result = await client.attach("r").result();
        return !result.complete;
      };
      await until(isDropped, "the run to be dropped", 30_000);
      const run = client.dispatch({ runId: "r", input });
      expect(await run.result()).toMatchObject({ type: "finished", final: true, complete: false });
      expect(await daemon.starts()).toEqual(["r#1"]);
    },
    TIMEOUT_MS,
  );
});

describe("the commands on the daemon itself", () => {
  test(
    "run, attach, runs, cancel, probe",
    async () => {
      await using daemon = await RealDaemon.start();
      const env = { DISPATCHD_URL: daemon.url, DISPATCHD_TOKEN: daemon.token, PROXY_PORT: String(daemon.port) };
      const cli = async (...argv: string[]) => {
        const io = new MemoryIo({ env });
        return { code: await runCli(argv, io), out: io.out, err: io.err };
      };
      const script = JSON.stringify({ texts: ["hello ", "you"] });
      const run = await cli("run", "--cwd", "null", "--run-id", "r", "--thread", "t", script);
      expect(run).toMatchObject({ code: 0, out: "hello you\n" });
      expect(run.err).toMatch(/^run r · thread t\n(.*\n)*finished · /);
      expect(await cli("attach", "r")).toMatchObject({ code: 0, out: "hello you\n" });
      expect((await cli("runs")).out).toMatch(/^RUN +THREAD .*\nr +t +ended +finished +1 /);
      expect(await cli("probe")).toEqual({ code: 0, out: "", err: "" });
      expect((await cli("run", "--json", "--run-id", "r", "--thread", "t", "x")).out.split("\n")[0]).toStartWith(
        '{"seq":1,',
      );
      expect(await cli("cancel", "r", "--wait")).toMatchObject({ code: 0 });
      expect((await cli("run", "--run-id", "r", "--thread", "t", "x")).code).toBe(5);
    },
    TIMEOUT_MS,
  );
});
