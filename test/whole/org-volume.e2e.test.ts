/** The real Claude Code on pods whose org volume hangs, fails and goes away: what it costs, and what it never costs. */
import { expect, test } from "bun:test";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Frame } from "../../src/frames/frame.ts";
import { BINARY, eventually, framesOf } from "../support/daemon.ts";
import { OrgPod } from "../support/org-pod.ts";
import { calls, says } from "../support/scripted-model/index.ts";
import { mountsMissing } from "../support/wedgefs/index.ts";

const needsMount = test.skipIf(mountsMissing !== undefined && process.env.CI === undefined);

needsMount(
  "neither the daemon nor the agent makes a call on the home volume, in all that a conversation does there",
  async () => {
    await using own = await OrgPod.start();
    await mkdir(join(own.home.backing, "skills/rockets"), { recursive: true });
    const skill = "---\nname: rockets\ndescription: How to build rockets.\n---\n\nWith care.\n";
    await writeFile(join(own.home.backing, "skills/rockets/SKILL.md"), skill);
    await own.home.trace();
    own.model.push(says("Noted.", { delayMs: 500 }), says("Seven."));
    const first = await own.turn("r1", "The number is seven.");
    expect(first[0]?.preparation).toMatchObject({ home: "ready", skills: "ready" });
    await own.replace();
    const second = await own.turn("r2", "Which number?");
    expect(second[0]?.preparation).toMatchObject({ skills: "ready", session: "restored" });
    expect(second.at(-1)?.settled?.saved).toBe(true);
    const calls = await own.home.traced();
    expect(calls.some(({ op, path }) => op === "read" && path === "skills/rockets/SKILL.md")).toBe(true);
    expect(calls.some(({ op, path }) => op === "write" && path.startsWith("dispatchd-sessions/"))).toBe(true);
    const others = calls.filter(({ caller }) => !caller.endsWith("orgfs-worker"));
    expect(others).toEqual([]);
  },
);

needsMount(
  "a volume that hangs in the restore costs a turn its memory, and no more",
  async () => {
    await using own = await OrgPod.start();
    own.model.push(says("Noted."), says("I do not know."), says("Seven."));
    await own.turn("r1", "The number is seven.");
    await own.replace();
    await own.home.hold({ path: "dispatchd-sessions/**" });
    const startedAt = performance.now();
    const second = await own.turn("r2", "Which number?");
    expect(performance.now() - startedAt).toBeLessThan(10_000);
    expect(second[0]?.preparation).toMatchObject({ home: "ready", session: "fresh" });
    expect(second[0]?.preparation?.reason).toBeTruthy();
    expect(second.some(({ outcome }) => outcome?.type === "finished")).toBe(true);
    expect(second.at(-1)?.settled?.saved).toBe(false);
    await own.home.release();
    await own.replace();
    await own.turn("r3", "And now?");
    expect(own.told()[0]).toBe("The number is seven.");
  },
  40_000,
);

needsMount(
  "a volume that hangs in a checkpoint and in the last save delays the end, not the outcome",
  async () => {
    await using own = await OrgPod.start();
    own.model.push(says("one two three four five six seven eight", { betweenDeltasMs: 150 }), says("More."));
    const response = await own.daemon.dispatch(own.dispatchOf("r1", "Count."));
    let hung = false;
    let outcomeAt = 0;
    let frames: Frame[] = [];
    for await (const frame of framesOf(response)) {
      frames = [...frames, frame];
      if (!hung && frame.chunks.some(({ type }) => type === "text-delta")) {
        hung = true;
        await own.home.hold({ ops: ["create", "write"] });
      }
      if (frame.outcome) outcomeAt = performance.now();
    }
    expect(frames.find(({ outcome }) => outcome)?.outcome?.type).toBe("finished");
    expect(performance.now() - outcomeAt).toBeLessThan(5000);
    expect(frames.at(-1)).toMatchObject({ done: true, settled: { saved: false } });
    await own.home.release();
    const next = await own.turn("r2", "And now?");
    expect(next.at(-1)?.settled?.saved).toBe(true);
    expect(own.told()).toEqual(["Count.", "And now?"]);
  },
  40_000,
);

