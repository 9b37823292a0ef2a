/** `dispatchd mcp`, compiled, with a client that is written by hand. */
import { describe, expect, test } from "bun:test";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { pauseText } from "../../src/pause-text.ts";
import type { AdvertisedTool } from "../../src/tools/port.ts";
import { BINARY } from "../support/daemon.ts";
import { needsRoot } from "../support/needs-root.ts";
import { RelayBench, TOOL, until } from "../support/open-relay.ts";
import { type Message, outcomeOf, ShimClient, type ShimSetup, shimArgs } from "../support/shim-client.ts";

const WRITER: AdvertisedTool = { ...TOOL, name: "write_note", readOnly: false };

async function openBench(): Promise<RelayBench> {
  return RelayBench.open({ tools: [TOOL, WRITER] });
}

function setupOf(bench: RelayBench, setup: Partial<ShimSetup> = {}): ShimSetup {
  return { directory: bench.directory, publicKey: bench.relay.publicKey, ...setup };
}

async function connect(bench: RelayBench, setup: Partial<ShimSetup> = {}): Promise<ShimClient> {
  const client = ShimClient.start(setupOf(bench, setup));
  await client.initialize();
  return client;
}

/** The protocol and nothing else. */
function expectCleanStdout(client: ShimClient): void {
  expect(client.messages.length).toBe(client.lines.length);
  for (const message of client.messages) expect(message.jsonrpc).toBe("2.0");
}

describe("the protocol", () => {
  for (const [asked, given] of [
    ["2025-11-25", "2025-11-25"],
    ["2024-11-05", "2024-11-05"],
    ["2099-01-01", "2025-11-25"],
  ] as const) {
    test(`version ${asked} is answered with ${given}`, async () => {
      await using bench = await openBench();
      await using client = ShimClient.start(setupOf(bench));
      const { result } = await client.initialize(asked);
      expect(result).toMatchObject({ protocolVersion: given, capabilities: { tools: {} } });
      const { tools } = (await client.request("tools/list")).result as { tools: { name: string }[] };
      expect(tools.map(({ name }) => name)).toEqual([TOOL.name, WRITER.name]);
      bench.respond = ({ name }, relay) => void relay.answer(name, { type: "success", text: "done" });
      expect(await client.call(TOOL.name)).toEqual({ text: "done", isError: false, meta: undefined });
    });
  }

  test("tools are listed with name, description, schema and what they may change", async () => {
    await using bench = await openBench();
    await using client = await connect(bench);
    const { name, description, inputSchema } = TOOL;
    expect((await client.request("tools/list")).result).toEqual({
      tools: [
        { name, description, inputSchema, annotations: { readOnlyHint: true } },
        { name: WRITER.name, description, inputSchema, annotations: { readOnlyHint: false } },
      ],
    });
  });

  test("unknown methods are refused, before initialize too, and ping is answered", async () => {
    await using bench = await openBench();
    await using client = ShimClient.start(setupOf(bench));
    expect((await client.request("server/discover")).error?.code).toBe(-32601);
    await client.initialize();
    expect((await client.request("resources/list")).error?.code).toBe(-32601);
    expect((await client.request("ping")).result).toEqual({});
    expect((await client.request("tools/call", { name: "another", arguments: {} })).error?.code).toBe(-32602);
    expect((await client.request("tools/call", { name: TOOL.name, arguments: [] })).error).toBeDefined();
    expect((await client.request("tools/call", {})).error).toBeDefined();
    expect(bench.requests).toEqual([]);
  });

  test("rubbish on stdin is told on stderr, and the next message is answered", async () => {
    await using bench = await openBench();
    await using client = await connect(bench);
    client.write('no json\n\n{"jsonrpc":"2.0"}\n[]\nnull\n{"jsonrpc":"1.0","id":9,"method":"ping"}\n\u0000\n{"id":\n');
    expect((await client.request("ping")).result).toEqual({});
    await client.until(() => (client.stderr.includes("dispatchd mcp: ") ? true : undefined));
    for (let line = 0; line < 1000; line++) client.write("rubbish\n");
    expect((await client.request("ping")).result).toEqual({});
    await client.until(() => (client.stderr.includes("nothing more is said") ? true : undefined));
    expectCleanStdout(client);
  });
});

