/** The commands on real streams and signals. */
import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { DiskPod, Volume } from "../session/pod-disk.ts";
import { type FakeDaemon, startFakeDaemon, until } from "../support/fake-daemon.ts";

const PROGRAM = join(import.meta.dir, "../../src/main.ts");
let daemon: FakeDaemon;
beforeEach(async () => {
  daemon = await startFakeDaemon({ turn: (attempt) => attempt.text("working") });
});
afterEach(() => daemon.stop());

function command(argv: readonly string[], env: Record<string, string> = {}): string[] {
  const vars = { DISPATCHD_URL: daemon.url, DISPATCHD_TOKEN: daemon.token, ...env };
  return [
    "env",
    ...Object.entries(vars).map(([name, value]) => `${name}=${value}`),
    process.execPath,
    PROGRAM,
    ...argv,
  ];
}

function start(argv: readonly string[], env: Record<string, string> = {}) {
  return Bun.spawn(command(argv, env), { stdout: "pipe", stderr: "pipe" });
}

/** What a stream has given so far. */
function watch(stream: ReadableStream<Uint8Array>): { text: string; ended: Promise<void> } {
  const watched = { text: "", ended: Promise.resolve() };
  const read = async (): Promise<void> => {
    const decoder = new TextDecoder();
    for await (const piece of stream) watched.text += decoder.decode(piece, { stream: true });
  };
  watched.ended = read();
  return watched;
}

describe("a command as a process", () => {
  test("writes all of a large output to a pipe before it ends", async () => {
    const child = start(["run", "--json", "--run-id", "r", "hello"]);
    const out = child.stdout.text();
    await until(() => daemon.runs.size === 1);
    const attempt = daemon.attempt("r");
    for (let n = 0; n < 3000; n++) attempt.text("x".repeat(1000));
    attempt.conclude({ type: "finished" }).end();
    const lines = (await out).split("\n");
    expect(await child.exited).toBe(0);
    expect(lines).toHaveLength(3004);
    expect(JSON.parse(lines[3002] ?? "")).toMatchObject({ seq: 3003, done: true });
  });

  test("an exported transcript has every byte that was stored, whatever they are", async () => {
    await using volume = await Volume.create();
    await using pod = await DiskPod.create(volume);
    const transcript = Buffer.from("\xef\xbb\xbfa mark of its encoding, and no text: \xff\xfe \xc3\n", "latin1");
    await pod.append("projects/p/s1.jsonl", transcript);
    await pod.turn("thread", "");
    const child = start(["sessions", "export", "thread", "--store", join(volume.home, "dispatchd-sessions")]);
    const out = Buffer.from(await child.stdout.bytes());
    expect([await child.exited, out.toString("hex")]).toEqual([0, transcript.toString("hex")]);
  });

  test("ends when nobody reads it any more, and leaves the run alone", async () => {
    const shell = `${command(["run", "--json", "--run-id", "r", "hello"])
      .map((word) => `'${word}'`)
      .join(" ")} | head -n 1 >&2; echo "\${PIPESTATUS[0]}"`;
    const child = Bun.spawn(["bash", "-c", shell], { stdout: "pipe", stderr: "pipe" });
    await until(() => daemon.runs.get("r")?.readers.size === 1, "the reader");
    const more = setInterval(() => daemon.attempt("r").text("more"), 10);
    const out = await child.stdout.text();
    clearInterval(more);
    expect(out).toBe("141\n");
    expect(daemon.tombstones.size).toBe(0);
    await until(() => daemon.attempt("r").readers.size === 0, "the connection to close");
  });

  test("SIGINT cancels, a second one leaves", async () => {
    const child = start(["run", "--run-id", "r", "hello"]);
    const out = watch(child.stdout);
    const err = child.stderr.text();
    await until(() => out.text === "working", "the first text");
    child.kill("SIGINT");
    expect(await child.exited).toBe(3);
    await out.ended;
    expect(out.text).toBe("working\n");
    expect(await err).toContain("cancelling (Ctrl-C again leaves at once)\ncancelled: ");

    const second = start(["run", "--run-id", "s", "hello"]);
    const shown = watch(second.stdout);
    await until(() => shown.text === "working", "the first text");
    daemon.faults.push({ type: "lose" });
    const seen = daemon.requests.length;
    second.kill("SIGINT");
    await until(() => daemon.requests.length > seen, "the cancel");
    second.kill("SIGINT");
    expect(await second.exited).toBe(130);
  });

  test("a proxy of the environment is not used for this machine", async () => {
    const env = { HTTP_PROXY: "http://127.0.0.1:1", http_proxy: "http://127.0.0.1:1" };
    for (const argv of [["runs"], ["probe", "--port", new URL(daemon.url).port]]) {
      const child = start(argv, env);
      expect({ argv, err: await child.stderr.text(), code: await child.exited }).toMatchObject({ argv, code: 0 });
    }
    const named = start(["runs", "--url", daemon.url.replace("127.0.0.1", "localhost")], {
      ...env,
      NO_PROXY: "example.com",
    });
    expect(await named.exited).toBe(0);
  });

  test("reads the prompt and the log from stdin", async () => {
    const run = Bun.spawn(command(["run", "-", "--run-id", "r"]), {
      stdin: Buffer.from("from stdin\n"),
      stdout: "ignore",
      stderr: "ignore",
    });
    await until(() => daemon.runs.size === 1);
    expect(daemon.attempt("r").input).toMatchObject({ userMessage: { parts: [{ type: "text", text: "from stdin" }] } });
    daemon.attempt("r").conclude({ type: "finished" }).end();
    expect(await run.exited).toBe(0);

    const record = JSON.stringify({ time: "2026-01-02T03:04:05.000Z", level: "info", event: "é", n: 1 });
    const logs = Bun.spawn(command(["logs"]), { stdin: Buffer.from(`${record}\n`.repeat(20_000)), stdout: "pipe" });
    const lines = (await logs.stdout.text()).split("\n");
    expect(await logs.exited).toBe(0);
    expect(lines).toHaveLength(20_001);
    expect(lines[19_999]).toBe("2026-01-02 03:04:05.000 INFO  é n=1");
  });
});