for (const errno of ["EIO", "ENOSPC"] as const) {
  needsMount(`a volume that fails with ${errno} costs the save, with its reason`, async () => {
    await using own = await OrgPod.start();
    own.model.push(says("Noted."), says("Seven."));
    await own.home.fail({ errno, ops: ["create", "write"] });
    const first = await own.turn("r1", "The number is seven.");
    expect(first.find(({ outcome }) => outcome)?.outcome?.type).toBe("finished");
    expect(first.at(-1)?.settled).toMatchObject({ saved: false, reason: expect.any(String) });
    await own.home.heal();
    const second = await own.turn("r2", "Which number?");
    expect(second.at(-1)?.settled?.saved).toBe(true);
    await own.replace();
    own.model.push(says("Still seven."));
    await own.turn("r3", "Again?");
    expect(own.told()).toEqual(["The number is seven.", "Which number?", "Again?"]);
  });
}

needsMount("a volume that goes away in the middle of a turn costs the save", async () => {
  await using own = await OrgPod.start();
  own.model.push(says("Noted.", { delayMs: 500 }), says("Seven."));
  const turn = own.turn("r1", "The number is seven.");
  await eventually(() => own.model.requests.some(({ kind }) => kind === "main"));
  await own.home.vanish();
  const frames = await turn;
  expect(frames.find(({ outcome }) => outcome)?.outcome?.type).toBe("finished");
  expect(frames.at(-1)?.settled).toMatchObject({ saved: false, reason: expect.any(String) });
  const second = await own.turn("r2", "Which number?");
  expect(second[0]?.preparation?.home).toBe("failed");
  expect(own.told()).toEqual(["The number is seven.", "Which number?"]);
});

for (const step of [1, 3]) {
  needsMount(
    `a pod that is killed in the middle of a turn, after step ${step}, costs what came after its last checkpoint`,
    async () => {
      await using own = await OrgPod.start();
      const bash = (number: number) => calls(["Bash", { command: `echo step-${number}`, description: "step" }]);
      const steps = [bash(1), bash(2), bash(3)].slice(0, step);
      own.model.push(...steps, says("This takes long.", { delayMs: 60_000 }));
      const response = await own.daemon.dispatch(own.dispatchOf("r1", "Do the steps."));
      void response.text().catch(() => {}); // Cut off by the kill.
      await eventually(() => own.model.requests.filter(({ kind }) => kind === "main").length > step);
      // Which checkpoint holds the step's result is not known; one that follows at once does.
      const askedAt = performance.now();
      const store = join(own.home.backing, "dispatchd-sessions");
      const exported = () =>
        Bun.spawnSync([BINARY, "sessions", "export", "thrd_X", "--store", store]).stdout.toString();
      await eventually(() => exported().split(`step-${step}`).length > 2);
      expect(performance.now() - askedAt).toBeLessThan(3000);
      await own.replace();
      own.model.push(says("I go on."));
      const next = await own.turn("r2", "Go on.");
      expect(next[0]?.preparation).toMatchObject({ session: "restored" });
      expect(next.find(({ outcome }) => outcome)?.outcome?.type).toBe("finished");
      const asked = JSON.stringify(own.model.requests.filter(({ kind }) => kind === "main").at(-1));
      expect(own.told()).toEqual(["Do the steps.", "Go on."]);
      for (let number = 1; number <= step; number++) expect(asked).toContain(`echo step-${number}`);
    },
  );
}

needsMount("a thread that went on on another pod comes back, and the newer conversation is used", async () => {
  await using one = await OrgPod.start();
  await using other = await OrgPod.start({}, { backing: one.home.backing });
  one.model.push(says("Noted."), says("Eight."));
  other.model.push(says("Now eight."));
  await one.turn("r1", "The number is seven.");
  const second = await other.turn("r2", "Make it eight.");
  expect(second[0]?.preparation).toMatchObject({ session: "restored" });
  const third = await one.turn("r3", "Which number?");
  expect(third[0]?.preparation).toMatchObject({ session: "restored" });
  expect(one.told()).toEqual(["The number is seven.", "Make it eight.", "Which number?"]);
});
