/** Who comes late: pods that were given up, daemons that start again, volumes that come back, agents of another user. */
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { chmod, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Frame } from "../../src/frames/frame.ts";
import { eventually, framesOf } from "../support/daemon.ts";
import { needsRoot } from "../support/needs-root.ts";
import { Pod, readTurn } from "../support/pod.ts";
import type { Step } from "../support/scripted-harness.ts";
import { Sidecar } from "../support/sidecar.ts";
import { mountsMissing } from "../support/wedgefs/index.ts";

setDefaultTimeout(20_000);
const needsMount = test.skipIf(mountsMissing !== undefined && process.env.CI === undefined);
const NO_CHECKPOINTS = { CHECKPOINT_MS: "60000" };

let sidecar: Sidecar;
beforeAll(async () => {
  sidecar = await Sidecar.start();
  await sidecar.provide("home");
});
afterAll(() => sidecar[Symbol.asyncDispose]());

const sh = (script: string): Step => ({ sh: script, wait: true });

for (const [how, fences] of [
  ["with fences", [1, 2, 3, 4]],
  ["without fences", []],
] as const) {
  test(`a pod that everybody gave up goes on with its turn, and undoes nothing, ${how}`, async () => {
    const thread = `given up ${how}`;
    const input = (index: number): Record<string, unknown> => (fences[index] ? { fence: fences[index] } : {});
    await using zombie = await Pod.start({ sidecar, env: { CHECKPOINT_MS: "50" } });
    await using other = await Pod.start({ sidecar });
    await zombie.turn(thread, "one", { input: input(0) });
    const go = zombie.daemon.path("go");
    const lines = Array.from({ length: 20 }, (_, n): Step[] => [{ say: `late ${n}` }, { sleepMs: 20 }]).flat();
    const response = await zombie.begin(thread, "two", { steps: [{ waitFor: go }, ...lines], input: input(1) });
    const frames: Frame[] = [];
    const reading = (async () => {
      for await (const frame of framesOf(response)) frames.push(frame);
    })();
    await eventually(() => zombie.daemon.log.filter(({ event }) => event === "session saved").length >= 2);
    const newer = await other.turn(thread, "three", { input: input(2) });
    expect(newer.heard).toEqual(["one", "two", "three"]);
    await writeFile(go, "");
    await reading;
    const last = readTurn(frames);
    expect(last.outcome?.type).toBe("finished");
    expect(last.settled).toMatchObject({ saved: false, reason: "a later run has saved the thread" });
    await using next = await Pod.start({ sidecar });
    expect((await next.turn(thread, "four", { input: input(3) })).heard).toEqual(["one", "two", "three", "four"]);
    // And the pod itself goes on from there.
    expect((await zombie.turn(thread, "five")).heard).toEqual(["one", "two", "three", "four", "five"]);
  });
}

test("files beside the transcript come with it, as they were last", async () => {
  await using pod = await Pod.start({ sidecar, env: NO_CHECKPOINTS });
  const beside = '$(ls -d "$HOME"/.claude/projects/scripted/*.jsonl | sed s/.jsonl//)';
  await pod.turn("beside", "one", {
    steps: [
      sh(`d=${beside}; mkdir -p "$d/subagents" "$d/tool-results"; echo one > "$d/subagents/a.jsonl"`),
      sh(`d=${beside}; head -c 3000000 /dev/urandom > "$d/tool-results/big"; echo x > "$d/tool-results/goes"`),
    ],
  });
  await pod.turn("beside", "two", {
    steps: [sh(`d=${beside}; echo two >> "$d/subagents/a.jsonl"; rm "$d/tool-results/goes"`)],
  });
  await using next = await Pod.start({ sidecar, env: NO_CHECKPOINTS });
  expect((await next.turn("beside", "three")).heard).toEqual(["one", "two", "three"]);
  const below = async (daemon: Pod["daemon"]): Promise<string> => {
    const projects = daemon.path(".claude/projects/scripted");
    return join(projects, (await readdir(projects)).find((name) => !name.endsWith(".jsonl")) ?? "none");
  };
  const [here, there] = [await below(pod.daemon), await below(next.daemon)];
  expect(await readFile(join(there, "subagents/a.jsonl"), "utf8")).toBe("one\ntwo\n");
  expect(await readdir(join(there, "tool-results"))).toEqual(["big"]);
  const bytes = await readFile(join(here, "tool-results/big"));
  expect(bytes.equals(await readFile(join(there, "tool-results/big")))).toBe(true);
});

needsMount(
  "a daemon that starts again on a pod whose volume hangs goes on with the pod's own session",
  async () => {
    await using pod = await Pod.start();
    await pod.turn("t", "one");
    const response = await pod.begin("t", "two", { steps: [{ sleepMs: 60_000 }] });
    for await (const { chunks } of framesOf(response)) {
      if (chunks.some(({ type }) => type === "data-transcript")) break;
    }
    await pod.home.hold();
    await pod.kill();
    await pod.daemon.launch();
    const blind = await pod.turn("t", "three");
    expect(blind.outcome?.type).toBe("finished");
    expect(blind.preparation).toMatchObject({ home: "timeout", session: "stale-session" });
    expect(blind.heard).toEqual(["one", "two", "three"]);
    await pod.home.release();
    let saved = blind.settled?.saved === true;
    await eventually(async () => {
      saved ||= (await pod.turn("t", "more")).settled?.saved === true;
      return saved;
    });
    await using next = await Pod.start({ mount: { backing: pod.home.backing } });
    expect((await next.turn("t", "four")).heard.slice(0, 3)).toEqual(["one", "two", "three"]);
  },
  30_000,
);

