/**
 * A pod with an org volume: daemon, sidecar and a mount of its own, and the scripted harness, which keeps transcripts as
 * Claude Code does. Two pods with one `backing` share a volume and nothing else; with one `sidecar`, a plain folder.
 */
import { randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Frame, Settled } from "../../src/frames/frame.ts";
import { parseFrames, TestDaemon } from "./daemon.ts";
import { CLOSE, FINISHED, OPEN, SESSION_FILES, type Step } from "./scripted-harness.ts";
import { Sidecar } from "./sidecar.ts";
import type { MountSetup, WedgeFs } from "./wedgefs/index.ts";

export interface PodSetup {
  /** On top of short budgets; undefined takes one out. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Its volumes are the pod's; otherwise it has one of its own, with `home` mounted. */
  readonly sidecar?: Sidecar;
  readonly mount?: MountSetup;
  /** The scripted harness by default, null for the built-in one. */
  readonly harness?: null;
}

/** What is said of a turn, and what its harness had before it: the transcript with the turn's own line. */
export interface Turn {
  readonly frames: readonly Frame[];
  readonly preparation: Frame["preparation"];
  readonly heard: readonly string[];
  readonly outcome: Frame["outcome"];
  readonly settled: Settled | undefined;
  readonly last: Frame | undefined;
}

export interface TurnSetup {
  readonly runId?: string;
  /** After the turn's line, before it ends. */
  readonly steps?: readonly Step[];
  readonly input?: Readonly<Record<string, unknown>>;
}

const BUDGETS = {
  IS_SANDBOX: "1",
  KILL_GRACE_MS: "500",
  EXIT_GRACE_MS: "500",
  EOF_GRACE_MS: "300",
  KEEPALIVE_MS: "200",
  CHECKPOINT_MS: "200",
  SESSION_IO_BUDGET_MS: "1000",
  ORG_READY_BUDGET_MS: "1000",
  ORG_RETRY_EVERY_MS: "300",
  ORG_WRITE_BACK_MS: "0",
};

export class Pod {
  private constructor(
    readonly daemon: TestDaemon,
    readonly sidecar: Sidecar,
    private readonly ownsSidecar: boolean,
    private readonly stateDir: string,
  ) {}

  static async start(setup: PodSetup = {}): Promise<Pod> {
    const sidecar = setup.sidecar ?? (await Sidecar.start());
    const stateDir = await mkdtemp(join(tmpdir(), "dispatchd-pod-"));
    try {
      if (!setup.sidecar) await sidecar.mount("home", setup.mount);
      const capabilities = JSON.stringify({ resume: true, sessionFiles: SESSION_FILES });
      const daemon = await TestDaemon.start({
        ...(setup.harness === null ? { harness: null } : {}),
        env: {
          ...BUDGETS,
          ...(setup.harness === null ? {} : { HARNESS_CAPABILITIES: capabilities }),
          ...sidecar.env,
          STATE_DIR: stateDir,
          ...setup.env,
        },
      });
      return new Pod(daemon, sidecar, !setup.sidecar, stateDir);
    } catch (error) {
      if (!setup.sidecar) await sidecar[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Its mount of the volume `home`. */
  get home(): WedgeFs {
    const mount = this.sidecar.mounts.get("home");
    if (!mount) throw new Error("home is no mount of this pod's");
    return mount;
  }

  /** Asks for a turn that adds a line to the thread's transcript. */
  begin(threadId: string, line: string, { runId = randomUUID(), steps = [], input = {} }: TurnSetup = {}) {
    return this.daemon.dispatch({ runId, threadId, steps: [OPEN, { say: line }, ...steps, CLOSE, FINISHED], input });
  }

  async turn(threadId: string, line: string, setup: TurnSetup = {}): Promise<Turn> {
    return turnOf(await this.begin(threadId, line, setup));
  }

  async health(): Promise<Record<string, unknown>> {
    return (await fetch(`${this.daemon.url}/health`)).json() as Promise<Record<string, unknown>>;
  }

  /** As a node that is lost: no signal is handled, nothing is written any more. */
  async kill(): Promise<void> {
    await this.daemon.stop("SIGKILL");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const mount of this.sidecar.mounts.values()) await mount.release().catch(() => {}); // Or it is gone.
    await this.daemon[Symbol.asyncDispose]();
    if (this.ownsSidecar) await this.sidecar[Symbol.asyncDispose]();
    await rm(this.stateDir, { recursive: true, force: true });
  }
}

export async function turnOf(response: Response): Promise<Turn> {
  const text = await response.text();
  if (response.status !== 200) throw new Error(`${response.status} ${text}`);
  return readTurn(parseFrames(text));
}

export function readTurn(frames: readonly Frame[]): Turn {
  const said = frames.flatMap(({ chunks }) => chunks).findLast(({ type }) => type === "data-transcript");
  return {
    frames,
    preparation: frames.find(({ preparation }) => preparation)?.preparation,
    heard: (said?.data as readonly string[] | undefined) ?? [],
    outcome: frames.find(({ outcome }) => outcome)?.outcome,
    settled: frames.find(({ settled }) => settled)?.settled,
    last: frames.at(-1),
  };
}