test("a request that is none is answered under its id, and a batch message by message", async () => {
  await using bench = await openBench();
  await using client = await connect(bench);
  bench.respond = ({ name }, relay) => void relay.answer(name, { type: "success", text: "done" });
  const params = { name: TOOL.name, arguments: {} };
  const wrong = [
    { jsonrpc: "1.0", id: 101, method: "ping" },
    { jsonrpc: "2.0", id: 102, method: "tools/call", params: { ...params, _meta: null } },
    { jsonrpc: "2.0", id: 103, method: "tools/call", params: { ...params, _meta: { progressToken: 1.5 } } },
    { jsonrpc: "2.0", id: "104", method: 5 },
    { jsonrpc: "2.0", id: 105, method: "tools/list", params: [] },
  ];
  client.write(wrong.map((message) => `${JSON.stringify(message)}\n`).join(""));
  for (const { id } of wrong) expect((await client.answerOf(id as number)).error?.code).toBe(-32600);
  const batch = [
    { jsonrpc: "2.0", id: 201, method: "ping" },
    { jsonrpc: "2.0", method: "notifications/initialized" },
    { jsonrpc: "2.0", id: 202, method: "tools/call", params },
    { jsonrpc: "2.0", id: 203, method: "tools/call", params: null },
    "rubbish",
  ];
  client.write(`${JSON.stringify(batch)}\r\n`);
  expect((await client.answerOf(201)).result).toEqual({});
  expect((await client.answerOf(202)).result).toMatchObject({ content: [{ type: "text", text: "done" }] });
  expect((await client.answerOf(203)).error?.code).toBe(-32600);
  expectCleanStdout(client);
});

test("every tool in the list carries what its client has to know of it", async () => {
  await using bench = await openBench();
  await using client = await connect(bench, { toolMeta: { "x/limit": 5 } });
  const { tools } = (await client.request("tools/list")).result as { tools: { _meta?: unknown }[] };
  expect(tools.length).toBeGreaterThan(0);
  expect(tools.every((tool) => Bun.deepEquals(tool._meta, { "x/limit": 5 }))).toBe(true);
});

