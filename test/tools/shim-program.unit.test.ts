/** The shim's program with streams of the test's: what no client can bring about from outside. */
import { expect, test } from "bun:test";
import { PassThrough } from "node:stream";
import { runShim, type ShimProgram } from "../../src/tools/shim/program.ts";
import { RelayBench, TOOL, until } from "../support/open-relay.ts";
import { shimArgs } from "../support/shim-client.ts";

async function startShim(bench: RelayBench, overrides: Partial<ShimProgram> = {}) {
  const [stdin, stdout] = [new PassThrough(), new PassThrough()];
  const errors: string[] = [];
  let fault: (error: unknown) => void = () => {};
  const [, ...args] = shimArgs({ directory: bench.directory, publicKey: bench.relay.publicKey });
  const code = runShim({
    ...{ args, version: "0", stdin, stdout, writeError: (line: string) => errors.push(line), parent: () => 1 },
    onSignal: () => {},
    onFault: (listener) => {
      fault = listener;
    },
    ...overrides,
  });
  const call = { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: TOOL.name, arguments: {} } };
  stdin.write(`${JSON.stringify(call)}\n`);
  await until(() => bench.requests.length === 1);
  return { code, stdin, stdout, errors, fault: (error: unknown) => fault(error) };
}

test("a fault is told on stderr, withdraws what waits, and ends it", async () => {
  await using bench = await RelayBench.open();
  const { code, errors, fault, stdout } = await startShim(bench);
  fault(new Error("a library threw"));
  expect(await code).toBe(70);
  expect(errors.join("")).toContain("a library threw");
  expect(await bench.files()).toEqual([]);
  for (const line of String(stdout.read()).trim().split("\n")) expect(JSON.parse(line).jsonrpc).toBe("2.0");
});

test("another parent means that the client is gone", async () => {
  await using bench = await RelayBench.open();
  let parent = 100;
  const { code, errors } = await startShim(bench, { parent: () => parent });
  parent = 1;
  expect(await code).toBe(0);
  expect(errors).toEqual([]);
  expect(await bench.files()).toEqual([]);
});

test("an error of stdin or stdout is the end of the client", async () => {
  for (const name of ["stdin", "stdout"] as const) {
    await using bench = await RelayBench.open();
    const shim = await startShim(bench);
    shim[name].destroy(new Error("EPIPE"));
    expect(await shim.code).toBe(0);
    expect(await bench.files()).toEqual([]);
  }
});

test("a message over 64 MiB ends it, and says so", async () => {
  await using bench = await RelayBench.open();
  const { code, errors, stdin } = await startShim(bench);
  stdin.write(Buffer.alloc((64 << 20) + 1, "x"));
  expect(await code).toBe(1);
  expect(errors.join("")).toContain("exceeded maximum size");
  expect(await bench.files()).toEqual([]);
});
