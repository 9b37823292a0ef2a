import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { eventually, TestDaemon } from "../support/daemon.ts";

test("a turn for a checkout that is not there fails by name, and leaves no folder behind", async () => {
  await using daemon = await TestDaemon.start();
  for (const runId of ["r1", "r2", "r3"]) {
    const frames = await daemon.run({ runId, input: { workspace: { cwd: "/repo" } } });
    expect(frames[0]?.preparation?.session).toBe("fresh");
    expect(frames.at(-1)).toMatchObject({ done: true, error: { code: "turn_failed" } });
    expect(frames.at(-1)?.error?.message).toContain("/repo");
  }
  expect(await readdir(join(daemon.stateDir, "agent/runs"))).toEqual([]);
  expect(await daemon.starts()).toEqual([]);
});

test("what is hidden is what the harness gets, though it was configured while the run waited", async () => {
  await using daemon = await TestDaemon.start({ env: { KILL_GRACE_MS: "1500" } });
  const configure = (secret: string): Promise<Response> =>
    daemon.fetch("/config", { method: "POST", body: JSON.stringify({ env: { RUN_SECRET: secret } }) });
  expect((await configure("the-first-secret")).status).toBe(204);
  const held = daemon.path("held");
  const first = daemon.run({
    runId: "r1",
    threadId: "t",
    steps: [{ ignoreTerm: true }, { touch: held }, { waitFor: daemon.path("never") }],
  });
  await eventually(() => existsSync(held));
  const second = daemon.run({
    runId: "r2",
    threadId: "t",
    steps: [{ sh: 'echo "it is $RUN_SECRET" >&2', wait: true }],
  });
  await daemon.event("dispatch received", 0, (line) => line.run === "r2");
  expect((await configure("the-second-secret")).status).toBe(204);
  await Promise.all([first, second]);
  const said = await daemon.event("harness stderr", 0, (line) => line.run === "r2");
  expect(said.line).toBe("it is [secret]");
});
