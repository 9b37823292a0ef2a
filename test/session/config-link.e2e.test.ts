/** A configuration folder that the machine has elsewhere on its disk, and links to. */
import { expect, test } from "bun:test";
import { mkdir, symlink } from "node:fs/promises";
import { TestDaemon } from "../support/daemon.ts";
import { turnOf } from "../support/pod.ts";
import { CLOSE, FINISHED, OPEN, SESSION_FILES } from "../support/scripted-harness.ts";
import { Sidecar } from "../support/sidecar.ts";

const ENV = {
  HARNESS_CAPABILITIES: JSON.stringify({ resume: true, sessionFiles: SESSION_FILES }),
  ORG_WRITE_BACK_MS: "0",
};

/** With the link in the place of `$HOME/.claude`, before the daemon looks. */
async function startLinked(target: (daemon: TestDaemon) => string, env: Record<string, string> = {}) {
  const daemon = await TestDaemon.start({ env: { ...ENV, ...env } });
  await daemon.stop();
  await symlink(target(daemon), daemon.path(".claude"));
  return daemon;
}

const turn = async (daemon: TestDaemon, line: string) =>
  turnOf(
    await daemon.dispatch({ runId: crypto.randomUUID(), threadId: "t", steps: [OPEN, { say: line }, CLOSE, FINISHED] }),
  );

test("a thread goes on with its conversation, there already or not, with an org volume or without", async () => {
  await using sidecar = await Sidecar.start();
  await sidecar.provide("home");
  for (const [env, saved] of [
    [{}, false],
    [sidecar.env, true],
  ] as const) {
    // What is not there yet is made where the link leads.
    await using daemon = await startLinked((at) => at.path("elsewhere/config"), env);
    await mkdir(daemon.path("elsewhere"));
    await daemon.launch();
    const first = await turn(daemon, "one");
    const second = await turn(daemon, "two");
    expect([first.preparation?.session, second.preparation?.session]).toEqual(["fresh", "local"]);
    expect(second.heard).toEqual(["one", "two"]);
    expect(second.settled?.saved).toBe(saved);
    expect(await Bun.file(daemon.path("elsewhere/config")).stat()).toBeDefined();
  }
  // And on another pod, whose own folder is a link too.
  await using other = await startLinked((at) => at.path("config"), sidecar.env);
  await mkdir(other.path("config"));
  await other.launch();
  const third = await turn(other, "three");
  expect([third.preparation?.session, third.heard]).toEqual(["restored", ["one", "two", "three"]]);
});

test("one that leads to the volumes is refused, as one that is said to be there", async () => {
  await using daemon = await startLinked((at) => at.path("org/home/config"));
  const why = "configuration: CLAUDE_CONFIG_DIR must not be below APP_ROOT/org: it has to be on the pod's own disk";
  await expect(daemon.launch()).rejects.toThrow(why);
});
