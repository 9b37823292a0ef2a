/**
 * Pods with the real Claude Code, a scripted model and an org volume that can be made to hang. Several of them may have
 * one volume.
 */
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import type { Frame } from "../../src/frames/frame.ts";
import { type Dispatch, parseFrames, TestDaemon } from "./daemon.ts";
import { type ScriptedModel, startScriptedModel, userTexts } from "./scripted-model/index.ts";
import { Sidecar } from "./sidecar.ts";
import type { MountSetup, WedgeFs } from "./wedgefs/index.ts";

const SHORT_BUDGETS = {
  IS_SANDBOX: "1",
  ORG_READY_BUDGET_MS: "3000",
  ORG_RETRY_EVERY_MS: "300",
  SESSION_IO_BUDGET_MS: "1500",
  CHECKPOINT_MS: "200",
  ORG_WRITE_BACK_MS: "0",
  KILL_GRACE_MS: "1000",
};

export class OrgPod {
  private constructor(
    readonly model: ScriptedModel,
    readonly sidecar: Sidecar,
    readonly home: WedgeFs,
    readonly daemon: TestDaemon,
  ) {}

  static async start(env: Readonly<Record<string, string>> = {}, volume: MountSetup = {}): Promise<OrgPod> {
    const model = await startScriptedModel();
    const sidecar = await Sidecar.start();
    await mkdir(join(sidecar.appRoot, "repo"));
    const home = await sidecar.mount("home", volume);
    const daemon = await TestDaemon.start({ harness: null, env: { ...sidecar.env, ...SHORT_BUDGETS, ...env } });
    await daemon.event("mount status");
    return new OrgPod(model, sidecar, home, daemon);
  }

  dispatchOf(runId: string, userMessage: string, threadId = "thrd_X"): Dispatch {
    const env = { ANTHROPIC_BASE_URL: this.model.url, ANTHROPIC_API_KEY: "sk-scripted-model-key" };
    return { runId, threadId, input: { userMessage, env } };
  }

  /** A turn from its dispatch to its last frame. */
  async turn(runId: string, text: string): Promise<Frame[]> {
    return parseFrames(await (await this.daemon.dispatch(this.dispatchOf(runId, text))).text());
  }

  /** What people have said, as the model was told it last. */
  told(): string[] {
    const asked = this.model.requests.filter(({ kind }) => kind === "main").at(-1);
    return asked ? userTexts(asked) : [];
  }

  /** Kills the daemon, and starts one on what a new pod has: the volume, and nothing else. */
  async replace(): Promise<void> {
    const { daemon, sidecar } = this;
    await daemon.stop("SIGKILL");
    await rm(sidecar.env.STATE_DIR ?? "", { recursive: true, force: true });
    await rm(daemon.path(".claude"), { recursive: true, force: true });
    const from = daemon.log.length;
    await daemon.launch();
    await daemon.event("mount status", from);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // What hangs is answered first: nothing of the daemon is to wait for it.
    await this.home.unmount();
    await this.daemon[Symbol.asyncDispose]();
    await this.sidecar[Symbol.asyncDispose]();
    await this.model.stop();
  }
}
