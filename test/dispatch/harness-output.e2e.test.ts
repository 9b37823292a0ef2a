/** What harnesses print: odd text, no text, too much of it. */
import { expect, test } from "bun:test";
import { parseFrames, TestDaemon } from "../support/daemon.ts";
import { Follower } from "../support/follow.ts";
import { highWaterKib, residentKib, watchHealth } from "../support/measure.ts";
import type { Step } from "../support/scripted-harness.ts";

const bytes = (...parts: (string | number[])[]): Step => ({
  bytes: Buffer.concat(
    parts.map((part) => (typeof part === "string" ? Buffer.from(part) : Buffer.from(part))),
  ).toString("base64"),
});
const data = (value: string): string => `{"chunks":[{"type":"data-x","data":"${value}"}]}`;
const PAUSE: Step = { sleepMs: 30 };

/** The data of a run's chunks, in order. */
async function dataOf(daemon: TestDaemon, runId: string, steps: readonly Step[]): Promise<unknown[]> {
  const frames = await daemon.run({ runId, steps });
  expect(frames.map(({ seq }) => seq)).toEqual(frames.map((_, index) => index + 1));
  expect(frames.at(-2)?.outcome).toEqual({ type: "finished" });
  return frames.flatMap(({ chunks }) => chunks.map((chunk) => chunk.data));
}

test("text comes through as it was meant, however it was written", async () => {
  await using daemon = await TestDaemon.start();
  const separators = "a\u2028b\u2029c\u0085d\u000b\u000c";
  expect(await dataOf(daemon, "separators", [{ chunks: [{ type: "data-x", data: separators }] }])).toEqual([
    separators,
  ]);

  const euro = Buffer.from(`${data("€𝄞")}\n`);
  const inPieces = [...euro].flatMap((byte) => [bytes([byte])]);
  expect(await dataOf(daemon, "bytes", inPieces)).toEqual(["€𝄞"]);
  const cut = euro.indexOf(0xf0) + 2;
  expect(
    await dataOf(daemon, "halves", [bytes([...euro.subarray(0, cut)]), PAUSE, bytes([...euro.subarray(cut)])]),
  ).toEqual(["€𝄞"]);

  const open = '{"chunks":[{"type":"data-x","data":"';
  const close = '"}]}\n';
  expect(
    await dataOf(daemon, "bad", [
      bytes(open, [0xff], "a", [0xc3], "b", [0xe2, 0x82], close),
      bytes(open, [0xed, 0xa0, 0x80], close),
      bytes(open, "fine", close),
    ]),
  ).toEqual(["\ufffda\ufffdb\ufffd", "\ufffd\ufffd\ufffd", "fine"]);

  expect(await dataOf(daemon, "crlf", [bytes(`${data("a")}\r\n\r\n${data("b")}\r\n`)])).toEqual(["a", "b"]);
  expect(await dataOf(daemon, "blanks", [bytes(`\n\n  \n${data("a")}\n\n`)])).toEqual(["a"]);
  expect(await dataOf(daemon, "no newline", [bytes(`${data("a")}\n${data("b")}`)])).toEqual(["a", "b"]);
  const spaced = '{"chunks": [{"type": "data-x", "data": "caf\\u00e9 \\u4f60 \\ud834\\udd1e"}]}';
  expect(await dataOf(daemon, "escapes", [{ line: spaced }])).toEqual(["café 你 𝄞"]);
  expect(await dataOf(daemon, "lone", [{ line: '{"chunks": [{"type": "data-x", "data": "\\ud834"}]}' }])).toEqual([
    "\ud834",
  ]);
});

test("what a harness may not say is dropped, and lines that are no frames go to the log", async () => {
  await using daemon = await TestDaemon.start();
  const frames = await daemon.run({
    runId: "r",
    steps: [
      { line: "not a frame" },
      { json: { seq: 99, chunks: [{ type: "data-x", data: 1 }], done: true, settled: { saved: true }, waiting: {} } },
      { line: '{"chunks":[{"type":"data-x","data":2}],"seq":99,"preparation":{},"error":{"code":"internal"}}' },
      { json: ["chunks"] },
      { json: { chunks: "none" } },
      { line: '{"chunks":[' },
      { json: { chunks: [] } },
    ],
  });
  expect(frames.slice(1, -2)).toEqual([
    { seq: 2, chunks: [{ type: "data-x", data: 1 }] },
    { seq: 3, chunks: [{ type: "data-x", data: 2 }] },
    { seq: 4, chunks: [] },
  ]);
  await daemon.event("dispatch done");
  const logged = daemon.log.filter(({ event }) => event === "harness printed a line that is no frame");
  expect(logged.map(({ line }) => line)).toEqual(["not a frame", '["chunks"]', '{"chunks":"none"}', '{"chunks":[']);
});

