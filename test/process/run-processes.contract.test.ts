import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { MARKER_ENV } from "../../src/process/port.ts";
import { readProcEntry } from "../../src/process/proc-table.ts";
import { exists, isAlive, openProcesses, pidIn, readAll, script, until } from "./real-processes.ts";

const GIB = 1 << 30;

let opened: ReturnType<typeof openProcesses>;
beforeAll(() => {
  opened = openProcesses();
});
afterAll(() => opened.close());

const spawn: typeof opened.processes.spawn = (spec) => opened.processes.spawn(spec);

describe("input", () => {
  test("arrives whole, also where a piece would end between two halves of a character", async () => {
    // 65,535 characters and then pairs: every boundary of a piece falls into the middle of one.
    const stdin = `${"a".repeat(65_535)}${"𝄞é".repeat(1 << 20)}`;
    const run = spawn(script("exec cat", { stdin }));
    expect((await readAll(run.stdout)) === stdin).toBe(true);
    expect(await run.exited).toEqual({ type: "exit", code: 0 });
  });

  test("that nobody reads is no error", async () => {
    const run = spawn(script("exec <&-; echo done; exit 4", { stdin: "x".repeat(4 << 20) }));
    expect(await readAll(run.stdout)).toBe("done\n");
    expect(await run.exited).toEqual({ type: "exit", code: 4 });
  });
});

describe("output", () => {
  test("of a reader that pauses holds the child back, and memory stays flat over 1 GiB", async () => {
    const run = spawn(script(`exec head -c ${GIB} /dev/zero`));
    const reader = run.stdout[Symbol.asyncIterator]();
    const first = await reader.next();
    await until("a child that waits", () => {
      const written = bytesWritten(run.pid);
      return Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 50) && written === bytesWritten(run.pid);
    });
    expect(bytesWritten(run.pid)).toBeLessThan(4 << 20);
    let total = first.value?.byteLength ?? 0;
    // How much garbage lies about is the collector's choice; what is held grows with what was read.
    const peaks = [0, 0];
    for (let next = await reader.next(); !next.done; next = await reader.next()) {
      total += next.value.byteLength;
      const half = total < GIB / 2 ? 0 : 1;
      peaks[half] = Math.max(peaks[half] ?? 0, process.memoryUsage.rss());
    }
    expect(total).toBe(GIB);
    expect((peaks[1] ?? 0) - (peaks[0] ?? 0)).toBeLessThan(96 << 20);
    expect(await run.exited).toEqual({ type: "exit", code: 0 });
  });

  test("waits for a reader who comes after the exit", async () => {
    const run = spawn(script("head -c 150000 /dev/zero; echo end >&2"));
    await run.exited;
    expect((await readAll(run.stdout)).length).toBe(150_000);
    expect(await readAll(run.stderr)).toBe("end\n");
  });

  test("that a descendant keeps open ends at closeOutput, after what had arrived", async () => {
    const run = spawn(script(`sleep 600 & echo $! > ${opened.dir}/holder; head -c 150000 /dev/zero`));
    expect(await run.exited).toEqual({ type: "exit", code: 0 });
    const holder = await pidIn(`${opened.dir}/holder`);
    run.closeOutput();
    expect((await readAll(run.stdout)).length).toBe(150_000);
    expect(await readAll(run.stderr)).toBe("");
    expect(isAlive(holder)).toBe(true);
    await run.end(0);
    expect(exists(holder)).toBe(false);
  });

  test("that a descendant goes on filling ends at closeOutput too", async () => {
    const run = spawn(script("yes & exit 0"));
    await run.exited;
    run.closeOutput();
    expect((await readAll(run.stdout)).length).toBeLessThan(3 << 20);
    await run.end(0);
  });
});

describe("a child", () => {
  test("leads a session and a group, and has its environment and the marker, nothing else", async () => {
    const run = spawn({ ...script(""), argv: ["/usr/bin/env"], env: { A: "1" }, runName: "names/1" });
    const { pgrp, session } = readProcEntry(run.pid ?? 0) ?? {};
    expect([pgrp, session]).toEqual([run.pid, run.pid]);
    const lines = (await readAll(run.stdout)).trim().split("\n").sort();
    expect(lines).toEqual(["A=1", `${MARKER_ENV}=${opened.nonce}:names/1`]);
  });

  test("that a signal ended says which", async () => {
    expect(await spawn(script("kill -USR1 $$")).exited).toEqual({ type: "signal", signal: "SIGUSR1" });
  });

  test.if(process.getuid?.() === 0)("runs as another user without the daemon's groups (needs root)", async () => {
    const run = spawn(script("id -u; id -G", { user: { uid: 12_345, gid: 12_346 } }));
    expect(await readAll(run.stdout)).toBe("12345\n12346\n");
  });
});

describe("a program that cannot be started", () => {
  const cases = {
    ENOENT: { argv: ["/no/such/program"] },
    "ENOENT (working directory)": { cwd: "/no/such/folder" },
    "ENOTDIR (working directory)": { cwd: "/etc/passwd" },
    EACCES: { argv: ["/etc/passwd"] },
    E2BIG: { argv: ["/bin/true", "x".repeat(3 << 20)] },
    EINVAL: { argv: ["/bin/true", "a\0b"] },
  };
  for (const [reason, more] of Object.entries(cases)) {
    test(`says ${reason}`, async () => {
      const run = spawn(script("", more));
      expect(await run.exited).toEqual({ type: "unstarted", reason });
      expect(run.pid).toBeUndefined();
      expect(await readAll(run.stdout)).toBe("");
      expect(await readAll(run.stderr)).toBe("");
      expect(await run.end(60_000)).toEqual({ strays: 0, left: [] });
      await run.inert;
    });
  }

  test("says EINVAL without any", async () => {
    expect(await spawn(script("", { argv: [] })).exited).toEqual({ type: "unstarted", reason: "EINVAL" });
  });
});

function bytesWritten(pid: number | undefined): number {
  return Number(/^wchar: (\d+)$/m.exec(readFileSync(`/proc/${pid}/io`, "utf8"))?.[1]);
}
