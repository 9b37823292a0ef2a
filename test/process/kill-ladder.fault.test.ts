import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { spawn as spawnChild } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { readProcEntry, readProcTable } from "../../src/process/proc-table.ts";
import { exists, isAlive, openProcesses, pidIn, script, until } from "./real-processes.ts";

let opened: ReturnType<typeof openProcesses>;
beforeEach(() => {
  opened = openProcesses();
});
afterEach(async () => {
  await opened.close();
});

const spawn: typeof opened.processes.spawn = (spec) => opened.processes.spawn(spec);
const file = (name: string) => `${opened.dir}/${name}`;
/** Writes its id, ignores SIGTERM, stays. */
const stubborn = (name: string) => `sh -c 'trap "" TERM; echo $$ > ${file(name)}; while :; do sleep 1; done'`;
/** Out of the group and without a parent of the run. `env` may be "env -i PATH=…", which takes the marker away. */
const doubleFork = (env: string, command: string) => `(${env} setsid ${command} &)`;
const NO_ENV = "env -i PATH=/usr/bin:/bin";

describe("the group", () => {
  test("ends on SIGTERM, long before the grace is over", async () => {
    const run = spawn(script(`sleep 600 & echo $! > ${file("child")}; wait`));
    const child = await pidIn(file("child"));
    const start = performance.now();
    expect(await run.end(30_000)).toEqual({ strays: 0, left: [] });
    expect(performance.now() - start).toBeLessThan(10_000);
    expect(await run.exited).toEqual({ type: "signal", signal: "SIGTERM" });
    await run.inert;
    expect(exists(child)).toBe(false);
  });

  test("that ignores SIGTERM is killed after the grace, not before", async () => {
    const run = spawn(script(`trap "" TERM; ${stubborn("child")} & echo $$ > ${file("ready")}; wait`));
    const child = await pidIn(file("child"));
    const start = performance.now();
    const ended = run.end(300);
    await until("most of the grace", () => performance.now() - start > 200);
    expect(isAlive(child)).toBe(true);
    expect(await ended).toEqual({ strays: 0, left: [] });
    expect(performance.now() - start).toBeGreaterThanOrEqual(299);
    expect(await run.exited).toEqual({ type: "signal", signal: "SIGKILL" });
    expect(exists(child)).toBe(false);
  });

  test("is killed at once when a second call shortens the grace", async () => {
    const run = spawn(script(`trap "" TERM; echo $$ > ${file("ready")}; while :; do sleep 1; done`));
    await pidIn(file("ready"));
    const slow = run.end(600_000);
    expect(await run.end(0)).toEqual(await slow);
    expect(await run.exited).toEqual({ type: "signal", signal: "SIGKILL" });
  });

  test("whose leader is gone gets its SIGTERM all the same", async () => {
    const run = spawn(
      script(
        `sh -c 'trap "echo asked > ${file("asked")}; exit" TERM; echo $$ > ${file("child")}; while :; do sleep 0.05; done' &`,
      ),
    );
    expect(await run.exited).toEqual({ type: "exit", code: 0 });
    await pidIn(file("child"));
    await run.end(30_000);
    await until("the child to have been asked", () => Bun.file(file("asked")).size > 0);
  });

  test("that is stopped ends too", async () => {
    const run = spawn(script(`echo $$ > ${file("ready")}; sleep 600`));
    await pidIn(file("ready"));
    process.kill(-(run.pid ?? 0), "SIGSTOP");
    expect(await run.end(50)).toEqual({ strays: 0, left: [] });
  });

  test("that has ended by itself leaves nothing to do", async () => {
    const run = spawn(script("exit 7"));
    await run.exited;
    expect(await run.end(60_000)).toEqual({ strays: 0, left: [] });
    await run.inert;
  });
});