test("a silent harness is followed by keepalives between frames, while it settles too", async () => {
  await using daemon = await TestDaemon.start({ env: { KEEPALIVE_MS: "40", EXIT_GRACE_MS: "60000" } });
  const [first, second] = [daemon.path("first"), daemon.path("second")];
  const steps: Step[] = [
    { chunks: [{ type: "data-x", data: 1 }] },
    { waitFor: first },
    { json: { outcome: { type: "finished" } } },
    { waitFor: second },
  ];
  const follower = new Follower(await daemon.dispatch({ runId: "r", steps }));
  const keepalivesAtEnd = (lines: readonly string[]): number => lines.length - 1 - lines.findLastIndex(Boolean);
  await follower.until(({ lines, frames }) => frames.length === 2 && keepalivesAtEnd(lines) >= 4);
  const events = await daemon.fetch("/runs/r/frames", { headers: { accept: "text/event-stream" } });
  const sse = new Follower(events);
  await sse.until(({ lines }) => lines.filter((line) => line === ":").length >= 4);
  await Bun.write(first, "");
  await follower.until(({ lines, frames }) => frames.length === 3 && keepalivesAtEnd(lines) >= 4);
  expect(follower.frames[2]?.outcome).toEqual({ type: "finished" });
  expect((await daemon.show("r")).state).toBe("settling");
  await Bun.write(second, "");
  await Promise.all([follower.ended, sse.ended]);
  expect(follower.frames.at(-1)).toMatchObject({ seq: 4, done: true });
  // Nothing but frames and empty events.
  for (const line of sse.lines) expect(line).toMatch(/^(|:|id: \d+|data: \{"seq":\d+,"chunks":.*\})$/);
});

/** A shell command that prints one frame of `size` bytes, the newline left out. */
const lineOfSize = (size: number): Step => {
  const [open, close] = ['{"chunks":[{"type":"data-x","data":"', '"}]}'];
  const fill = size - open.length - close.length;
  return { sh: `printf '${open}'; head -c ${fill} /dev/zero | tr '\\0' x; printf '${close}\\n'`, wait: true };
};

test("a line of 15 MiB comes through whole, one of 17 MiB ends the run, and /health answers meanwhile", async () => {
  await using daemon = await TestDaemon.start();
  const health = watchHealth(daemon);
  const size = 15 << 20;
  const response = await daemon.dispatch({ runId: "r15", steps: [lineOfSize(size), { line: data("after") }] });
  const lines = (await response.text()).split("\n").filter(Boolean);
  expect(lines[1]?.length).toBe('{"seq":2,'.length + size - 1);
  expect(lines[1]?.slice(0, 45)).toBe('{"seq":2,"chunks":[{"type":"data-x","data":"x');
  expect(lines[2]).toBe('{"seq":3,"chunks":[{"type":"data-x","data":"after"}]}');
  expect(JSON.parse(lines.at(-2) ?? "")).toMatchObject({ outcome: { type: "finished" } });

  const frames = await daemon.run({ runId: "r17", steps: [lineOfSize(17 << 20), { sleepMs: 60_000 }] });
  expect(frames.map(({ seq }) => seq)).toEqual([1, 2, 3]);
  expect(frames[1]?.outcome).toMatchObject({ type: "failed", error: { code: "frame_too_large" } });
  expect(frames[2]).toMatchObject({ done: true, error: { code: "frame_too_large" } });
  expect(await health.stop()).toBeGreaterThan(5);
});

test("lines of a million small chunks come through in bounded memory, from several runs at once", async () => {
  await using daemon = await TestDaemon.start();
  const chunk = '{"type":"start"}';
  const list = `yes '${chunk}' | head -n 950000 | tr '\\n' ',' | head -c -1`;
  const line: Step = { sh: `printf '{"chunks":['; ${list}; printf ']}\\n'`, wait: true };
  const length = '{"seq":2,"chunks":[]}'.length + 950_000 * (chunk.length + 1) - 1;
  const health = watchHealth(daemon);
  const run = async (runId: string): Promise<void> => {
    const response = await daemon.dispatch({ runId, threadId: runId, steps: [line, line] });
    const lines = (await response.text()).split("\n").filter(Boolean);
    expect(lines.slice(1, 3).map((each) => each.length)).toEqual([length, length]);
    expect(JSON.parse(lines.at(-2) ?? "")).toMatchObject({
      chunks: [{ type: "finish" }],
      outcome: { type: "finished" },
    });
  };
  await Promise.all([run("a"), run("b")]);
  expect(await health.stop()).toBeGreaterThan(5);
  expect(await highWaterKib(daemon.pid)).toBeLessThan(400 << 10);
}, 60_000);

