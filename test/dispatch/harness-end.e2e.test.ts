/** How harnesses end, and what they leave behind. */
import { expect, test } from "bun:test";
import { copyFile, mkdtemp, readFile, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BINARY, eventually, TestDaemon } from "../support/daemon.ts";
import { Follower } from "../support/follow.ts";
import { CLOSE, FINISHED, OPEN, type Step } from "../support/scripted-harness.ts";

const SHORT = { KILL_GRACE_MS: "300", EXIT_GRACE_MS: "300", EOF_GRACE_MS: "300" };

async function temporaryFolder(): Promise<AsyncDisposable & { path: string }> {
  const path = await mkdtemp(join(tmpdir(), "dispatchd-binary-"));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true }) };
}

/** False for a process that is gone, and reaped. */
async function exists(pid: number): Promise<boolean> {
  return readFile(`/proc/${pid}/stat`, "utf8").then(
    () => true,
    () => false,
  );
}

const pidIn = async (path: string): Promise<number> => Number(await readFile(path, "utf8"));

/** A script that says its process id in the file that it is given, ignores SIGTERM, and stays. */
async function strayScript(daemon: TestDaemon): Promise<string> {
  const path = daemon.path("stray.sh");
  await writeFile(path, `trap '' TERM\necho $$ >"$1.new"\nmv "$1.new" "$1"\nexec sleep 300\n`);
  return path;
}

/** Steps that start the script in a session of its own, as nobody's child, and wait until it is there. */
function leaveBehind(script: string, pidFile: string, prefix = "", output = ">/dev/null 2>&1"): Step[] {
  return [
    { sh: `${prefix} setsid /bin/sh -c '/bin/sh ${script} ${pidFile} ${output} &'`, wait: true },
    { waitFor: pidFile },
  ];
}

test("a program that is not there", async () => {
  await using daemon = await TestDaemon.start({ harness: ["/nonexistent/harness", "x"] });
  const frames = await daemon.run({ runId: "r" });
  expect(frames.map(({ seq }) => seq)).toEqual([1, 2, 3]);
  const error = { code: "harness_crashed", message: "the harness could not be started: ENOENT" };
  expect(frames[1]).toEqual({ seq: 2, chunks: [], outcome: { type: "failed", error } } as never);
  expect(frames[2]).toMatchObject({ done: true, error });
});

test("a binary that is moved, and then removed, under a running daemon still performs turns", async () => {
  await using folder = await temporaryFolder();
  const [binary, moved] = [join(folder.path, "dispatchd"), join(folder.path, "moved")];
  await copyFile(BINARY, binary);
  const env = { CLAUDE_CODE_PATH: join(folder.path, "none") };
  await using daemon = await TestDaemon.start({ binary, harness: null, env });
  const acts = { nothing: () => Promise.resolve(), move: () => rename(binary, moved), remove: () => rm(moved) };
  for (const [runId, act] of Object.entries(acts)) {
    await act();
    const frames = await daemon.run({ runId });
    // The built-in harness was started, and says itself what it lacks here.
    expect(frames.at(-1)?.error?.code).toBe("turn_failed");
  }
});

test("exits and signals are told apart, and an outcome outlives what comes after it", async () => {
  await using daemon = await TestDaemon.start({ env: SHORT });
  const endOf = async (runId: string, steps: Step[]): Promise<unknown> => {
    const frames = await daemon.run({ runId, steps });
    return frames.at(-1)?.error ?? frames.at(-2)?.outcome;
  };
  const crashed = (message: string): unknown => ({ code: "harness_crashed", message });
  expect(await endOf("exit 0", [OPEN, CLOSE])).toEqual({ type: "finished" });
  expect(await endOf("exit 3", [{ exit: 3 }])).toEqual(crashed("the harness exited with code 3"));
  expect(await endOf("signal", [{ signal: "SIGKILL" }])).toEqual(crashed("the harness was ended by SIGKILL"));
  expect(await endOf("own signal", [{ signal: "SIGTERM" }])).toEqual(crashed("the harness was ended by SIGTERM"));
  const usage = { outputTokens: 3 };
  expect(await endOf("finished, then 1", [FINISHED, { exit: 1 }])).toEqual({ type: "finished", usage });
  expect(await endOf("finished, then killed", [FINISHED, { signal: "SIGKILL" }])).toEqual({ type: "finished", usage });
});

test("nothing of a harness counts after its outcome", async () => {
  await using daemon = await TestDaemon.start({ env: SHORT });
  const late: Step[] = [
    { chunks: [{ type: "data-late" }] },
    { json: { outcome: { type: "failed", error: { code: "turn_failed", message: "late" } } } },
    { line: "x".repeat(20_000_000) },
    { exit: 1 },
  ];
  // In one write with the outcome, and in a later one.
  const together = [OPEN, FINISHED.json, ...late.slice(0, 1)].map((step) => JSON.stringify(step)).join("\n");
  for (const [runId, steps] of [
    ["later", [OPEN, FINISHED, { sleepMs: 50 }, ...late]],
    ["together", [{ line: together }, ...late.slice(1)]],
  ] as const) {
    const frames = await daemon.run({ runId, steps });
    expect(frames.map(({ chunks }) => chunks.map(({ type }) => type))).toEqual([
      [],
      ["start", "start-step", "text-start"],
      ["text-end", "finish-step", "finish"],
      [],
    ]);
    expect(frames[2]?.outcome?.type).toBe("finished");
    expect(frames[3]).toMatchObject({ done: true });
    expect(frames[3]?.error).toBeUndefined();
  }
});