test("a volume that is away when a run ends: it is saved without another run when the volume is back", async () => {
  await using own = await Sidecar.start();
  await own.provide("home");
  await using pod = await Pod.start({ sidecar: own, env: NO_CHECKPOINTS });
  await pod.turn("t", "one");
  const go = pod.daemon.path("go");
  const turning = pod.turn("t", "two", { steps: [{ waitFor: go }] });
  await pod.daemon.event("harness started", 0, ({ session }) => session === "local");
  await own.withdraw("home");
  await eventually(async () => ((await pod.health()).org as { home: string }).home === "unmounted");
  await writeFile(go, "");
  const turn = await turning;
  expect(turn.settled).toMatchObject({ saved: false, reason: "the org volume is not mounted" });
  const from = pod.daemon.log.length;
  await own.report("home");
  await pod.daemon.event("session saved", from);
  await using next = await Pod.start({ sidecar: own });
  expect((await next.turn("t", "three")).heard).toEqual(["one", "two", "three"]);
});

needsRoot("agents of another user have their sessions and skills on every pod", async () => {
  await using own = await Sidecar.start();
  const home = await own.provide("home");
  const user = { AGENT_USER: "4321:4321" };
  /** The agent has to get at its home. */
  const pod = async (): Promise<Pod> => {
    const started = await Pod.start({ sidecar: own, env: { ...NO_CHECKPOINTS, ...user } });
    await chmod(started.daemon.folder, 0o777);
    return started;
  };
  await chmod(join(own.appRoot, ".."), 0o755);
  await using first = await pod();
  await first.turn("t", "one", {
    steps: [sh("mkdir -p $HOME/.claude/skills/sewing; id -u > $HOME/.claude/skills/sewing/SKILL.md")],
  });
  await using next = await pod();
  const turn = await next.turn("t", "two", { steps: [sh("echo more >> $HOME/.claude/skills/sewing/SKILL.md")] });
  expect(turn.heard).toEqual(["one", "two"]);
  expect(turn.settled?.saved).toBe(true);
  const projects = next.daemon.path(".claude/projects/scripted");
  for (const name of await readdir(projects)) expect((await stat(join(projects, name))).uid).toBe(4321);
  expect(await readFile(join(home, "skills/sewing/SKILL.md"), "utf8")).toBe("4321\nmore\n");
});

needsMount(
  "a killed pod's write-back leaves its newest save cut, or none: the state before it, and said",
  async () => {
    for (const keep of [0, 0.3, 0.9]) {
      await using pod = await Pod.start({ mount: { writeBackMs: 600_000 }, env: NO_CHECKPOINTS });
      const { backing } = pod.home;
      await pod.turn("t", "one");
      await pod.turn("t", "two");
      await pod.home.writeBack();
      await pod.turn("t", "three");
      if (keep > 0) await pod.home.writeBack(keep);
      await pod.kill();
      await pod.home.unmount();
      await using next = await Pod.start({ mount: { backing } });
      const turn = await next.turn("t", "four");
      expect(turn.heard).toEqual(["one", "two", "four"]);
      expect(turn.preparation?.session).toBe(keep > 0 ? "stale-session" : "restored");
      expect(turn.settled?.saved).toBe(true);
      await using last = await Pod.start({ mount: { backing } });
      const after = await last.turn("t", "five");
      expect(after.heard).toEqual(["one", "two", "four", "five"]);
      expect(after.preparation?.session).toBe("restored");
    }
  },
  30_000,
);

needsMount(
  "a shutdown does not wait for a volume that hangs in the wait or in the restore",
  async () => {
    for (const path of ["", "dispatchd-sessions{,/**}"]) {
      await using pod = await Pod.start({ env: { ORG_READY_BUDGET_MS: "60000", SESSION_IO_BUDGET_MS: "30000" } });
      await pod.home.hold({ path });
      const response = await pod.begin("t", "one");
      await pod.home.untilHeld({ path });
      const startedAt = performance.now();
      const [exit, text] = await Promise.all([pod.daemon.stop(), response.text()]);
      expect(exit).toBe(0);
      expect(performance.now() - startedAt).toBeLessThan(3000);
      expect(text).toContain('"sandbox_gone"');
      expect(await pod.daemon.starts()).toEqual([]);
    }
  },
  20_000,
);

test("a harness that goes on under another session id in mid-turn: the thread goes on with that one", async () => {
  await using pod = await Pod.start({ sidecar, env: NO_CHECKPOINTS });
  await pod.turn("forks", "one");
  const fork = crypto.randomUUID();
  const copy = `cd $HOME/.claude/projects/scripted && cp *.jsonl /tmp/${fork} && mv /tmp/${fork} ${fork}.jsonl`;
  await pod.turn("forks", "two", {
    steps: [
      sh(copy),
      { json: { chunks: [], session: { id: fork } } },
      sh(`cd $HOME/.claude/projects/scripted && echo '[{"text":"after the fork"}]' >> ${fork}.jsonl`),
    ],
  });
  await using next = await Pod.start({ sidecar });
  expect((await next.turn("forks", "three")).heard).toEqual(["one", "two", "after the fork", "three"]);
  expect(await readdir(next.daemon.path(".claude/projects/scripted"))).toEqual([`${fork}.jsonl`]);
});