test("a line with a call of the run's tools is read as a whole, and so not of any number of values", async () => {
  await using daemon = await TestDaemon.start({ env: { HARNESS_CAPABILITIES: '{"clientTools":"shim"}' } });
  const tools = [{ name: "ask", description: "d", inputSchema: {}, kind: "client" }];
  const many = "yes '{},' | head -n 200000 | tr -d '\\n'";
  const line: Step = { sh: `printf '{"chunks":['; ${many}; printf '{"type":"start"}]}\\n'`, wait: true };
  const frames = await daemon.run({ runId: "r", input: { tools }, steps: [line] });
  expect(frames.at(-1)).toMatchObject({ done: true, error: { code: "frame_too_large" } });
}, 20_000);

test("a harness that prints 1 GiB of frames is stopped at the limit, in flat memory", async () => {
  const limit = 256 << 20;
  await using daemon = await TestDaemon.start({ env: { RUN_MAX_BYTES: String(limit), KILL_GRACE_MS: "500" } });
  await daemon.run({ runId: "warm", steps: [{ sh: `yes '${data("x".repeat(900))}' | head -c 20000000`, wait: true }] });
  const before = await residentKib(daemon.pid);
  const health = watchHealth(daemon);
  const response = await daemon.dispatch({
    runId: "r",
    steps: [{ sh: `yes '${data("x".repeat(900))}' | head -c 1073741824`, wait: true }],
  });
  let length = 0;
  let end = "";
  const decoder = new TextDecoder();
  for await (const piece of response.body ?? []) {
    length += (piece as Uint8Array).length;
    end = (end + decoder.decode(piece as Uint8Array)).slice(-2000);
  }
  expect(await health.stop()).toBeGreaterThan(5);
  const last = parseFrames(end.slice(end.indexOf("\n") + 1));
  expect(last.at(-2)?.outcome).toMatchObject({ error: { code: "output_too_large" } });
  expect(last.at(-1)).toMatchObject({ done: true, error: { code: "output_too_large" } });
  expect(length).toBeGreaterThan(limit);
  expect(length).toBeLessThan(limit + (4 << 20));
  expect((await highWaterKib(daemon.pid)) - before).toBeLessThan(96 << 10);
}, 60_000);

test("1 GiB of lines that are no frames is skipped, a few of them logged, in flat memory", async () => {
  await using daemon = await TestDaemon.start();
  const noise = (size: number): Step => ({
    sh: `yes '${"no frame ".repeat(100)}' | head -c ${size}; echo`,
    wait: true,
  });
  await daemon.run({ runId: "warm", steps: [noise(20_000_000)] });
  const before = await residentKib(daemon.pid);
  const health = watchHealth(daemon);
  const from = daemon.log.length;
  const startedAt = performance.now();
  const frames = await daemon.run({ runId: "r", steps: [noise(1 << 30), { line: data("after") }] });
  await daemon.event("dispatch done", from);
  const seconds = (performance.now() - startedAt) / 1000;
  // Again and again, not only at the end; how fast is the bench's to say.
  expect(await health.stop()).toBeGreaterThan(seconds);
  expect(frames.slice(1).map(({ chunks }) => chunks.length)).toEqual([1, 0, 0]);
  const logged = daemon.log.slice(from).filter(({ event }) => event === "harness printed a line that is no frame");
  expect(logged.length).toBeGreaterThan(10);
  expect(logged.length).toBeLessThanOrEqual(50 * Math.ceil(seconds + 1));
  const dropped = daemon.log.slice(from).filter(({ event }) => event === "harness lines dropped");
  const total = dropped.reduce((sum, { lines }) => sum + Number(lines), logged.length);
  expect(total).toBe(Math.ceil((1 << 30) / 901));
  expect((await highWaterKib(daemon.pid)) - before).toBeLessThan(96 << 10);
}, 60_000);