test("the outcome is sent before anything is settled", async () => {
  await using daemon = await TestDaemon.start({ env: { EXIT_GRACE_MS: "60000", KILL_GRACE_MS: "60000" } });
  const seen = daemon.path("seen");
  // The harness leaves when the outcome has been read, and not before: were it held back, this would never end.
  const steps: Step[] = [OPEN, { ignoreTerm: true }, FINISHED, { waitFor: seen }];
  const follower = new Follower(await daemon.dispatch({ runId: "r", steps }));
  await follower.until(({ frames }) => frames.at(-1)?.outcome !== undefined);
  expect((await daemon.show("r")).state).toBe("settling");
  expect(await daemon.show("r")).not.toHaveProperty("settled");
  await writeFile(seen, "");
  await follower.ended;
  expect(follower.frames.at(-1)).toMatchObject({ done: true });
  expect(await daemon.show("r")).toMatchObject({ state: "ended", settled: { saved: false } });
});

test("a harness that gave its outcome and does not leave is ended", async () => {
  await using daemon = await TestDaemon.start({ env: SHORT });
  const pidFile = daemon.path("pid");
  const steps: Step[] = [
    { ignoreTerm: true },
    { sh: `echo $PPID >${pidFile}`, wait: true },
    FINISHED,
    { sleepMs: 60_000 },
  ];
  const frames = await daemon.run({ runId: "r", steps });
  expect(frames.at(-1)).toMatchObject({ done: true });
  expect(frames.at(-1)?.error).toBeUndefined();
  expect(await exists(await pidIn(pidFile))).toBe(false);
});

test("a grandchild that floods stdout with large lines is read for as long as any other", async () => {
  await using daemon = await TestDaemon.start({ env: { ...SHORT, EOF_GRACE_MS: "1000" } });
  const line = daemon.path("line");
  const delta = "x".repeat(3_000_000);
  await writeFile(line, `${JSON.stringify({ chunks: [{ type: "text-delta", id: "t", delta }] })}\n`);
  // Many at once: one is always there to be worked on.
  const flood = `while :; do cat ${Array(20).fill(line).join(" ")}; done &`;
  const frames = await daemon.run({ runId: "r", steps: [OPEN, { sh: flood, wait: true }, { exit: 0 }] });
  expect(frames.at(-2)?.outcome?.type).toBe("finished");
});

test("a grandchild that holds stdout is waited for, and then ended", async () => {
  await using daemon = await TestDaemon.start({ env: SHORT });
  const pidFile = daemon.path("pid");
  const said = JSON.stringify({ chunks: [{ type: "data-late", data: 1 }] });
  const frames = await daemon.run({
    runId: "r",
    // What it prints within the grace still counts.
    steps: [
      { sh: `echo $$ >${pidFile}; sleep 0.1; echo '${said}'; exec sleep 300` },
      { waitFor: pidFile },
      { exit: 0 },
    ],
  });
  expect(frames.slice(1).map(({ chunks }) => chunks)).toEqual([[{ type: "data-late", data: 1 }], [], []]);
  expect(frames.at(-2)?.outcome).toEqual({ type: "finished" });
  expect(await exists(await pidIn(pidFile))).toBe(false);
});

for (const [name, prefix, output] of [
  ["in a session of its own", "", undefined],
  ["with an emptied environment", "env -i PATH=/usr/bin:/bin", undefined],
  ["with an emptied environment and the harness's stdout", "env -i PATH=/usr/bin:/bin", ""],
] as const) {
  for (const [way, end] of [
    ["finishes", [FINISHED, { exit: 0 }]],
    ["exits without an outcome", [{ exit: 0 }]],
    ["is cancelled", [{ sleepMs: 60_000 }]],
  ] as const) {
    test(`a stray that ignores SIGTERM, ${name}, is gone when a run that ${way} is done`, async () => {
      await using daemon = await TestDaemon.start({ env: SHORT });
      const pidFile = daemon.path("pid");
      const script = await strayScript(daemon);
      const steps = [OPEN, ...leaveBehind(script, pidFile, prefix, output), ...end];
      const follower = new Follower(await daemon.dispatch({ runId: "r", steps }));
      await eventually(() => Bun.file(pidFile).exists());
      const pid = await pidIn(pidFile);
      if (way === "is cancelled") await daemon.cancel("r");
      await follower.ended;
      expect(follower.frames.at(-1)).toMatchObject({ done: true });
      expect(await exists(pid)).toBe(false);
    });
  }
}

test("the end of one run ends its own strays and no other's", async () => {
  await using daemon = await TestDaemon.start({ env: SHORT });
  const script = await strayScript(daemon);
  const files = { a: daemon.path("a"), b: daemon.path("b") };
  const start = async (runId: "a" | "b"): Promise<Follower> => {
    const steps = [...leaveBehind(script, files[runId]), { sleepMs: 60_000 }];
    return new Follower(await daemon.dispatch({ runId, steps }));
  };
  const [a, b] = await Promise.all([start("a"), start("b")]);
  await eventually(async () => (await Bun.file(files.a).exists()) && (await Bun.file(files.b).exists()));
  const [pidA, pidB] = [await pidIn(files.a), await pidIn(files.b)];
  await daemon.cancel("a");
  await a.ended;
  expect([await exists(pidA), await exists(pidB)]).toEqual([false, true]);
  await daemon.cancel("b");
  await b.ended;
  expect(await exists(pidB)).toBe(false);
});