describe("strays", () => {
  test("with an emptied environment and a session of their own are found, killed and reaped", async () => {
    const run = spawn(script(`${doubleFork(NO_ENV, stubborn("stray"))}; exec sleep 600`));
    const stray = await pidIn(file("stray"));
    const report = await run.end(0);
    expect(report.left).toEqual([]);
    expect(report.strays).toBeGreaterThan(0);
    expect(exists(stray)).toBe(false);
    expect(await zombiesOfOurs()).toEqual([]);
  });

  test("of a child that has ended long ago are found", async () => {
    const run = spawn(script(doubleFork(NO_ENV, stubborn("stray"))));
    await run.exited;
    const stray = await pidIn(file("stray"));
    await run.end(0);
    expect(exists(stray)).toBe(false);
  });

  test("that flee by forking all the time are caught", async () => {
    // Each lives for some milliseconds and leaves another one, without parent, session or environment in common.
    const hop = `if [ -d ${opened.dir} ] && [ $1 -lt 3000 ]; then echo $1 > ${file("hops")}; sleep 0.005; (${NO_ENV} setsid sh ${file("hop.sh")} $(($1 + 1)) &); fi`;
    writeFileSync(file("hop.sh"), hop);
    const run = spawn(script(`${doubleFork(NO_ENV, `sh ${file("hop.sh")} 1`)}; exec sleep 600`));
    const hopsNow = () => Bun.file(file("hops")).text().then(Number);
    await until("some hops", () => Bun.file(file("hops")).size > 1);
    expect(await run.end(0)).toMatchObject({ left: [] });
    const hops = await hopsNow();
    await Bun.sleep(100);
    expect(await hopsNow()).toBe(hops);
  });

  test("of one run are not touched by the end of another: told apart by their marker", async () => {
    const a = spawn(script(`${doubleFork("", stubborn("a"))}; exec sleep 600`, { runName: "a/1" }));
    const b = spawn(script(`${doubleFork("", stubborn("b"))}; exec sleep 600`, { runName: "b/1" }));
    const [strayA, strayB] = [await pidIn(file("a")), await pidIn(file("b"))];
    await a.end(0);
    expect([exists(strayA), isAlive(strayB), isAlive(b.pid ?? 0)]).toEqual([false, true, true]);
    await b.end(0);
    expect(exists(strayB)).toBe(false);
  });

  test("of one run are not touched by the end of another: told apart by where they were seen", async () => {
    const child = (name: string) => `${NO_ENV} setsid ${stubborn(name)} & exec sleep 600`;
    const a = spawn(script(child("a"), { runName: "a/1" }));
    const b = spawn(script(child("b"), { runName: "b/1" }));
    const [strayA, strayB] = [await pidIn(file("a")), await pidIn(file("b"))];
    await a.end(0);
    expect([exists(strayA), isAlive(strayB)]).toEqual([false, true]);
    await b.end(0);
    expect(exists(strayB)).toBe(false);
  });

  test("that nothing tells apart end with the last run that they can be of", async () => {
    const a = spawn(script("exec sleep 600", { runName: "a/1" }));
    const b = spawn(script(`${doubleFork(NO_ENV, stubborn("stray"))}; exec sleep 600`, { runName: "b/1" }));
    const stray = await pidIn(file("stray"));
    await bornBefore(stray);
    const later = spawn(script("exec sleep 600", { runName: "c/1" }));
    await a.end(0);
    expect(isAlive(stray)).toBe(true);
    await b.end(0);
    expect(exists(stray)).toBe(false);
    expect(isAlive(later.pid ?? 0)).toBe(true);
  });

  test("of two runs that end together are gone with them", async () => {
    const runs = ["a", "b"].map((name) =>
      spawn(script(`${doubleFork(NO_ENV, stubborn(name))}; exec sleep 600`, { runName: `${name}/1` })),
    );
    const strays = [await pidIn(file("a")), await pidIn(file("b"))];
    await Promise.all(runs.map((run) => run.end(0)));
    expect(strays.filter(exists)).toEqual([]);
  });
});

describe("others", () => {
  test("a helper of the daemon is not touched", async () => {
    const helper = spawnChild("sleep", ["600"], { env: {} });
    const run = spawn(script(`${doubleFork(NO_ENV, stubborn("stray"))}; exec sleep 600`));
    const second = spawnChild("sleep", ["600"], { env: {} });
    await pidIn(file("stray"));
    await run.end(0);
    expect([isAlive(helper.pid ?? 0), isAlive(second.pid ?? 0)]).toEqual([true, true]);
    helper.kill("SIGKILL");
    second.kill("SIGKILL");
  });

  test("an orphan from before the run is not touched", async () => {
    const earlier = spawn(script(`${doubleFork(NO_ENV, stubborn("earlier"))}; exec sleep 600`, { runName: "early/1" }));
    const orphan = await pidIn(file("earlier"));
    await bornBefore(orphan);
    const run = spawn(script("exec sleep 600", { runName: "late/1" }));
    await run.end(0);
    expect(isAlive(orphan)).toBe(true);
    await earlier.end(0);
    expect(exists(orphan)).toBe(false);
  });
});

test("without a scanner a run still ends, with all that is certainly its own", async () => {
  const blind = openProcesses({ scannerArgv: ["/no/such/scanner"] });
  const other = blind.processes.spawn(script("exec sleep 600", { runName: "other/1" }));
  const stray = `${blind.dir}/stray`;
  const run = blind.processes.spawn(
    script(
      `(setsid sh -c 'echo $$ > ${stray}; exec sleep 600' &); (sleep 600 & echo $! > ${file("child")}); exec sleep 600`,
    ),
  );
  const [strayPid, child] = [await pidIn(stray), await pidIn(file("child"))];
  expect(await run.end(0)).toMatchObject({ left: [] });
  expect([exists(child), isAlive(other.pid ?? 0)]).toEqual([false, true]);
  await other.end(0);
  expect(exists(strayPid)).toBe(false);
  await blind.close();
});

test("sixteen runs end together, with their strays", async () => {
  const names = Array.from({ length: 16 }, (_, index) => `run${index}`);
  const runs = names.map((name) =>
    spawn(script(`${doubleFork("", stubborn(name))}; trap "" TERM; while :; do sleep 1; done`, { runName: name })),
  );
  const strays = await Promise.all(names.map((name) => pidIn(file(name))));
  const reports = await Promise.all(runs.map((run) => run.end(100)));
  expect(reports.flatMap(({ left }) => left)).toEqual([]);
  expect([...strays, ...runs.map(({ pid }) => pid ?? 0)].filter(exists)).toEqual([]);
});

/** Resolves when whatever starts from now on is younger than `pid`, as far as the kernel's 10 ms tell. */
async function bornBefore(pid: number): Promise<void> {
  const { born } = readProcEntry(pid) ?? { born: 0 };
  await until("a later birthday", () => {
    const uptimeSeconds = Number.parseFloat(readFileSync("/proc/uptime", "latin1"));
    return uptimeSeconds * 100 > born + 1;
  });
}

async function zombiesOfOurs(): Promise<number[]> {
  const table = await readProcTable();
  return [...table.values()].filter(({ ppid, alive }) => ppid === process.pid && !alive).map(({ pid }) => pid);
}
