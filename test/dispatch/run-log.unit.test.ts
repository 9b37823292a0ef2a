import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtemp, readdir, readFile, readlink, rm, stat, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { MAX_PENDING_BYTES, RunLog } from "../../src/dispatch/run-log.ts";

let folder: string;
let files = 0;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "dispatchd-log-"));
});
afterAll(() => rm(folder, { recursive: true }));

const newPath = (): string => join(folder, `${++files}.ndjson`);
const unexpected = (error: unknown): never => {
  throw error;
};
const newLog = (path = newPath()): RunLog => RunLog.create(path, Promise.resolve(), unexpected);
const lineOf = (seq: number, size = 0): string => `{"seq":${seq},"chunks":["${"x".repeat(size)}"]}\n`;

async function readAll(log: RunLog, from = 0, block = 1 << 20): Promise<string> {
  const parts: Buffer[] = [];
  for (let at = from; at < log.end; ) {
    const part = await log.read(at, block);
    parts.push(part);
    at += part.length;
  }
  return Buffer.concat(parts).toString();
}

/** Sizes of lines around what a seek reads at a time, and far from it. */
const SHAPES: Record<string, (seq: number) => number> = {
  "tiny lines": () => 0,
  "lines of all sizes": (seq) => (seq * 7919) % 3000,
  "huge lines among tiny ones": (seq) => (seq % 97 === 0 ? 300_000 : seq % 5),
  "huge lines in a row": (seq) => (seq > 100 && seq < 106 ? 700_000 : 10),
  "a huge first and a huge last line": (seq) => (seq === 1 || seq === COUNT ? 1 << 20 : 40),
  "lines of exactly the window": () => (64 << 10) - lineOf(1).length,
};
const COUNT = 400;

for (const [shape, sizeOf] of Object.entries(SHAPES)) {
  test(`every seq is found: ${shape}`, async () => {
    const count = shape === "lines of exactly the window" ? 120 : COUNT;
    const log = newLog();
    const ends = [0];
    for (let seq = 1; seq <= count; seq++) {
      const line = lineOf(seq, sizeOf(seq));
      ends.push((ends.at(-1) ?? 0) + line.length);
      log.append(Buffer.from(line));
      await log.drained();
    }
    await log.flushed();
    log.retain();
    for (let seq = 0; seq <= count; seq++) {
      if ((await log.offsetAfter(seq)) !== ends[seq])
        expect(`${seq}: ${await log.offsetAfter(seq)}`).toBe(`${seq}: ${ends[seq]}`);
    }
    expect(await log.offsetAfter(count + 10)).toBe(log.end);
    expect((await log.lastLine())?.toString()).toBe(lineOf(count, sizeOf(count)).trimEnd());
    await log.finish();
    await log.release();
  });
}

test("an empty log has no line and one place", async () => {
  const log = newLog();
  expect(await log.offsetAfter(0)).toBe(0);
  expect(await log.offsetAfter(5)).toBe(0);
  expect(await log.lastLine()).toBeUndefined();
  await log.finish();
  expect(log.end).toBe(0);
});

test("readers move by whole lines, in the order of the appends", async () => {
  const log = newLog();
  const seen: number[] = [];
  let expected = "";
  const watch = (): void => {
    seen.push(log.end);
    if (!log.finished) log.onChange(watch);
  };
  log.onChange(watch);
  const ends = new Set([0]);
  for (let seq = 1; seq <= 500; seq++) {
    const line = lineOf(seq, seq % 50);
    expected += line;
    ends.add(expected.length);
    log.append(Buffer.from(line));
    if (seq % 60 === 0) await log.flushed();
  }
  await log.finish();
  expect(await readAll(log, 0, 77)).toBe(expected);
  expect(seen.every((end) => ends.has(end))).toBe(true);
  expect(seen.length).toBeGreaterThan(5);
});

