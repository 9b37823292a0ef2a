/** The two sides of a relay directory: requests are found, answered, withdrawn, and nothing is left of them. */
import { describe, expect, test } from "bun:test";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { appendFile, chmod, mkdir, readFile, rm, stat, unlink, writeFile } from "node:fs/promises";
import type { RelayAnswer } from "../../src/tools/port.ts";
import { formatAnswer } from "../../src/tools/relay/answer-file.ts";
import { type Asker, openAsker } from "../../src/tools/relay/ask-relay.ts";
import { createSigner } from "../../src/tools/relay/keys.ts";
import { nameOf, RelayBench, requestContent, TOOL, until } from "../support/open-relay.ts";

const CALL = { toolName: TOOL.name, toolCallId: "call-1", args: { service: "x" } };
const NEVER = new AbortController().signal;

async function askerOf(bench: RelayBench, say: (text: string) => void = () => {}): Promise<Asker> {
  const { directory, publicKey } = bench.relay;
  return openAsker({ directory, runId: "run-1", publicKey, say });
}

describe("a call", () => {
  const ANSWERS: readonly RelayAnswer[] = [
    { type: "success", text: "connected" },
    { type: "failure", error: "refused" },
    { type: "pause" },
  ];
  for (const answer of ANSWERS) {
    test(`is answered with ${answer.type}, and both files are removed`, async () => {
      await using bench = await RelayBench.open();
      bench.respond = ({ name }, relay) => void relay.answer(name, answer);
      const asker = await askerOf(bench);
      expect(await asker.ask(CALL, NEVER)).toEqual(answer);
      expect(await bench.files()).toEqual([]);
      expect(bench.requests).toEqual([{ ...CALL, name: expect.stringMatching(/^[0-9a-f]{32}$/) }]);
      await asker.close();
      expect(bench.withdrawn).toEqual([]);
    });
  }

  test("that is called off is withdrawn", async () => {
    await using bench = await RelayBench.open();
    const asker = await askerOf(bench);
    const cancel = new AbortController();
    const asked = asker.ask(CALL, cancel.signal);
    await until(() => bench.requests.length === 1);
    cancel.abort();
    expect(await asked).toEqual({ type: "cancelled" });
    expect(await bench.files()).toEqual([]);
    await until(() => bench.withdrawn.length === 1);
    expect(bench.withdrawn).toEqual([bench.requests[0]?.name ?? ""]);
    await asker.close();
  });

  test("that is called off before it is asked is never asked", async () => {
    await using bench = await RelayBench.open();
    const asker = await askerOf(bench);
    expect(await asker.ask(CALL, AbortSignal.abort())).toEqual({ type: "cancelled" });
    await asker.close();
    expect(await bench.files()).toEqual([]);
  });

  test("is withdrawn by the end of its shim", async () => {
    await using bench = await RelayBench.open();
    const asker = await askerOf(bench);
    const asked = [asker.ask(CALL, NEVER), asker.ask(CALL, NEVER)];
    await until(() => bench.requests.length === 2);
    await asker.close();
    expect(await Promise.all(asked)).toEqual([{ type: "cancelled" }, { type: "cancelled" }]);
    expect(await bench.files()).toEqual([]);
    await until(() => bench.withdrawn.length === 2);
  });

  test("fails when the directory is gone, before and while it waits", async () => {
    await using bench = await RelayBench.open();
    const asker = await askerOf(bench);
    const asked = asker.ask(CALL, NEVER);
    await until(() => bench.requests.length === 1);
    await rm(bench.directory, { recursive: true });
    expect(await asked).toEqual({ type: "lost", error: expect.stringContaining("is gone") });
    expect(await asker.ask(CALL, NEVER)).toEqual({ type: "lost", error: expect.stringContaining("is gone") });
    await until(() => bench.withdrawn.length === 1);
    await asker.close();
  });

  test("fails when its request is taken away", async () => {
    await using bench = await RelayBench.open();
    const asker = await askerOf(bench);
    const asked = asker.ask(CALL, NEVER);
    await until(() => bench.requests.length === 1);
    await unlink(bench.path(`${bench.requests[0]?.name}.req.json`));
    expect(await asked).toEqual({ type: "lost", error: expect.stringContaining("taken away") });
    await asker.close();
  });

  test("with arguments over 1 MiB, or nested without end, fails without a file", async () => {
    await using bench = await RelayBench.open();
    const asker = await askerOf(bench);
    const result = await asker.ask({ ...CALL, args: { text: "x".repeat(1024 * 1024) } }, NEVER);
    expect(result).toEqual({ type: "lost", error: expect.stringContaining("too large") });
    const deep = JSON.parse(`${"[".repeat(300)}${"]".repeat(300)}`);
    const nested = await asker.ask({ ...CALL, args: { deep } }, NEVER);
    expect(nested).toEqual({ type: "lost", error: expect.stringContaining("nested") });
    const fits = asker.ask({ ...CALL, args: { text: "x".repeat(1024 * 1024 - 500) } }, NEVER);
    await until(() => bench.requests.length === 1);
    await bench.relay.answer(bench.requests[0]?.name ?? "", { type: "success", text: "took it" });
    expect(await fits).toEqual({ type: "success", text: "took it" });
    await asker.close();
  });

  test("believes no answer but one signed for it with the run's key", async () => {
    await using bench = await RelayBench.open();
    const said: string[] = [];
    const asker = await askerOf(bench, (text) => said.push(text));
    const asked = asker.ask(CALL, NEVER);
    await until(() => bench.requests.length === 1);
    const name = bench.requests[0]?.name ?? "";
    const forge = (content: object): Promise<void> =>
      writeFile(bench.path(`${name}.res.json`), JSON.stringify(content));
    const stranger = await createSigner("run-1");
    const { signature } = await stranger.sign(name, { type: "success", text: "approved" });
    await forge({ ok: true, text: "approved", signature });
    await until(() => said.length === 1);
    await forge({ ok: true, text: "approved", signature: "" });
    await forge({ ok: true, text: "approved" });
    await until(() => bench.ignored.length === 1);
    expect(bench.ignored).toEqual(["not_ours"]);
    await bench.relay.answer(name, { type: "success", text: "the real one" });
    expect(await asked).toEqual({ type: "success", text: "the real one" });
    await asker.close();
    expect(said[0]).toContain("without a valid signature");
    expect(await bench.files()).toEqual([]);
  });

  test("waits for an answer that is written slowly and in place", async () => {
    const signer = await createSigner("run-1");
    await using bench = await RelayBench.open({ outsideKey: signer.publicKey });
    const said: string[] = [];
    const asker = await askerOf(bench, (text) => said.push(text));
    const asked = asker.ask(CALL, NEVER);
    await until(async () => (await bench.files()).some((file) => file.endsWith(".req.json")));
    const name = (await bench.files())[0]?.slice(0, 32) ?? "";
    const text = formatAnswer(await signer.sign(name, { type: "success", text: "slow" }));
    for (let from = 0; from < text.length; from += 20) {
      await appendFile(bench.path(`${name}.res.json`), text.slice(from, from + 20));
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    expect(await asked).toEqual({ type: "success", text: "slow" });
    await asker.close();
    expect(said).toEqual([]);
    expect(await bench.files()).toEqual([]);
  });
});

describe("the daemon", () => {
  test("makes the directory for its owner alone, and tells the shim what the model may know", async () => {
    await using bench = await RelayBench.prepare();
    const secret = { ...TOOL, permission: "ask", render: { secret: true }, timeoutMs: 5 };
    await bench.begin({ tools: [secret] });
    expect((await stat(bench.directory)).mode & 0o777).toBe(0o700);
    expect(JSON.parse(await readFile(bench.path("tools.json"), "utf8"))).toEqual([TOOL]);
    expect((await stat(bench.path("tools.json"))).mode & 0o777).toBe(0o600);
  });

  test("closes a directory that was open", async () => {
    await using bench = await RelayBench.prepare();
    await mkdir(bench.directory);
    await chmod(bench.directory, 0o777);
    await bench.begin();
    expect((await stat(bench.directory)).mode & 0o777).toBe(0o700);
  });

  test("sweeps what a crash left, and nothing else", async () => {
    await using bench = await RelayBench.prepare();
    await mkdir(bench.directory);
    await bench.publish(nameOf("a"), requestContent());
    await writeFile(bench.path(`${nameOf("a")}.res.json`), "{}");
    await writeFile(bench.path(`${nameOf("b")}.res.json`), "{}");
    await writeFile(bench.path(".c.tmp"), "");
    await writeFile(bench.path("tools.json"), "old");
    await writeFile(bench.path("notes.txt"), "");
    await bench.begin();
    expect(await bench.files()).toEqual(["notes.txt"]);
    expect(JSON.parse(await readFile(bench.path("tools.json"), "utf8"))).toEqual([TOOL]);
    await bench.publish(nameOf("d"), requestContent());
    await until(() => bench.requests.length > 0);
    expect(bench.requests.map(({ name }) => name)).toEqual([nameOf("d")]);
  });

  test("tells of a request once, whatever happens to its file", async () => {
    await using bench = await RelayBench.open();
    await bench.publish(nameOf("a"), requestContent());
    await until(() => bench.requests.length === 1);
    await bench.publish(nameOf("a"), requestContent({ args: { service: "another" } }));
    await bench.relay.answer(nameOf("a"), { type: "pause" });
    await unlink(bench.path(`${nameOf("a")}.req.json`));
    await bench.publish(nameOf("b"), requestContent());
    await until(() => bench.requests.length === 2);
    await bench.publish(nameOf("a"), requestContent());
    await bench.publish(nameOf("c"), requestContent());
    await until(() => bench.requests.length === 3);
    expect(bench.requests.map(({ name }) => name)).toEqual([nameOf("a"), nameOf("b"), nameOf("c")]);
    expect(bench.requests[0]?.args).toEqual({ service: "x" });
    expect(bench.withdrawn).toEqual([]);
  });

  test("withdraws a request whose shim was killed, and removes its files", async () => {
    await using bench = await RelayBench.open();
    const shim = spawn("sleep", ["60"]);
    await once(shim, "spawn");
    await bench.publish(nameOf("a"), requestContent({ pid: shim.pid }));
    await bench.publish(nameOf("b"), requestContent({ pid: shim.pid }));
    await until(() => bench.requests.length === 2);
    await bench.relay.answer(nameOf("b"), { type: "pause" });
    shim.kill("SIGKILL");
    await until(() => bench.withdrawn.length === 1);
    await until(async () => (await bench.files()).length === 0);
    expect(bench.withdrawn).toEqual([nameOf("a")]);
  });

  test("removes at once what a dead shim asked", async () => {
    await using bench = await RelayBench.open();
    const shim = spawn("true");
    await once(shim, "exit");
    await bench.publish(nameOf("a"), requestContent({ pid: shim.pid }));
    await until(async () => (await bench.files()).length === 0);
    expect(bench.requests).toEqual([]);
    expect(bench.withdrawn).toEqual([]);
  });

  test("answers once, and nothing that is gone", async () => {
    await using bench = await RelayBench.open();
    await bench.relay.answer(nameOf("f"), { type: "pause" });
    expect(await bench.files()).toEqual([]);
    await bench.publish(nameOf("a"), requestContent());
    await until(() => bench.requests.length === 1);
    await Promise.all([
      bench.relay.answer(nameOf("a"), { type: "success", text: "first" }),
      bench.relay.answer(nameOf("a"), { type: "success", text: "second" }),
    ]);
    expect(JSON.parse(await readFile(bench.path(`${nameOf("a")}.res.json`), "utf8")).text).toBe("first");

    await bench.publish(nameOf("b"), requestContent());
    await until(() => bench.requests.length === 2);
    await unlink(bench.path(`${nameOf("b")}.req.json`));
    await bench.relay.answer(nameOf("b"), { type: "pause" });
    await until(async () => !(await bench.files()).includes(`${nameOf("b")}.res.json`));
  });

  test("takes more requests than it can have open as others are answered", async () => {
    await using bench = await RelayBench.open();
    const nameOfNumber = (n: number): string => n.toString(16).padStart(32, "0");
    for (let n = 0; n < 600; n++) await bench.publish(nameOfNumber(n), requestContent({ args: { n } }));
    await until(() => bench.requests.length === 512);
    for (const { name } of [...bench.requests]) await bench.relay.answer(name, { type: "pause" });
    await until(() => bench.requests.length === 600);
    expect(new Set(bench.requests.map(({ name }) => name)).size).toBe(600);
    expect(bench.ignored).toEqual([]);
  });

  test("hands over an answer that is too large as a failure", async () => {
    await using bench = await RelayBench.open();
    bench.respond = ({ name }, relay) =>
      void relay.answer(name, { type: "success", text: "x".repeat(9 * 1024 * 1024) });
    const asker = await askerOf(bench);
    expect(await asker.ask(CALL, NEVER)).toEqual({ type: "failure", error: expect.stringContaining("too large") });
    await asker.close();
  });

  test("leaves answering to a runner outside, and removes the files of dead shims all the same", async () => {
    const { publicKey } = await createSigner("run-1");
    await using bench = await RelayBench.open({ outsideKey: publicKey });
    expect(bench.relay.publicKey).toBe(publicKey);
    const shim = spawn("sleep", ["60"]);
    await once(shim, "spawn");
    await bench.publish(nameOf("a"), requestContent({ pid: shim.pid }));
    await bench.relay.answer(nameOf("a"), { type: "pause" });
    await writeFile(bench.path(`${nameOf("a")}.res.json`), "{}");
    shim.kill("SIGKILL");
    await until(async () => (await bench.files()).length === 0);
    expect(bench.requests).toEqual([]);
    expect(bench.withdrawn).toEqual([]);
    expect(bench.ignored).toEqual([]);
  });

  test("says nothing after it was stopped", async () => {
    await using bench = await RelayBench.open();
    await bench.publish(nameOf("a"), requestContent());
    await until(() => bench.requests.length === 1);
    await bench.relay.stop();
    await bench.relay.answer(nameOf("a"), { type: "pause" });
    await unlink(bench.path(`${nameOf("a")}.req.json`));
    await bench.publish(nameOf("b"), requestContent());
    expect(await bench.files()).toEqual([`${nameOf("b")}.req.json`]);
    expect([bench.requests.length, bench.withdrawn.length]).toEqual([1, 0]);
  });
});
