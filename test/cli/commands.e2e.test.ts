/** The commands beside `run`, and how a command is found. */
import { afterEach, describe, expect, test } from "bun:test";
import { CLI_COMMANDS, type CommandTable, runCli } from "../../src/cli/index.ts";
import { type FakeDaemon, failed, startFakeDaemon, until } from "../support/fake-daemon.ts";
import { MemoryIo } from "./memory-io.ts";

const open: FakeDaemon[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((daemon) => daemon.stop()));
});

async function start() {
  const daemon = await startFakeDaemon({ turn: (attempt) => attempt.text("a") });
  open.push(daemon);
  return { daemon, io: new MemoryIo({ env: { DISPATCHD_URL: daemon.url, DISPATCHD_TOKEN: daemon.token } }) };
}

describe("cancel and runs", () => {
  test("cancel answers at once, or waits", async () => {
    const { daemon, io } = await start();
    expect(await runCli(["cancel", "r"], io)).toBe(0);
    expect(await runCli(["cancel", "r", "--wait"], io)).toBe(0);
    expect(io.out).toBe("cancelled\nended\n");
    expect(daemon.requests.map(({ method, query }) => [method, query.get("wait")])).toEqual([
      ["DELETE", null],
      ["DELETE", "1"],
    ]);
  });

  test("runs are a table, or lines of JSON", async () => {
    const { daemon, io } = await start();
    expect(await runCli(["runs"], io)).toBe(0);
    expect(io.terminal).toBe("no runs\n");
    const runs = ["first", "se\u001b[31mcond"].map((id) =>
      runCli(["run", "hello", "--thread", `t-${id}`, "--run-id", id], io),
    );
    await until(() => daemon.runs.size === 2 && io.out === "aa");
    daemon.attempt("first").conclude(failed("turn_failed", "m")).end();
    const list = new MemoryIo({ env: io.env });
    expect(await runCli(["runs"], list)).toBe(0);
    expect(list.out).toBe(
      [
        "RUN     THREAD    STATE    OUTCOME      ATTEMPT  SEQ  READERS  STARTED",
        "second  t-second  running  -            1        1    1        2026-01-02T03:04:05.000Z",
        "first   t-first   ended    turn_failed  1        3    0        2026-01-02T03:04:05.000Z",
        "",
      ].join("\n"),
    );
    const json = new MemoryIo({ env: io.env });
    expect(await runCli(["runs", "--json"], json)).toBe(0);
    expect(
      json.out
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line).attempt),
    ).toEqual([1, 1]);
    for (const attempt of daemon.runs.values()) if (!attempt.ended) attempt.conclude({ type: "finished" }).end();
    expect(await Promise.all(runs)).toEqual([1, 0]);
  });

  test("what the daemon refuses, and a daemon that is not there", async () => {
    const { daemon, io } = await start();
    daemon.token = "rotated";
    expect(await runCli(["runs"], io)).toBe(5);
    expect(io.err).toBe("dispatchd runs: refused with 401 unauthorized\n");
    await daemon.stop();
    expect(await runCli(["cancel", "r"], io)).toBe(4);
    await daemon.listen();
  });
});

describe("probe", () => {
  const probe = async (argv: string[], env: Record<string, string> = {}) => {
    const io = new MemoryIo({ env });
    const code = await runCli(["probe", ...argv], io);
    return { code, err: io.err, out: io.out };
  };

  test("is content with a 200, and says nothing", async () => {
    const { daemon } = await start();
    const { port } = new URL(daemon.url);
    expect(await probe([], { PROXY_PORT: port, DAEMON_HOST: "::" })).toEqual({ code: 0, err: "", out: "" });
    expect((await probe(["--port", port], { PROXY_PORT: "1" })).code).toBe(0);
    expect(daemon.requests.every(({ headers }) => headers.authorization === undefined)).toBe(true);
  });

  test("says what is wrong", async () => {
    const { daemon } = await start();
    const { port } = new URL(daemon.url);
    daemon.faults.push({ type: "answer", status: 503 });
    expect(await probe(["--port", port])).toMatchObject({ code: 1, err: "dispatchd probe: /health answered 503\n" });
    daemon.faults.push({ type: "lose" });
    expect(await probe(["--port", port])).toMatchObject({ code: 1 });
    daemon.faults.push({ type: "cut", bytes: 5 });
    expect((await probe(["--port", port])).err).toBe("dispatchd probe: the connection was closed without an answer\n");
    await daemon.stop();
    expect((await probe(["--port", port])).code).toBe(1);
    await daemon.listen();
  });

  test("waits no longer than it was told", async () => {
    const { daemon } = await start();
    const { port } = new URL(daemon.url);
    daemon.faults.push({ type: "mute", bytes: 3 }, { type: "mute", bytes: 0 });
    const began = performance.now();
    expect((await probe(["--port", port, "--timeout", "50"])).err).toBe("dispatchd probe: no answer within 50 ms\n");
    expect(performance.now() - began).toBeLessThan(400);
    expect((await probe(["--port", port])).err).toBe("dispatchd probe: no answer within 500 ms\n");
    expect((await probe(["--timeout", "0"])).code).toBe(2);
  });
});

