/** Flights in real processes, and what becomes of them when the volume or the worker fails. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, open, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "../../src/clock/system.ts";
import type { FlightResult, JobOptions, OrgFs } from "../../src/orgfs/port.ts";
import { createOrgFs } from "../../src/orgfs/supervisor.ts";
import { eventually } from "../support/daemon.ts";
import { recordingLog, silentMetrics } from "../support/silent.ts";
import { mountsMissing, WedgeFs } from "../support/wedgefs/index.ts";

const FIXTURE = [process.execPath, join(import.meta.dir, "worker-fixture.ts")];
const WORKER = [process.execPath, join(import.meta.dir, "real-worker.ts")];

let folder = "";
let fifo = "";
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "flights-"));
  fifo = join(folder, "fifo");
  Bun.spawnSync(["mkfifo", fifo]);
});
afterAll(() => rm(folder, { recursive: true, force: true }));

interface Flights extends Disposable {
  readonly orgFs: OrgFs;
  readonly log: ReturnType<typeof recordingLog>;
  fly(path: string, options?: Partial<JobOptions<null>>): Promise<FlightResult<unknown>>;
}

function flights(workerArgv = FIXTURE, probePath = "about"): Flights {
  const log = recordingLog();
  const mountPathOf = () => probePath;
  const orgFs = createOrgFs({ clock: systemClock, log, metrics: silentMetrics(), workerArgv, mountPathOf });
  return {
    orgFs,
    log,
    fly: (path, options) => orgFs.fly("volume-probe", { path }, { volume: "home", deadlineMs: 10_000, ...options }),
    [Symbol.dispose]: () => orgFs.stop(),
  };
}

/** Not there any more, or dead and not yet reaped. */
function isGone(pid: number): boolean {
  return !existsSync(`/proc/${pid}/exe`);
}

test("a worker gets its job on stdin, and nothing in its arguments, environment, folder or open files", async () => {
  using own = flights();
  const listener = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
  const file = await open(join(folder, "of the daemon"), "w");
  const result = await own.fly("about");
  listener.stop(true);
  await file.close();
  if (result.type !== "done") throw new Error(JSON.stringify(result));
  const about = result.output as {
    argv: string[];
    environ: string;
    cwd: string;
    pid: number;
    files: string[];
    dumpable: boolean;
  };
  expect(about).toMatchObject({ argv: [], environ: "UV_THREADPOOL_SIZE=32\0", cwd: "/" });
  expect(about.dumpable).toBe(false);
  expect(about.files.filter((path) => path.startsWith("/"))).toEqual([]);
  await eventually(() => isGone(about.pid));
});

test("what a job throws comes back with its code; a worker that breaks is told from that", async () => {
  using own = flights();
  expect(await own.fly("throw EIO")).toEqual({ type: "failed", code: "EIO", message: "an error EIO" });
  expect(await own.fly("exit 3")).toMatchObject({
    code: "worker_lost",
    message: expect.stringContaining("the last words"),
  });
  expect(await own.fly("say this is no answer")).toMatchObject({ type: "failed", code: "worker_lost" });
  using absent = flights([join(folder, "no such program")]);
  expect(await absent.fly("about")).toMatchObject({ type: "failed", code: "worker_lost" });
});

test("an answer and an order may be long", async () => {
  using own = flights();
  const answer = await own.fly(`much ${20 << 20}`);
  expect(answer.type === "done" && (answer.output as string).length).toBe(20 << 20);
  const order = await own.fly(`throw ${"E".repeat(5 << 20)}`);
  expect(order.type === "failed" && order.code.length).toBe(5 << 20);
  expect(await own.fly(`much ${65 << 20}`)).toMatchObject({ type: "failed", code: "worker_lost" });
});

test("a flight that is overdue is killed at its deadline, and its lane is free", async () => {
  using own = flights();
  const lane = { lane: "a thread" };
  const startedAt = performance.now();
  const overdue = own.fly(`open ${fifo}`, { ...lane, deadlineMs: 300 });
  const next = own.fly("about", lane);
  expect(await overdue).toMatchObject({ type: "overdue" });
  expect(performance.now() - startedAt).toBeLessThan(1000);
  expect((await next).type).toBe("done");
  const pid = Number(own.log.said.find(({ event }) => event === "org flight overdue")?.fields.pid);
  await eventually(() => isGone(pid));
  expect(own.orgFs.isStuck("a thread")).toBe(false);
  expect(own.orgFs.state()).toEqual({ home: { breaker: "closed", stuck: 0 } });
});