describe("a call", () => {
  test("has the client's id of it, the arguments byte for byte, and one of three results", async () => {
    await using bench = await openBench();
    await using client = await connect(bench, { callIdMeta: "x/id", endTurnMeta: { "x/end": [true] } });
    bench.respond = ({ name, args }, relay) => {
      const text = JSON.stringify(args);
      if (text.includes("fail")) void relay.answer(name, { type: "failure", error: "it failed" });
      else if (text.includes("pause")) void relay.answer(name, { type: "pause" });
      else void relay.answer(name, { type: "success", text });
    };
    const args = '{"z":1,"a":[null,1.5e3,"\\u2028ä"],"__proto__":{"x":1},"constructor":{}}';
    const done = await client.call(TOOL.name, JSON.parse(args), { "x/id": "toolu_1" });
    expect(done).toEqual({ text: JSON.stringify(JSON.parse(args)), isError: false, meta: undefined });
    expect(await client.call(TOOL.name, { do: "fail" })).toEqual({ text: "it failed", isError: true, meta: undefined });
    const paused = await client.call(WRITER.name, { do: "pause" }, { "x/id": 7 });
    expect(paused).toEqual({ text: pauseText(WRITER.name), isError: false, meta: { "x/end": [true] } });
    expect(bench.requests.map(({ toolName, toolCallId }) => [toolName, toolCallId])).toEqual([
      [TOOL.name, "toolu_1"],
      [TOOL.name, ""],
      [WRITER.name, ""],
    ]);
    expect(await bench.files()).toEqual([]);
    expectCleanStdout(client);
  });

  test("is one of 200 that a client pipelines, answered in any order", async () => {
    await using bench = await openBench();
    await using client = await connect(bench);
    const count = 200;
    bench.respond = (_request, relay) => {
      if (bench.requests.length < count) return;
      for (const { name, args } of [...bench.requests].reverse()) {
        void relay.answer(name, { type: "success", text: JSON.stringify(args) });
      }
    };
    const message = (n: number): object => ({
      ...{ jsonrpc: "2.0", id: `c${n}`, method: "tools/call" },
      params: { name: TOOL.name, arguments: { n } },
    });
    client.write(Array.from({ length: count }, (_, n) => `${JSON.stringify(message(n))}\n`).join(""));
    const answerOf = (n: number): Message | undefined => client.messages.find(({ id }) => id === `c${n}`);
    for (let n = 0; n < count; n++) {
      expect(outcomeOf(await client.until(() => answerOf(n))).text).toBe(`{"n":${n}}`);
    }
    expect(await bench.files()).toEqual([]);
    expectCleanStdout(client);
  }, 20_000);

  test("that the client cancels is withdrawn without an answer, and the others go on", async () => {
    await using bench = await openBench();
    await using client = await connect(bench);
    const called = client.send("tools/call", { name: TOOL.name, arguments: { n: 1 } });
    await until(() => bench.requests.length === 1);
    const other = client.send("tools/call", { name: TOOL.name, arguments: { n: 2 } });
    await until(() => bench.requests.length === 2);
    client.notify("notifications/cancelled", { requestId: called, reason: "no longer needed" });
    await until(() => bench.withdrawn.length === 1);
    const [first, second] = bench.requests;
    expect(bench.withdrawn).toEqual([first?.name ?? ""]);
    expect(await bench.files()).toEqual([`${second?.name}.req.json`]);
    await bench.relay.answer(second?.name ?? "", { type: "success", text: "two" });
    expect(outcomeOf(await client.answerOf(other)).text).toBe("two");
    expect((await client.request("ping")).result).toEqual({});
    expect(client.messages.filter(({ id }) => id === called)).toEqual([]);
  });

  test("tells rising progress to a client that asked for it, until it is answered", async () => {
    await using bench = await openBench();
    await using client = await connect(bench, { progressMs: 20 });
    const params = { name: TOOL.name, arguments: {} };
    const called = client.send("tools/call", { ...params, _meta: { progressToken: "p-1" } });
    client.send("tools/call", params);
    const progress = (): Message[] => client.messages.filter(({ method }) => method === "notifications/progress");
    await client.until(() => (progress().length >= 5 ? true : undefined));
    await until(() => bench.requests.length === 2);
    for (const { name } of bench.requests) await bench.relay.answer(name, { type: "success", text: "" });
    await client.answerOf(called);
    const atAnswer = client.messages.findIndex(({ id }) => id === called);
    expect(progress().map(({ params: told }) => told?.progressToken)).toEqual(progress().map(() => "p-1"));
    expect(progress().map(({ params: told }) => told?.progress)).toEqual(progress().map((_, at) => at + 1));
    // A few more spans of it in which nothing comes.
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(client.messages.slice(atAnswer).filter(({ method }) => method !== undefined)).toEqual([]);
  });

  test("with an argument of 16 MiB is an error of the tool, without a file", async () => {
    await using bench = await openBench();
    await using client = await connect(bench);
    const { text, isError } = await client.call(TOOL.name, { text: "x".repeat(16 << 20) });
    expect(isError).toBe(true);
    expect(text).toContain("too large");
    expect(bench.requests).toEqual([]);
    expect(await bench.files()).toEqual([]);
    bench.respond = ({ name }, relay) => void relay.answer(name, { type: "success", text: "still here" });
    expect((await client.call(TOOL.name)).text).toBe("still here");
  }, 20_000);

  test("ends as an error of the tool when the relay directory vanishes", async () => {
    await using bench = await openBench();
    await using client = await connect(bench);
    const called = client.send("tools/call", { name: TOOL.name, arguments: {} });
    await until(() => bench.requests.length === 1);
    await rm(bench.directory, { recursive: true });
    const { text, isError } = outcomeOf(await client.answerOf(called));
    expect([isError, text]).toEqual([true, expect.stringContaining("is gone")]);
    expect((await client.call(TOOL.name)).isError).toBe(true);
  });

  test("that is answered by somebody else waits on, which is said once", async () => {
    await using bench = await openBench();
    await using client = await connect(bench);
    const called = [1, 2].map((n) => client.send("tools/call", { name: TOOL.name, arguments: { n } }));
    await until(() => bench.requests.length === 2);
    const forged = JSON.stringify({ ok: true, text: "approved", signature: "A".repeat(86) });
    for (const { name } of bench.requests) {
      await writeFile(bench.path("forged"), forged);
      await rename(bench.path("forged"), bench.path(`${name}.res.json`));
    }
    await until(() => bench.ignored.length === 2);
    for (const { name } of bench.requests) await bench.relay.answer(name, { type: "failure", error: "not approved" });
    for (const id of called) expect(outcomeOf(await client.answerOf(id)).text).toBe("not approved");
    client.process.stdin?.end();
    await client.exited;
    const lines = client.stderr.split("\n").filter((line) => line.includes("signature"));
    expect(lines.length).toBe(1);
    expect(client.stderr).toContain("2 answers were ignored");
  });

  needsRoot("is answered to a shim of the agent's user", async () => {
    const agent = { uid: 54321, gid: 54321 };
    await using bench = await RelayBench.prepare();
    await chmod(bench.folder, 0o711);
    await bench.begin({ agentUser: agent });
    bench.respond = ({ name }, relay) => void relay.answer(name, { type: "success", text: "for the agent" });
    await using client = await connect(bench, { user: agent });
    expect((await client.call(TOOL.name)).text).toBe("for the agent");
    expect(await bench.files()).toEqual([]);
  });
});

