/** A runner outside the pod answers by plain files and its own key, as docs/relay.md tells. */
import { expect, test } from "bun:test";
import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { pauseText } from "../../src/pause-text.ts";
import { RelayBench, TOOL, until } from "../support/open-relay.ts";
import { OutsideRunner } from "../support/outside-runner.ts";
import { outcomeOf, ShimClient } from "../support/shim-client.ts";

const RUN = 'run "ä" 1';

test("a runner outside answers every call, and the daemon none", async () => {
  await using bench = await RelayBench.prepare();
  const runner = new OutsideRunner(bench.directory, RUN);
  await bench.begin({ runId: RUN, outsideKey: runner.publicKey });
  await using client = ShimClient.start({ directory: bench.directory, publicKey: bench.relay.publicKey, runId: RUN });
  await client.initialize();
  const stop = new AbortController();
  const serving = runner.serve(({ toolName, toolCallId, args }) => {
    const { do: wanted } = args as { do: string };
    if (wanted === "pause") return { kind: "pause", body: "" };
    if (wanted === "failure") return { kind: "failure", body: "no such account" };
    return { kind: "success", body: `${toolName}\n"${toolCallId}" \u2028 <ä>` };
  }, stop.signal);
  const meta = { "client/callId": "toolu_1" };
  const done = await client.call(TOOL.name, { do: "success" }, meta);
  expect(done).toEqual({ text: `${TOOL.name}\n"toolu_1" \u2028 <ä>`, isError: false, meta: undefined });
  const failed = await client.call(TOOL.name, { do: "failure" }, meta);
  expect(failed).toEqual({ text: "no such account", isError: true, meta: undefined });
  const paused = await client.call(TOOL.name, { do: "pause" }, meta);
  expect(paused).toEqual({ text: pauseText(TOOL.name), isError: false, meta: { "client/endTurn": true } });
  stop.abort();
  await serving;
  expect(await bench.files()).toEqual([]);
  expect([bench.requests, bench.ignored, bench.withdrawn]).toEqual([[], [], []]);
});

test("a runner with another key is not believed, nor is one of another run", async () => {
  await using bench = await RelayBench.open({ runId: RUN });
  const other = new OutsideRunner(bench.directory, RUN);
  await using client = ShimClient.start({ directory: bench.directory, publicKey: bench.relay.publicKey, runId: RUN });
  await client.initialize();
  const called = client.send("tools/call", { name: TOOL.name, arguments: {} });
  await until(() => bench.requests.length === 1);
  const [request] = await other.requests();
  await other.answer(request?.name ?? "", { kind: "success", body: "approved" });
  await client.until(() => (client.stderr.includes("without a valid signature") ? true : undefined));
  await bench.relay.answer(request?.name ?? "", { type: "failure", error: "denied" });
  expect(outcomeOf(await client.answerOf(called))).toMatchObject({ text: "denied", isError: true });
});

test("the example of docs/relay.md answers", async () => {
  const text = await readFile(join(import.meta.dir, "../../docs/relay.md"), "utf8");
  const example = /```js\n([\s\S]*?)```/.exec(text)?.[1] ?? "";
  await using bench = await RelayBench.prepare();
  const script = join(bench.folder, "runner.mjs");
  await writeFile(script, example);
  const runner = Bun.spawn([process.execPath, script, RUN], { stdin: "pipe", stdout: "pipe", stderr: "inherit" });
  try {
    const { value } = await runner.stdout.getReader().read();
    const publicKey = new TextDecoder().decode(value).trim();
    // As with a daemon: the directory is there, and known, when the run was dispatched with the key.
    await bench.begin({ runId: RUN, outsideKey: publicKey });
    runner.stdin.write(`${bench.directory}\n`);
    await runner.stdin.flush();
    await using client = ShimClient.start({ directory: bench.directory, publicKey, runId: RUN });
    await client.initialize();
    const { text: result } = await client.call(TOOL.name, { service: "mail" });
    expect(result).toBe(`${TOOL.name} was called with {"service":"mail"}`);
    await rm(bench.directory, { recursive: true });
    expect(await runner.exited).toBe(0);
  } finally {
    runner.kill("SIGKILL");
    await runner.exited;
  }
});