test("a deadline counts from the call: a flight whose lane is taken for longer is never begun", async () => {
  using own = flights();
  const ends = new AbortController();
  const first = own.fly(`open ${fifo}`, { lane: "a thread", signal: ends.signal });
  const second = await own.fly("about", { lane: "a thread", deadlineMs: 100 });
  expect(second).toMatchObject({ type: "overdue" });
  ends.abort();
  expect(await first).toEqual({ type: "aborted" });
});

test("flights of one lane never overlap, those of others do", async () => {
  using own = flights();
  const ends = new AbortController();
  const first = own.fly(`open ${fifo}`, { lane: "a", signal: ends.signal });
  let second: FlightResult<unknown> | undefined;
  const after = own.fly("about", { lane: "a" }).then((result) => {
    second = result;
  });
  expect((await own.fly("about", { lane: "b" })).type).toBe("done");
  expect((await own.fly("about")).type).toBe("done");
  expect(second).toBeUndefined();
  ends.abort();
  await first;
  await after;
  expect(second).toMatchObject({ type: "done" });
});

test("who aborts gets no result any more, whether the flight has begun or not", async () => {
  using own = flights();
  expect(await own.fly("about", { signal: AbortSignal.abort() })).toEqual({ type: "aborted" });
  const ends = new AbortController();
  const running = own.fly(`open ${fifo}`, { signal: ends.signal });
  setTimeout(() => ends.abort(), 50);
  expect(await running).toEqual({ type: "aborted" });
});

test("a worker that answers and does not end is ended", async () => {
  using own = flights();
  expect(await own.fly(`linger ${fifo}`)).toMatchObject({ type: "done", output: "lingering" });
  await eventually(() => workersLeft() === 0);
});

/** Of this process, living or stuck. */
function workersLeft(): number {
  const { stdout } = Bun.spawnSync(["ps", "--ppid", String(process.pid), "-o", "args="]);
  return stdout
    .toString()
    .split("\n")
    .filter((line) => line.includes("worker-fixture")).length;
}

test("at the fourth overdue flight in a row flights are refused, until a probe comes back", async () => {
  const answers = join(folder, "answers");
  using own = flights(FIXTURE, `open ${answers}`);
  Bun.spawnSync(["mkfifo", answers]);
  const overdue = await Promise.all([1, 2, 3, 4].map(() => own.fly(`open ${fifo}`, { deadlineMs: 200 })));
  expect(overdue.map(({ type }) => type)).toEqual(Array(4).fill("overdue"));
  const startedAt = performance.now();
  expect(await own.fly("about")).toEqual({ type: "refused" });
  expect(performance.now() - startedAt).toBeLessThan(20);
  // Another volume has a breaker of its own.
  expect((await own.fly("about", { volume: "public" })).type).toBe("done");
  await eventually(() => own.orgFs.state().home?.breaker === "probing");
  expect(await own.fly("about")).toEqual({ type: "refused" });
  const writer = spawn("sh", ["-c", `: > ${answers}`]);
  await eventually(() => own.orgFs.state().home?.breaker === "closed");
  writer.kill("SIGKILL");
  expect((await own.fly("about")).type).toBe("done");
});

test("a flight that comes back from a call that did not is no answer of the volume", async () => {
  using own = flights(FIXTURE, `open ${fifo}`);
  const hang = () => own.fly(`open ${fifo}`, { deadlineMs: 150 });
  await Promise.all([hang(), hang(), hang()]);
  expect((await own.fly("about", { proves: () => false })).type).toBe("done");
  await hang();
  expect(await own.fly("about")).toEqual({ type: "refused" });
});

test("stopping ends the flights under way, and nobody waits", async () => {
  const own = flights();
  const running = own.fly(`open ${fifo}`);
  await eventually(() => workersLeft() > 0);
  own.orgFs.stop();
  expect(await running).toEqual({ type: "aborted" });
  await eventually(() => workersLeft() === 0);
});

