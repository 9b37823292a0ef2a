/** The daemon's side of the org volume beside a sidecar, with real workers. */
import { join } from "node:path";
import { systemClock } from "../../src/clock/system.ts";
import { mountPathOf, orgRootOf } from "../../src/orgfs/mount-paths.ts";
import { createOrg, type Org } from "../../src/orgfs/org.ts";
import type { OrgFs } from "../../src/orgfs/port.ts";
import { createOrgFs } from "../../src/orgfs/supervisor.ts";
import { Sidecar } from "../support/sidecar.ts";
import { recordingLog, silentMetrics } from "../support/silent.ts";

export interface StartedOrg extends AsyncDisposable {
  readonly sidecar: Sidecar;
  readonly org: Org;
  readonly orgFs: OrgFs;
  readonly log: ReturnType<typeof recordingLog>;
}

export interface OrgSetup {
  readonly budgetMs?: number;
  /** False: the pod has none. */
  readonly sidecar?: boolean;
  readonly agentUser?: { readonly uid: number; readonly gid: number };
}

export async function startOrg({
  budgetMs = 1000,
  sidecar: has = true,
  agentUser,
}: OrgSetup = {}): Promise<StartedOrg> {
  const sidecar = await Sidecar.start();
  const log = recordingLog();
  const parts = { clock: systemClock, log, metrics: silentMetrics() };
  const { appRoot } = sidecar;
  const orgFs = createOrgFs({
    ...parts,
    workerArgv: [process.execPath, join(import.meta.dir, "real-worker.ts")],
    mountPathOf: (volume) => mountPathOf(appRoot, volume),
    ...(agentUser ? { guard: { root: orgRootOf(appRoot), agent: agentUser } } : {}),
  });
  const org = createOrg({
    ...parts,
    orgFs,
    config: {
      appRoot,
      agentUser: agentUser ?? null,
      org: {
        statusPath: has ? sidecar.statusPath : null,
        configPath: has ? sidecar.configPath : null,
        readyBudgetMs: budgetMs,
        retryEveryMs: 300,
        writeBackMs: 0,
      },
    },
    bringSkills: async () => ({ state: "none" }),
  });
  return {
    sidecar,
    org,
    orgFs,
    log,
    async [Symbol.asyncDispose]() {
      org.stop();
      orgFs.stop();
      await sidecar[Symbol.asyncDispose]();
    },
  };
}
