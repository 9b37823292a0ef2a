import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtemp, open, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type OpenFile, RunLog } from "../../src/dispatch/run-log.ts";

let folder: string;
let files = 0;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "dispatchd-log-"));
});
afterAll(() => rm(folder, { recursive: true }));

class Fault extends Error {
  constructor(readonly code: string) {
    super(`${code}: injected`);
  }
}

type Failure = "error" | "short, then error" | "no byte";

/** A file system whose writes go wrong from the n-th on. Opening the file is the first operation. */
function failingFrom(n: number, how: Failure, andTruncate: boolean): { openFile: OpenFile; failed: () => boolean } {
  let operations = 0;
  let failed = false;
  const next = (): boolean => {
    if (++operations >= n) failed = true;
    return failed;
  };
  const openFile: OpenFile = async (path, flags, mode) => {
    if (flags === "wx+" && next()) throw new Fault("ENOSPC");
    const file = await open(path, flags, mode);
    return {
      read: file.read.bind(file) as typeof file.read,
      stat: file.stat.bind(file) as typeof file.stat,
      close: () => file.close(),
      async truncate(length) {
        if (failed && andTruncate) throw new Fault("EIO");
        await file.truncate(length);
      },
      async write(bytes, offset, length, position) {
        const wasFailed = failed;
        if (!next()) return file.write(bytes, offset, length, position);
        if (how === "no byte") return { bytesWritten: 0 };
        if (how === "short, then error" && !wasFailed && length > 1) {
          return file.write(bytes, offset, Math.floor(length / 2), position);
        }
        throw new Fault("ENOSPC");
      },
    };
  };
  return { openFile, failed: () => failed };
}

const lineOf = (seq: number): string => `{"seq":${seq},"chunks":["${"x".repeat((seq * 37) % 400)}"]}\n`;
const LINES = 12;
const ALL = Array.from({ length: LINES }, (_, index) => lineOf(index + 1)).join("");

async function readAll(log: RunLog, from: number): Promise<string> {
  const parts: Buffer[] = [];
  for (let at = from; at < log.end; ) {
    const part = await log.read(at, 100);
    parts.push(part);
    at += part.length;
  }
  return Buffer.concat(parts).toString();
}

for (const how of ["error", "short, then error", "no byte"] as const) {
  for (const andTruncate of [false, true]) {
    test(`a disk that fails at any write: ${how}${andTruncate ? ", and the file cannot be cut" : ""}`, async () => {
      let sawFault = true;
      let n = 0;
      while (sawFault) {
        const disk = failingFrom(++n, how, andTruncate);
        const path = join(folder, `${++files}.ndjson`);
        let failures = 0;
        const log = RunLog.create(
          path,
          Promise.resolve(),
          () => {
            failures++;
            // As a run does: its outcome comes from within the report of the failure.
            log.append(Buffer.from(lineOf(LINES + 1)));
          },
          disk.openFile,
        );
        for (let seq = 1; seq <= LINES; seq++) {
          log.append(Buffer.from(lineOf(seq)));
          if (seq % 2 === 0) await log.flushed();
        }
        await log.flushed();
        await log.finish();
        sawFault = disk.failed();
        expect(failures).toBe(sawFault ? 1 : 0);
        expect(log.failed).toBe(sawFault);

        // Whoever reads gets every line, from the disk or from memory.
        const text = await readAll(log, 0);
        const rest = sawFault ? lineOf(LINES + 1) : "";
        expect(text.split("\n").toSorted()).toEqual(`${ALL}${rest}`.split("\n").toSorted());
        const order = text.split("\n").flatMap((line) => (line ? [Number(JSON.parse(line).seq)] : []));
        expect(order.filter((seq) => seq <= LINES)).toEqual(Array.from({ length: LINES }, (_, index) => index + 1));

        // What is on the disk is a beginning of it in whole lines, at once or after a restart.
        if (n === 1) continue; // There is no file.
        const stored = await readFile(path, "utf8");
        if (!andTruncate) expect(stored === "" || stored.endsWith("\n")).toBe(true);
        const recovered = await RunLog.recover(path, () => {});
        const kept = await readAll(recovered, 0);
        expect(text.startsWith(kept)).toBe(true);
        expect(kept === "" || kept.endsWith("\n")).toBe(true);
        if (!sawFault) expect(kept).toBe(ALL);
        await recovered.finish();
      }
      expect(n).toBeGreaterThan(LINES / 2);
    });
  }
}

test("a folder that cannot be made is a disk that failed, told by the first line and by nothing else", async () => {
  const failures: unknown[] = [];
  const log = RunLog.create(join(folder, "none", "1.ndjson"), Promise.reject(new Fault("ENOSPC")), (error) =>
    failures.push(error),
  );
  await Bun.sleep(5);
  expect(failures).toEqual([]);
  for (let seq = 1; seq <= 3; seq++) log.append(Buffer.from(lineOf(seq)));
  await log.finish();
  expect(failures).toEqual([new Fault("ENOSPC")]);
  expect(await readAll(log, 0)).toBe(lineOf(1) + lineOf(2) + lineOf(3));
  expect(await log.offsetAfter(2)).toBe(lineOf(1).length + lineOf(2).length);
  expect((await log.lastLine())?.toString()).toBe(lineOf(3).trimEnd());
});

test("seqs are found across the end of what was stored", async () => {
  const disk = failingFrom(4, "error", false);
  const log = RunLog.create(join(folder, `${++files}.ndjson`), Promise.resolve(), () => {}, disk.openFile);
  const ends = [0];
  for (let seq = 1; seq <= LINES; seq++) {
    log.append(Buffer.from(lineOf(seq)));
    ends.push((ends.at(-1) ?? 0) + lineOf(seq).length);
    await log.flushed();
  }
  await log.finish();
  for (let seq = 0; seq <= LINES; seq++) {
    expect(await log.offsetAfter(seq)).toBe(ends[seq] ?? -1);
    expect(await readAll(log, ends[seq] ?? -1)).toBe(ALL.slice(ends[seq]));
  }
});

test("a log that could not be opened once can be opened the next time", async () => {
  let refuse = false;
  const openFile: OpenFile = async (path, flags, mode) => {
    if (refuse) throw new Fault("EMFILE");
    return open(path, flags, mode);
  };
  const log = RunLog.create(join(folder, `${++files}.ndjson`), Promise.resolve(), () => {}, openFile);
  log.append(Buffer.from(lineOf(1)));
  await log.finish();
  refuse = true;
  await expect(log.read(0, 10)).rejects.toThrow("EMFILE");
  refuse = false;
  expect(await readAll(log, 0)).toBe(lineOf(1));
});
