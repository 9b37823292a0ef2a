/** The daemon's side of the org volume: what is mounted, what a run gets of it, and what /health says of it. */
import type { Clock } from "../clock/port.ts";
import type { Config } from "../config.ts";
import type { Log } from "../log/port.ts";
import type { Metrics } from "../metrics/port.ts";
import { linkRun } from "./link-run.ts";
import { HOME, mountPathOf, orgRootOf } from "./mount-paths.ts";
import { type MountStatus, watchMountStatus } from "./mount-status.ts";
import type { OrgFs, OrgState } from "./port.ts";
import { type Readiness, waitUntilReady } from "./ready.ts";
import { createMountRequestRelay } from "./relay-mount-request.ts";
import { type Brought, createTrials } from "./try-volume.ts";
import { createWaitBudget } from "./wait-budget.ts";

export interface OrgOptions {
  readonly config: Pick<Config, "appRoot" | "agentUser" | "org">;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly orgFs: OrgFs;
  /** Copies the org's skills to the pod. Bounded; aborted when the daemon stops. */
  readonly bringSkills: (signal: AbortSignal) => Promise<Brought>;
}

export interface Org {
  /** What a run waits for before it starts; `log` is the run's. Without a sidecar it is `none` at once. */
  ready(signal: AbortSignal, log: Log): Promise<Readiness>;
  mounted(volume: string): boolean;
  volumes(): readonly string[];
  /** Sets the links of a run's thread; within 2 s, and without ever failing. Resolves with those that lead somewhere. */
  linkRun(threadId: string, log: Log): Promise<readonly string[]>;
  /** `POST /orgfs-config`. Throws HttpError. */
  relayMountRequest(request: unknown): Promise<{ readonly written: boolean }>;
  state(): OrgState;
  stop(): void;
}

/** For one listing. Through the network it takes less than a second. */
const PROBE_MS = 10_000;

export function createOrg({ config, clock, log, metrics, orgFs, bringSkills }: OrgOptions): Org {
  const { statusPath, configPath, readyBudgetMs, retryEveryMs } = config.org;
  const mounts = statusPath === null ? null : watchMountStatus({ path: statusPath, clock, log });
  const stopped = new AbortController();
  const requests = createMountRequestRelay(configPath, log);
  const parts = mounts && {
    clock,
    metrics,
    mounts,
    budget: createWaitBudget(clock, readyBudgetMs),
    trials: createTrials({
      clock,
      log,
      retryEveryMs,
      probe: () => probeHome(orgFs, mountPathOf(config.appRoot, HOME)),
      bringSkills: () => bringSkills(stopped.signal),
    }),
  };
  const mounted = (volume: string): boolean => mounts?.mounted(volume) ?? false;
  const links = { orgRoot: orgRootOf(config.appRoot), orgFs, mounted, owner: config.agentUser };
  return {
    async ready(signal, runLog) {
      if (!parts) return { home: "none", skills: "none", waitedMs: 0 };
      return waitUntilReady({ ...parts, log: runLog }, AbortSignal.any([signal, stopped.signal]));
    },
    mounted,
    volumes: () => mounts?.volumes() ?? [],
    linkRun: async (threadId, runLog) => (mounts ? linkRun(threadId, { ...links, log: runLog }) : []),
    relayMountRequest: (request) => requests.relay(request),
    state: () => (mounts ? stateOf(mounts, orgFs) : "none"),
    stop() {
      stopped.abort();
      mounts?.stop();
    },
  };
}

async function probeHome(orgFs: OrgFs, path: string): Promise<Brought> {
  const result = await orgFs.fly("volume-probe", { path }, { volume: HOME, deadlineMs: PROBE_MS });
  if (result.type === "done") return { state: "ready" };
  if (result.type === "failed") return { state: "failed", reason: `the volume home cannot be read: ${result.code}` };
  return { state: "timeout", reason: "the volume home does not answer" };
}

function stateOf(mounts: MountStatus, orgFs: OrgFs): OrgState {
  const volumes = orgFs.state();
  const stuck = Object.values(volumes).reduce((sum, volume) => sum + volume.stuck, 0);
  if (!mounts.mounted(HOME)) return { home: "unmounted", stuck };
  const { breaker = "closed" } = volumes[HOME] ?? {};
  return { home: breaker === "closed" ? "mounted" : "hanging", stuck };
}