describe("the end", () => {
  async function waitingClient(bench: RelayBench): Promise<ShimClient> {
    const client = await connect(bench);
    client.send("tools/call", { name: TOOL.name, arguments: {} });
    client.send("tools/call", { name: TOOL.name, arguments: {} });
    await until(() => bench.requests.length === 2);
    return client;
  }

  test("of stdin ends it, and withdraws what waits", async () => {
    await using bench = await openBench();
    await using client = await waitingClient(bench);
    client.process.stdin?.end();
    expect(await client.exited).toEqual({ code: 0, signal: null });
    expect(await bench.files()).toEqual([]);
    await until(() => bench.withdrawn.length === 2);
    expect(client.stderr).toBe("");
    expectCleanStdout(client);
  });

  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) {
    test(`by ${signal} withdraws what waits`, async () => {
      await using bench = await openBench();
      await using client = await waitingClient(bench);
      client.process.kill(signal);
      expect(await client.exited).toEqual({ code: 0, signal: null });
      expect(await bench.files()).toEqual([]);
    });
  }

  test("is no result of a call, and comes after that of a client that gets the same signal", async () => {
    await using bench = await openBench();
    await using client = await waitingClient(bench);
    const before = client.lines.length;
    client.process.kill("SIGTERM");
    // A client needs a moment for its own end.
    await Bun.sleep(300);
    expect(client.process.exitCode).toBeNull();
    expect(bench.withdrawn).toEqual([]);
    expect(await client.exited).toEqual({ code: 0, signal: null });
    expect(client.lines.slice(before)).toEqual([]);
  });

  test("by SIGKILL leaves files, which the daemon removes", async () => {
    await using bench = await openBench();
    await using client = await waitingClient(bench);
    client.process.kill("SIGKILL");
    await client.exited;
    await until(() => bench.withdrawn.length === 2);
    await until(async () => (await bench.files()).length === 0);
  });

  test("of a client that is killed ends it, also where another process holds stdin open", async () => {
    await using bench = await openBench();
    bench.respond = () => {};
    // The client is the shell; this process goes on holding the other end of its stdin and stdout.
    const script = 'exec 3<&0; "$0" "$@" <&3 & echo $! >&2; wait';
    const client = spawn("sh", ["-c", script, BINARY, ...shimArgs(setupOf(bench))], {
      stdio: ["pipe", "pipe", "pipe"],
    });
    const [first] = (await once(client.stderr, "data")) as [Buffer];
    const pid = Number(String(first).trim());
    const clientInfo = { name: "test", version: "1" };
    const initialize = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo };
    client.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id: 1, method: "initialize", params: initialize })}\n`);
    await once(client.stdout, "data");
    const call = { name: TOOL.name, arguments: {} };
    client.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id: 2, method: "tools/call", params: call })}\n`);
    await until(() => bench.requests.length === 1);
    client.kill("SIGKILL");
    await until(async () => !(await isRunning(pid)));
    expect(await bench.files()).toEqual([]);
    await until(() => bench.withdrawn.length === 1);
    client.stdin.destroy();
  });

  test("of whoever reads stdout ends it", async () => {
    await using bench = await openBench();
    await using client = await waitingClient(bench);
    client.process.stdout?.destroy();
    for (const { name } of bench.requests) await bench.relay.answer(name, { type: "success", text: "for nobody" });
    await until(() => client.process.exitCode !== null);
    expect(client.process.exitCode).toBe(0);
    expect(await bench.files()).toEqual([]);
  });

  test("comes after the answers of what was asked by hand", async () => {
    await using bench = await openBench();
    await using client = ShimClient.start(setupOf(bench));
    void client.initialize().catch(() => {});
    client.send("tools/list");
    client.send("tools/call", { name: TOOL.name, arguments: {} });
    client.process.stdin?.end();
    expect(await client.exited).toEqual({ code: 0, signal: null });
    expect(client.messages.map(({ id }) => id)).toEqual([1, 2, 3]);
    expect(outcomeOf(client.messages[2] ?? {}).isError).toBe(true);
    expect(await bench.files()).toEqual([]);
  });
});

