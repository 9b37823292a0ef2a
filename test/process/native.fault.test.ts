import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { lockFile } from "../../src/process/native.ts";
import { exists, isAlive, pidIn, until } from "./real-processes.ts";

const NATIVE = join(import.meta.dir, "../../src/process/native.ts");

let dir: string;
let started: ChildProcess[];
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "dispatchd-native-"));
  started = [];
});
afterEach(() => {
  for (const child of started) child.kill("SIGKILL");
  rmSync(dir, { recursive: true });
});

/** A program of its own, which ends at the latest with the test. */
function run(text: string): ChildProcess {
  const program = join(dir, `program-${started.length}.ts`);
  writeFileSync(program, `import * as native from ${JSON.stringify(NATIVE)};\n${text}`);
  const child = spawn(process.execPath, [program], { stdio: ["ignore", "pipe", "inherit"] });
  started.push(child);
  return child;
}

async function firstLine(child: ChildProcess): Promise<string> {
  let text = "";
  for await (const chunk of child.stdout ?? []) {
    text += chunk;
    if (text.includes("\n")) break;
  }
  return text.split("\n")[0] ?? "";
}

describe("a lock", () => {
  const path = () => join(dir, "lock");
  const holder = (more: string) =>
    run(`const lock = native.lockFile(${JSON.stringify(path())});
         console.log(lock === "held" ? "held" : "mine"); ${more}; setInterval(() => {}, 1000);`);

  test("keeps another process out until it is released", async () => {
    const lock = lockFile(path());
    expect(await firstLine(holder(""))).toBe("held");
    if (lock !== "held") lock.release();
    expect(await firstLine(holder(""))).toBe("mine");
    expect(lockFile(path())).toBe("held");
  });

  test("ends with its process, though that was killed and has a child that lives", async () => {
    const child = holder(
      `require("node:child_process").spawn("sh", ["-c", "echo $$ > ${dir}/child; exec sleep 600"], { detached: true })`,
    );
    const grandchild = await pidIn(`${dir}/child`);
    expect(lockFile(path())).toBe("held");
    const gone = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGKILL");
    await gone;
    const lock = lockFile(path());
    expect(lock).not.toBe("held");
    expect(isAlive(grandchild)).toBe(true);
    process.kill(grandchild, "SIGKILL");
    if (lock !== "held") lock.release();
  });

  test("throws where it cannot be", () => {
    expect(() => lockFile(join(dir, "none", "lock"))).toThrow("ENOENT");
  });
});

test("a non-dumpable process is one", async () => {
  const child = run(`
    import { dlopen } from "bun:ffi";
    const { prctl } = dlopen("libc.so.6", { prctl: { args: ["i32"], returns: "i32" } }).symbols;
    const PR_GET_DUMPABLE = 3;
    const before = prctl(PR_GET_DUMPABLE);
    native.makeNonDumpable();
    console.log(before, prctl(PR_GET_DUMPABLE));`);
  expect(await firstLine(child)).toBe("1 0");
});

test("a process that asked for it dies with its parent", async () => {
  const inner = join(dir, "inner.ts");
  writeFileSync(
    inner,
    `import { setParentDeathSignal } from ${JSON.stringify(NATIVE)};
     setParentDeathSignal(9);
     require("node:fs").writeFileSync(${JSON.stringify(`${dir}/inner`)}, String(process.pid));
     setInterval(() => {}, 1000);`,
  );
  const parent =
    run(`require("node:child_process").spawn(process.execPath, [${JSON.stringify(inner)}], { detached: true });
    setInterval(() => {}, 1000);`);
  const pid = await pidIn(`${dir}/inner`);
  expect(isAlive(pid)).toBe(true);
  parent.kill("SIGKILL");
  await until("the child to die", () => !isAlive(pid));
});

test("a subreaper adopts an orphan, and frees its process id", async () => {
  const child = run(`
    native.becomeSubreaper();
    const { spawnSync } = require("node:child_process");
    spawnSync("sh", ["-c", "(setsid sh -c 'echo $$ > ${dir}/orphan; exec sleep 600' &)"], { stdio: "ignore" });
    const fs = require("node:fs");
    const read = () => { try { return Number(fs.readFileSync("${dir}/orphan", "utf8")); } catch { return 0; } };
    const waiting = setInterval(() => {
      const pid = read();
      if (!pid) return;
      clearInterval(waiting);
      const parent = Number(fs.readFileSync("/proc/" + pid + "/stat", "latin1").split(") ")[1].split(" ")[1]);
      const early = native.reap(pid);
      process.kill(pid, "SIGKILL");
      const reaping = setInterval(() => {
        if (!native.reap(pid)) return;
        clearInterval(reaping);
        console.log(JSON.stringify([parent === process.pid, early, native.reap(pid)]));
      }, 5);
    }, 5);`);
  expect(await firstLine(child)).toBe("[true,false,false]");
  expect(exists(await pidIn(`${dir}/orphan`))).toBe(false);
});
