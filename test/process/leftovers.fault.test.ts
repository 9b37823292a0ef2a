import { afterEach, beforeEach, expect, test } from "bun:test";
import { type ChildProcess, spawn as spawnChild } from "node:child_process";
import { join } from "node:path";
import { MARKER_ENV } from "../../src/process/port.ts";
import { exists, isAlive, openProcesses, pidIn, until } from "./real-processes.ts";

let opened: ReturnType<typeof openProcesses>;
let started: ChildProcess[];
beforeEach(() => {
  opened = openProcesses();
  started = [];
});
afterEach(async () => {
  for (const child of started) child.kill("SIGKILL");
  await opened.processes.endLeftovers(`${opened.nonce}-old`);
  await opened.processes.endLeftovers(`${opened.nonce}-older`);
  await opened.close();
});

const file = (name: string) => `${opened.dir}/${name}`;
const SHELL = "/bin/sh";

/** An earlier daemon with a run; resolves once the run has written `names`. */
async function startHost(nonce: string, script: string, ...names: string[]) {
  const program = join(import.meta.dir, "host-program.ts");
  const host = spawnChild(process.execPath, [program, nonce, script], { detached: true, stdio: "inherit" });
  started.push(host);
  return { host, pids: await Promise.all(names.map((name) => pidIn(file(name)))) };
}

async function kill(host: ChildProcess): Promise<void> {
  const gone = new Promise((resolve) => host.once("exit", resolve));
  host.kill("SIGKILL");
  await gone;
}

test("what a killed daemon left is ended, also out of the group and what descends without a marker", async () => {
  const { host, pids } = await startHost(
    `${opened.nonce}-old`,
    `echo $$ > ${file("main")}; trap "" TERM;
     (setsid ${SHELL} -c 'echo $$ > ${file("stray")}; env -i PATH=/usr/bin:/bin ${SHELL} -c "echo \\$\\$ > ${file("bare")}; while :; do sleep 1; done"; :' &)
     while :; do sleep 1; done`,
    "main",
    "stray",
    "bare",
  );
  await kill(host);
  expect(pids.filter(isAlive)).toEqual(pids);
  // The three shells, and the sleeps of two of them.
  const killed = await opened.processes.endLeftovers(`${opened.nonce}-old`);
  expect(killed).toBeGreaterThanOrEqual(3);
  await until("all of it gone", () => !pids.some(isAlive));
  expect(await opened.processes.endLeftovers(`${opened.nonce}-old`)).toBe(0);
});

test("what another daemon has is not touched, though its nonce begins alike; nor is who has no marker", async () => {
  const script = (name: string) => `echo $$ > ${file(name)}; exec sleep 600`;
  const other = await startHost(`${opened.nonce}-older`, script("other"), "other");
  const old = await startHost(`${opened.nonce}-old`, script("old"), "old");
  const stranger = spawnChild("sleep", ["600"], { detached: true, env: {} });
  const liar = spawnChild("sleep", ["600"], { detached: true, env: { X: `${MARKER_ENV}=${opened.nonce}-old:x` } });
  started.push(stranger, liar);
  await kill(old.host);
  expect(await opened.processes.endLeftovers(`${opened.nonce}-old`)).toBe(1);
  const untouched = [other.host.pid, stranger.pid, liar.pid, ...other.pids].map((pid) => isAlive(pid ?? 0));
  expect(untouched).toEqual([true, true, true, true]);
});

test("the runs of this daemon are no leftovers", async () => {
  const run = opened.processes.spawn({
    argv: [SHELL, "-c", "exec sleep 600"],
    cwd: "/",
    env: {},
    stdin: "",
    runName: "run/1",
  });
  await expect(opened.processes.endLeftovers(opened.nonce)).rejects.toThrow("own");
  expect(exists(run.pid ?? 0)).toBe(true);
});