test("it waits without spinning", async () => {
  await using bench = await openBench();
  await using client = await connect(bench, { progressMs: 100 });
  client.send("tools/call", { name: TOOL.name, arguments: {}, _meta: { progressToken: 1 } });
  await client.until(() => (client.messages.some(({ method }) => method !== undefined) ? true : undefined));
  const [before, beganAt] = [await cpuMs(client.pid), performance.now()];
  await client.until(() =>
    client.messages.filter(({ method }) => method !== undefined).length > 20 ? true : undefined,
  );
  const share = ((await cpuMs(client.pid)) - before) / (performance.now() - beganAt);
  expect(share).toBeLessThan(0.5);
}, 20_000);

describe("what it cannot serve", () => {
  async function endOf(args: readonly string[]): Promise<{ code: number | null; stderr: string; lines: string[] }> {
    await using client = ShimClient.run(args);
    const { code } = await client.exited;
    return { code, stderr: client.stderr, lines: client.lines };
  }

  test("is refused with a line on stderr and an exit code", async () => {
    await using bench = await openBench();
    const cases: [change: () => Promise<unknown>, reason: string][] = [
      [() => writeFile(bench.path("tools.json"), "{no json"), "tools.json is no list of tools"],
      [() => writeFile(bench.path("tools.json"), '{"tools":[]}'), "tools.json is no list of tools"],
      [() => rm(bench.path("tools.json")), "tools.json: there is none"],
      [() => mkdir(bench.path("tools.json")), "tools.json: not_regular"],
      [() => rm(bench.directory, { recursive: true }), "ENOENT"],
    ];
    for (const [change, reason] of cases) {
      await change();
      const { code, stderr, lines } = await endOf(shimArgs(setupOf(bench)));
      expect([code, lines]).toEqual([1, []]);
      expect(stderr).toStartWith("dispatchd mcp: cannot serve the tools of this run: ");
      expect(stderr).toContain(reason);
      expect(stderr.trim().split("\n").length).toBe(1);
    }
  });

  test("is left out where it is one tool", async () => {
    await using bench = await openBench();
    const tools = [TOOL, { name: "half" }, null, { ...TOOL, inputSchema: [] }, { ...WRITER, inputSchema: {} }];
    await writeFile(bench.path("tools.json"), JSON.stringify(tools));
    await using client = await connect(bench);
    const listed = (await client.request("tools/list")).result?.tools as { name: string; inputSchema: unknown }[];
    expect(listed.map(({ name }) => name)).toEqual([TOOL.name, WRITER.name]);
    expect(listed[1]?.inputSchema).toEqual({ type: "object" });
    await client.until(() => (client.stderr.includes("3 entries of tools.json") ? true : undefined));
  });

  test("is refused where the arguments are wrong", async () => {
    await using bench = await openBench();
    const good = shimArgs(setupOf(bench));
    const at = (flag: string): number => good.indexOf(flag);
    const cases: [args: string[], reason: string][] = [
      [["mcp"], "--relay, --run, --key, --call-id-meta, --end-turn-meta missing"],
      [good.slice(0, -1), "--end-turn-meta needs a value"],
      [[...good, "--token", "x"], "unknown option --token"],
      [[...good, "--progress-ms", "0"], "--progress-ms"],
      [good.with(at("--end-turn-meta") + 1, "[]"), "--end-turn-meta is no JSON object"],
      [[...good, "--tool-meta", "[]"], "--tool-meta is no JSON object"],
    ];
    for (const [args, reason] of cases) {
      const { code, stderr, lines } = await endOf(args);
      expect([code, lines]).toEqual([2, []]);
      expect(stderr).toContain(reason);
      expect(stderr).toContain("dispatchd mcp --relay DIR");
    }
    const badKey = await endOf(good.with(at("--key") + 1, "short"));
    expect([badKey.code, badKey.lines]).toEqual([1, []]);
    expect(badKey.stderr).toContain("public key");
  });

  test("is no question for help or the version, which stand first", async () => {
    await using bench = await openBench();
    expect((await endOf(["mcp", "--help"])).lines[0]).toContain("dispatchd mcp --relay DIR");
    const { version } = JSON.parse(await readFile(join(import.meta.dir, "../../package.json"), "utf8"));
    expect((await endOf(["mcp", "--version"])).lines).toEqual([version]);
    await using client = await connect(bench, { runId: "--version" });
    expect((await client.request("ping")).result).toEqual({});
  });
});

test("it says everything by the folder alone: nothing of the relay is left open to others", async () => {
  await using bench = await openBench();
  await using client = await connect(bench);
  client.send("tools/call", { name: TOOL.name, arguments: { private: true } });
  await until(() => bench.requests.length === 1);
  const argv = (await readFile(`/proc/${client.pid}/cmdline`, "utf8")).split("\0").slice(1, -1);
  expect(argv).toEqual(shimArgs(setupOf(bench)));
  expect((await readdir(bench.directory)).length).toBe(2);
});

async function isRunning(pid: number): Promise<boolean> {
  const stat = await readFile(`/proc/${pid}/stat`, "latin1").catch(() => undefined);
  return stat !== undefined && !/\) [ZX] /.test(stat);
}

/** User and system time of a process, by the clock tick of 10 ms. */
async function cpuMs(pid: number): Promise<number> {
  const stat = await readFile(`/proc/${pid}/stat`, "latin1");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) * 10;
}