test("what waits for the disk is bounded by whoever asks first", async () => {
  let letGo = (): void => {};
  const gate = new Promise<void>((resolve) => {
    letGo = resolve;
  });
  const log = RunLog.create(newPath(), gate, unexpected);
  log.append(Buffer.from(lineOf(1, MAX_PENDING_BYTES)));
  let drained = false;
  void log.drained().then(() => {
    drained = true;
  });
  await Bun.sleep(5);
  expect({ drained, end: log.end }).toEqual({ drained: false, end: 0 });
  letGo();
  await log.drained();
  expect(log.pendingBytes).toBe(0);
  await log.finish();
});

test("the file is closed when it is finished and nobody reads, and opened again for who comes late", async () => {
  const log = newLog();
  const open = async (): Promise<number> => {
    const fds = await readdir("/proc/self/fd");
    const targets = await Promise.all(fds.map((fd) => readlink(`/proc/self/fd/${fd}`).catch(() => "")));
    return targets.filter((target) => target === join(folder, `${files}.ndjson`)).length;
  };
  log.append(Buffer.from(lineOf(1)));
  log.retain();
  await log.finish();
  expect(await open()).toBe(1);
  await log.release();
  expect(await open()).toBe(0);
  log.retain();
  log.retain();
  const texts = await Promise.all([readAll(log), readAll(log, 0, 5), readAll(log, 3)]);
  expect(texts).toEqual([lineOf(1), lineOf(1), lineOf(1).slice(3)]);
  expect(await open()).toBe(1);
  await log.release();
  expect(await open()).toBe(1);
  await log.release();
  expect(await open()).toBe(0);
  // Without anybody who holds it, each read opens and closes.
  expect(await readAll(log)).toBe(lineOf(1));
  expect(await open()).toBe(0);
});

test("a log that is dropped while it is written is closed after its last line", async () => {
  const path = newPath();
  const log = newLog(path);
  log.append(Buffer.from(lineOf(1)));
  await log.close();
  expect(await readFile(path, "utf8")).toBe(lineOf(1));
});

test("a file that somebody shortened fails its readers instead of keeping them busy", async () => {
  const path = newPath();
  const log = newLog(path);
  for (let seq = 1; seq <= 10; seq++) log.append(Buffer.from(lineOf(seq, 20_000)));
  await log.finish();
  await truncate(path, 30_000);
  await expect(readAll(log)).rejects.toThrow("shorter");
  await expect(log.offsetAfter(9)).rejects.toThrow("shorter");
});

const WHOLE = lineOf(1, 10) + lineOf(2, 100_000) + lineOf(3);
const TAILS: Record<string, string | Buffer> = {
  nothing: "",
  "a torn line": '{"seq":4,"chun',
  "a torn line longer than a seek's window": `{"seq":4,"chunks":["${"y".repeat(200_000)}`,
  "a whole line but for its newline": lineOf(4).trimEnd(),
  "a hole that the file system left": Buffer.alloc(5000),
  "a hole with a line's end": Buffer.concat([Buffer.alloc(70_000), Buffer.from("]}\n")]),
  "a line with a hole in it": Buffer.concat([Buffer.from('{"seq":4,"chunks":['), Buffer.alloc(9), Buffer.from("]}\n")]),
  "several lines that are no frames": '\n\n{"seq":"4"}\nwhat\n[]\n{"chunks":[]}\n{"seq":4,',
};

for (const [name, tail] of Object.entries(TAILS)) {
  test(`a log is recovered to its last whole frame: ${name}`, async () => {
    const path = newPath();
    await writeFile(path, Buffer.concat([Buffer.from(WHOLE), Buffer.from(tail)]));
    const log = await RunLog.recover(path, unexpected);
    expect(log.end).toBe(WHOLE.length);
    expect((await stat(path)).size).toBe(WHOLE.length);
    log.append(Buffer.from(lineOf(4)));
    await log.finish();
    expect(await readFile(path, "utf8")).toBe(WHOLE + lineOf(4));
    expect(await log.offsetAfter(3)).toBe(WHOLE.length);
  });

  test(`a log of nothing else is recovered as empty: ${name}`, async () => {
    const path = newPath();
    await writeFile(path, tail);
    const log = await RunLog.recover(path, unexpected);
    expect(log.end).toBe(0);
    log.append(Buffer.from(lineOf(1)));
    await log.finish();
    expect(await readFile(path, "utf8")).toBe(lineOf(1));
  });
}
