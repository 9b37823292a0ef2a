/** The parts of the daemon that listening does not need, loaded after it: runs, their processes, their routes. */
import type { Clock } from "./clock/port.ts";
import type { Config } from "./config.ts";
import { Dispatcher } from "./dispatch/dispatcher.ts";
import type { StateDir } from "./dispatch/state-dir.ts";
import { createSuspensions } from "./dispatch/suspensions.ts";
import { createLargeJson } from "./frames/large-lines.ts";
import type { HarnessRegistry } from "./harness/registry.ts";
import { createHarnessRegistry, settleConfigFolder } from "./harness/registry.ts";
import type { TokenAuth } from "./http/auth.ts";
import { isConnectionOpen } from "./http/connection-state.ts";
import type { LoadedRoutes } from "./http/router.ts";
import { createRoutes } from "./http/routes.ts";
import { watchReaders } from "./http/watch-readers.ts";
import type { Log } from "./log/port.ts";
import type { Redactor } from "./log/redact.ts";
import type { Metrics } from "./metrics/port.ts";
import { HOME, mountPathOf, orgRootOf } from "./orgfs/mount-paths.ts";
import type { Org } from "./orgfs/org.ts";
import { createOrg } from "./orgfs/org.ts";
import { createSkills } from "./orgfs/skills/skills.ts";
import { createOrgFs } from "./orgfs/supervisor.ts";
import type { Brought } from "./orgfs/try-volume.ts";
import { createProcesses } from "./process/run-processes.ts";
import { createPointers } from "./session/pointer.ts";
import type { Sessions } from "./session/port.ts";
import { createSessions } from "./session/sessions.ts";
import { holdSuspensionKeys } from "./suspension/key-holder.ts";

export interface PartsOptions {
  readonly config: Config;
  readonly clock: Clock;
  readonly log: Log;
  readonly redactor: Redactor;
  readonly selfArgv: readonly string[];
  readonly selfCommand: readonly string[];
  readonly state: StateDir;
  readonly nonce: string;
  readonly earlierNonces: readonly string[];
  readonly auth: TokenAuth;
  readonly server: Bun.Server<undefined>;
}

export interface Parts {
  readonly dispatcher: Dispatcher;
  readonly org: Org;
  readonly sessions: Sessions;
  readonly routes: LoadedRoutes;
  readonly metrics: Metrics;
  /** Ends what goes on by itself; the runs have ended before. */
  close(): void;
}

export async function buildParts(given: PartsOptions): Promise<Parts> {
  const { config: settled, warning } = await settleConfigFolder(given.config, orgRootOf(given.config.appRoot));
  if (warning !== undefined) given.log.warn("configuration", { warning });
  const options = { ...given, config: settled };
  const { config, clock, log, redactor, selfArgv, selfCommand, state, nonce, earlierNonces, auth, server } = options;
  // The heaviest, one after the other: /health is answered in between.
  const input = await import("./dispatch/input.ts");
  const { createPrometheusMetrics } = await import("./metrics/prometheus.ts");
  const largeJson = createLargeJson();
  const processes = createProcesses({ clock, log, nonce, scannerArgv: [...selfArgv, "proc-scan"] });
  const metrics: ReturnType<typeof createPrometheusMetrics> = createPrometheusMetrics(clock, config.version, {
    runs: () => dispatcher.registry.liveCount,
    readers: () => dispatcher.readers().length,
    draining: () => dispatcher.draining,
  });
  const harnesses = createHarnessRegistry(config, selfArgv);
  const { org, skills, sessions, stopOrg } = buildOrg(options, harnesses, metrics);
  const suspensionKeys = holdSuspensionKeys(config.suspension.keys);
  const dispatcher: Dispatcher = new Dispatcher({
    config,
    clock,
    log,
    redactor,
    largeJson,
    state,
    nonce,
    earlierNonces,
    processes,
    org,
    skills,
    sessions,
    harnesses,
    suspensions: createSuspensions({ ...config.suspension, clock, keys: suspensionKeys.current }),
    selfCommand,
    ownerIsThere: ({ owner }) => owner?.connection === undefined || isConnectionOpen(owner.connection),
  });
  const modules = { metrics, input };
  const replaceKeys = (list: string): void => suspensionKeys.replace(list);
  const parts = { config, clock, log, redactor, largeJson, dispatcher, org, auth, server, modules, replaceKeys };
  const routes = createRoutes(parts);
  const stopWatch = watchReaders({
    clock,
    log,
    keepaliveMs: config.keepaliveMs,
    stallMs: config.readerStallMs,
    readers: () => dispatcher.readers(),
  });
  return {
    dispatcher,
    org,
    sessions,
    routes,
    metrics,
    close() {
      stopWatch();
      stopOrg();
      processes.stop();
      largeJson.stop();
      metrics.stop();
    },
  };
}

/** What reaches the org volume; without a sidecar all of it does nothing. */
function buildOrg({ config, clock, log, selfArgv, state }: PartsOptions, harnesses: HarnessRegistry, metrics: Metrics) {
  const mountPath = (volume: string): string => mountPathOf(config.appRoot, volume);
  const harness = harnesses.find(undefined);
  if (!harness) throw new Error("there is no harness for a dispatch that names none");
  const workerArgv = [...selfArgv, "orgfs-worker"];
  const guard = config.agentUser && { root: orgRootOf(config.appRoot), agent: config.agentUser };
  const orgFs = createOrgFs({
    ...{ clock, log, metrics, workerArgv, mountPathOf: mountPath },
    ...(guard ? { guard } : {}),
  });
  const skills = createSkills({
    orgFs,
    clock,
    log,
    stateDir: state.root,
    configDir: harness.configDir,
    agentUser: config.agentUser,
    mountPathOf: mountPath,
    mounted: () => org.volumes(),
    deadlineMs: config.session.ioBudgetMs,
  });
  const bringSkills = async (signal: AbortSignal): Promise<Brought> => {
    const { state, reason } = await skills.bring(signal);
    return { state: state === "none" ? "ready" : state, ...(reason ? { reason } : {}) };
  };
  const org: Org = createOrg({ config, clock, log, metrics, orgFs, bringSkills });
  const home = { orgFs, volume: HOME, mountPath: mountPath(HOME), mounted: () => org.mounted(HOME) };
  const sessions = createSessions({
    clock,
    log,
    metrics,
    pointers: createPointers(state.threads),
    folder: state.threads,
    config,
    org: config.org.statusPath === null ? null : home,
  });
  const stopOrg = (): void => {
    sessions.stop();
    org.stop();
    orgFs.stop();
  };
  return { org, skills, sessions, stopOrg };
}