test("workers die with the daemon", async () => {
  const script = `
    import { createOrgFs } from ${JSON.stringify(join(import.meta.dir, "../../src/orgfs/supervisor.ts"))};
    import { systemClock } from ${JSON.stringify(join(import.meta.dir, "../../src/clock/system.ts"))};
    import { recordingLog, silentMetrics } from ${JSON.stringify(join(import.meta.dir, "../support/silent.ts"))};
    const orgFs = createOrgFs({ clock: systemClock, log: recordingLog(), metrics: silentMetrics(),
      workerArgv: ${JSON.stringify(FIXTURE)}, mountPathOf: () => "about" });
    const options = { volume: "home", deadlineMs: 60_000 };
    console.log((await orgFs.fly("volume-probe", { path: "about" }, options)).type);
    void orgFs.fly("volume-probe", { path: ${JSON.stringify(`open ${fifo}`)} }, options);
    setInterval(() => {}, 1000);`;
  const path = join(folder, "daemon.ts");
  await writeFile(path, script);
  const daemon = spawn(process.execPath, [path], { stdio: ["ignore", "pipe", "inherit"] });
  await new Promise((resolve) => daemon.stdout.once("data", resolve));
  const workersOf = (): number[] => {
    const { stdout } = Bun.spawnSync(["ps", "--ppid", String(daemon.pid), "-o", "pid="]);
    return stdout.toString().trim().split(/\s+/).filter(Boolean).map(Number);
  };
  await eventually(() => workersOf().length === 1);
  const [worker = 0] = workersOf();
  daemon.kill("SIGKILL");
  await eventually(() => isGone(worker));
});

const needsMount = test.skipIf(mountsMissing !== undefined && process.env.CI === undefined);

needsMount("workers that cannot die are counted and left, and the volume's answer frees them", async () => {
  const mountPoint = join(folder, "mount");
  await using mount = await WedgeFs.mount(mountPoint);
  using own = flights(WORKER, mountPoint);
  expect((await own.fly(mountPoint)).type).toBe("done");
  await mount.hold();
  const startedAt = performance.now();
  const results = await Promise.all([1, 2, 3, 4].map(() => own.fly(mountPoint, { deadlineMs: 500 })));
  expect(performance.now() - startedAt).toBeLessThan(1500);
  expect(results.map(({ type }) => type)).toEqual(Array(4).fill("overdue"));
  expect(await own.fly(mountPoint)).toEqual({ type: "refused" });
  await eventually(() => own.orgFs.state().home?.stuck === 4);
  expect(own.log.said.filter(({ event }) => event === "org worker stuck").length).toBe(4);
  await mount.release();
  await eventually(() => own.orgFs.state().home?.stuck === 0);
  await eventually(() => own.orgFs.state().home?.breaker === "closed");
  expect((await own.fly(mountPoint)).type).toBe("done");
});

needsMount("flights that were called off at a volume that hangs count as well", async () => {
  const mountPoint = join(folder, "called off");
  await using mount = await WedgeFs.mount(mountPoint);
  using own = flights(WORKER, mountPoint);
  await mount.hold();
  const ends = new AbortController();
  const called = Promise.all([1, 2, 3, 4].map(() => own.fly(mountPoint, { signal: ends.signal })));
  await eventually(async () => (await mount.held()).length === 4);
  ends.abort();
  expect((await called).map(({ type }) => type)).toEqual(Array(4).fill("aborted"));
  await eventually(() => own.orgFs.state().home?.breaker === "open");
  await mount.release();
});

needsMount("a volume that went away fails at once, and opens no breaker", async () => {
  const mountPoint = join(folder, "gone");
  await using mount = await WedgeFs.mount(mountPoint);
  using own = flights(WORKER, mountPoint);
  await mount.vanish();
  for (let flight = 0; flight < 5; flight++) expect(await own.fly(mountPoint)).toMatchObject({ code: "ENOTCONN" });
  expect(own.orgFs.state()).toEqual({ home: { breaker: "closed", stuck: 0 } });
});

needsMount(
  "a volume that lists its folders and hangs at its files costs one worker more each time",
  async () => {
    const mountPoint = join(folder, "files");
    await using mount = await WedgeFs.mount(mountPoint);
    await writeFile(join(mount.backing, "file"), "text");
    await mount.hold({ path: "file" });
    using own = flights(FIXTURE, "about");
    const fly = () => own.fly(`open ${join(mountPoint, "file")}`, { deadlineMs: 300 });
    await Promise.all([1, 2, 3, 4].map(fly));
    await eventually(() => own.orgFs.state().home?.breaker === "closed");
    expect((await fly()).type).toBe("overdue");
    expect(own.orgFs.state().home?.breaker).not.toBe("closed");
    await eventually(() => own.orgFs.state().home?.stuck === 5);
  },
  20_000,
);
