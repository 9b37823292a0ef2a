/** A daemon whose org volume hangs, with workers that wait there and cannot be killed. */
import type { TestDaemon } from "../test/support/daemon.ts";
import { eventually } from "../test/support/daemon.ts";
import { Sidecar } from "../test/support/sidecar.ts";
import { dispatchRequest, startBenchDaemon } from "./bench-daemon.ts";
import { exchange } from "./http.ts";

const VOLUMES = ["home", ".outputs", ".uploads"] as const;
/** In a pod whose home is well: its runs still leave workers at each of these. */
const BESIDE_HOME = VOLUMES.slice(1);
const SESSION_FILES = { main: "projects/*/<id>.jsonl", side: "projects/*/<id>" };
/** As many open the breaker of each volume, so that a run which comes later waits for none of them. */
const RUNS = 4;

export class WedgedPod {
  private constructor(
    readonly daemon: TestDaemon,
    private readonly sidecar: Sidecar,
  ) {}

  /** `homeIsWell`: sessions can be saved, and the others hang. */
  static async start(harness: readonly string[], { homeIsWell = false } = {}): Promise<WedgedPod> {
    const sidecar = await Sidecar.start();
    for (const volume of VOLUMES) await sidecar.mount(volume);
    const daemon = await startBenchDaemon(harness, {
      ...sidecar.env,
      ORG_READY_BUDGET_MS: "0",
      ORG_RETRY_EVERY_MS: "600000",
      HARNESS_CAPABILITIES: JSON.stringify({ resume: true, clientTools: "none", sessionFiles: SESSION_FILES }),
    });
    const pod = new WedgedPod(daemon, sidecar);
    for (const volume of homeIsWell ? BESIDE_HOME : VOLUMES) await sidecar.mounts.get(volume)?.hold();
    // Each leaves workers at the volumes, and fails when it comes to its working directory.
    const nowhere = { workspace: { cwd: "/repo" } };
    await Promise.all(Array.from({ length: RUNS }, () => exchange(dispatchRequest(daemon, nowhere))));
    await eventually(async () => (await stuckAt(daemon)) >= 2 * RUNS);
    return pod;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const mount of this.sidecar.mounts.values()) await mount.unmount();
    await this.daemon[Symbol.asyncDispose]();
    await this.sidecar[Symbol.asyncDispose]();
  }
}

async function stuckAt(daemon: TestDaemon): Promise<number> {
  const { org } = (await (await fetch(`${daemon.url}/health`)).json()) as { org: { stuck?: number } };
  return org.stuck ?? 0;
}
