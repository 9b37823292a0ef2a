/** The real Claude Code on a volume as deployments have it: rclone's mount of a WebDAV server, which is stopped. */
import { expect, test } from "bun:test";
import { mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import type { Frame } from "../../src/frames/frame.ts";
import { eventually, parseFrames, TestDaemon } from "../support/daemon.ts";
import { RcloneVolume, rcloneMissing } from "../support/rclone.ts";
import { says, startScriptedModel, userTexts } from "../support/scripted-model/index.ts";
import { Sidecar } from "../support/sidecar.ts";

const needsRclone = test.skipIf(rcloneMissing !== undefined && process.env.CI === undefined);

needsRclone(
  "a conversation outlives its pod, and a server that stops costs no turn",
  async () => {
    await using model = { ...(await startScriptedModel()), [Symbol.asyncDispose]: async () => model.stop() };
    await using sidecar = await Sidecar.start();
    await mkdir(join(sidecar.appRoot, "repo"));
    await using home = await RcloneVolume.mount(sidecar.path("home"));
    await sidecar.report("home");
    await using daemon = await TestDaemon.start({
      harness: null,
      env: {
        ...sidecar.env,
        IS_SANDBOX: "1",
        ORG_READY_BUDGET_MS: "2000",
        ORG_RETRY_EVERY_MS: "500",
        SESSION_IO_BUDGET_MS: "2000",
        ORG_WRITE_BACK_MS: "0",
      },
    });
    await daemon.event("mount status");
    const turn = async (runId: string, userMessage: string): Promise<Frame[]> => {
      const env = { ANTHROPIC_BASE_URL: model.url, ANTHROPIC_API_KEY: "sk-scripted-model-key" };
      const response = await daemon.dispatch({ runId, threadId: "thrd_X", input: { userMessage, env } });
      return parseFrames(await response.text());
    };
    const told = (): string[] => {
      const asked = model.requests.filter(({ kind }) => kind === "main").at(-1);
      return asked ? userTexts(asked) : [];
    };
    const saves = async (): Promise<string[]> =>
      (await readdir(home.backing, { recursive: true })).filter((path) => /\d{8}/.test(path));

    model.push(says("Noted."), says("Seven."), says("Still seven."), says("Always seven."));
    const first = await turn("r1", "The number is seven.");
    expect(first[0]?.preparation).toMatchObject({ home: "ready" });
    expect(first.at(-1)?.settled?.saved).toBe(true);
    await eventually(async () => (await saves()).length > 0);

    await daemon.stop("SIGKILL");
    await rm(sidecar.env.STATE_DIR ?? "", { recursive: true });
    await rm(daemon.path(".claude"), { recursive: true });
    const from = daemon.log.length;
    await daemon.launch();
    await daemon.event("mount status", from);
    const second = await turn("r2", "Which number?");
    expect(second[0]?.preparation).toMatchObject({ home: "ready", session: "restored" });
    expect(told()).toEqual(["The number is seven.", "Which number?"]);

    home.stopBackend();
    const startedAt = performance.now();
    const third = await turn("r3", "Are you sure?");
    expect(third.find(({ outcome }) => outcome)?.outcome?.type).toBe("finished");
    expect(performance.now() - startedAt).toBeLessThan(15_000);
    expect(told()).toEqual(["The number is seven.", "Which number?", "Are you sure?"]);
    home.continueBackend();
    await eventually(async () => (await turn(`r4 ${Math.random()}`, "And now?"))[0]?.preparation?.home === "ready");
  },
  60_000,
);