describe("logs", () => {
  const LINES = [
    '{"time":"2026-01-02T03:04:05.678Z","level":"info","event":"dispatch received","run":"r1","bytes":12}',
    '{"time":"2026-01-02T03:04:06.000Z","level":"debug","event":"dispatch frame","run":"r2","seq":1}',
    '{"time":"2026-01-02T03:04:07.000Z","level":"error","event":"request failed","reason":"a b","stack":"Error: x\\n  at y"}',
    "2026-01-02T03:04:08Z plain \u001b[31mtext\u001b[0m",
    '[pod/x] {"time":"2026-01-02T03:04:09.000Z","level":"warn","event":"odd \u009b31m","o":{"a":[1]},"e":"","s":"\\u001b[2J","n":null}',
    '{"no":"event"}',
    "{broken",
    "",
  ].join("\n");

  test("are made readable", async () => {
    const io = new MemoryIo({ stdin: LINES });
    expect(await runCli(["logs"], io)).toBe(0);
    expect(io.out).toBe(await Bun.file(`${import.meta.dir}/golden/logs.txt`).text());
  });

  test("come whole out of any pieces, also without a last newline", async () => {
    const whole = new MemoryIo({ stdin: LINES });
    await runCli(["logs"], whole);
    const bytes = Buffer.from(LINES.trimEnd());
    const pieces = new MemoryIo({ stdin: Array.from(bytes, (_, at) => bytes.subarray(at, at + 1)) });
    await runCli(["logs"], pieces);
    expect(pieces.out).toBe(whole.out);
  });

  test("are filtered by level and run; what is no event passes", async () => {
    const events = async (...argv: string[]) => {
      const io = new MemoryIo({ files: { f: LINES } });
      expect(await runCli(["logs", "f", ...argv], io)).toBe(0);
      return io.out
        .split("\n")
        .filter((line) => / (INFO|DEBUG|WARN|ERROR) /.test(line))
        .map((line) => /(INFO|DEBUG|WARN|ERROR) +\w+/.exec(line)?.[0]);
    };
    expect(await events("--level", "warn")).toEqual(["ERROR request", "WARN  odd"]);
    expect(await events("--run", "r1")).toEqual(["INFO  dispatch"]);
    expect(await events("--run", "r2", "--level", "info")).toEqual([]);
  });

  test("usage", async () => {
    const io = new MemoryIo();
    expect(await runCli(["logs", "--level", "loud"], io)).toBe(2);
    expect(io.err).toContain('--level must be one of debug, info, warn, error, not "loud"');
    expect(await runCli(["logs", "nowhere"], io)).toBe(2);
  });
});

describe("a command", () => {
  const TABLE: CommandTable = {
    serve: {
      summary: "the daemon",
      load: async () => ({
        main: async (argv, io) => {
          await io.stdout.write(`serve ${argv.join(" ")}`);
          return 42;
        },
      }),
    },
    secret: { summary: "not for people", hidden: true, load: async () => ({ main: async () => 7 }) },
    ...CLI_COMMANDS,
  };

  test.each(Object.keys(CLI_COMMANDS))("%s has a help text with its exit codes, and the version", async (name) => {
    for (const argv of [
      [name, "--help"],
      [name, "-h"],
      ["help", name],
    ]) {
      const io = new MemoryIo();
      expect(await runCli(argv, io)).toBe(0);
      expect(io.out).toMatch(new RegExp(`^Usage: dispatchd ${name} .*\\[options\\]`));
      expect(io.out).toContain("\nExit codes:\n  0    ");
      expect(io.err).toBe("");
    }
    const io = new MemoryIo();
    expect(await runCli([name, "--version"], io)).toBe(0);
    expect(io.out).toBe("1.2.3\n");
    expect(await runCli([name, "--nope"], io)).toBe(2);
    expect(io.err).toBe(`dispatchd ${name}: Unknown option '--nope'\nTry "dispatchd ${name} --help".\n`);
  });

  test("the overview names all but the hidden ones", async () => {
    const io = new MemoryIo();
    expect(await runCli(["--help"], io, TABLE, "serve")).toBe(0);
    expect(io.out).toContain(
      "  serve       the daemon (when no command is given)\n  run         dispatch a turn and watch it\n",
    );
    expect(io.out).not.toContain("secret");
    expect(await runCli(["--version"], io, TABLE, "serve")).toBe(0);
    expect(io.out).toEndWith("\n1.2.3\n");
  });

  test("is the fallback where none is named", async () => {
    for (const argv of [[], ["--dev"], ["serve", "--dev"]]) {
      const io = new MemoryIo();
      expect(await runCli(argv, io, TABLE, "serve")).toBe(42);
      expect(io.out).toBe(`serve ${argv.filter((word) => word !== "serve").join(" ")}`);
    }
    expect(await runCli(["secret"], new MemoryIo(), TABLE)).toBe(7);
  });

  test.each([["nonsense"], ["toString"], ["__proto__"]])("%s is none", async (name) => {
    const io = new MemoryIo();
    expect(await runCli([name], io, TABLE, "serve")).toBe(2);
    expect(io.err).toBe(`dispatchd: there is no command "${name}"\nTry "dispatchd --help".\n`);
  });
});
