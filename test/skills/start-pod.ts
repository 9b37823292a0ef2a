/** The daemon's side of skills, with real flights, beside a sidecar of its own. */
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { systemClock } from "../../src/clock/system.ts";
import { createSkills, type Skills } from "../../src/orgfs/skills/skills.ts";
import { createOrgFs } from "../../src/orgfs/supervisor.ts";
import { Sidecar } from "../support/sidecar.ts";
import { recordingLog, silentMetrics } from "../support/silent.ts";

export interface Pod extends AsyncDisposable {
  readonly sidecar: Sidecar;
  readonly skills: Skills;
  readonly log: ReturnType<typeof recordingLog>;
  /** What the agent sees. */
  readonly seen: string;
  readonly checkout: string;
  /** Lets this much time pass for pauses. */
  pass(ms: number): void;
}

export async function pod(volumes: readonly string[], deadlineMs = 4000): Promise<Pod> {
  const sidecar = await Sidecar.start();
  const log = recordingLog();
  let passedMs = 0;
  const clock = { ...systemClock, now: () => systemClock.now() + passedMs };
  const orgFs = createOrgFs({
    clock,
    log,
    metrics: silentMetrics(),
    workerArgv: [process.execPath, join(import.meta.dir, "../orgfs/real-worker.ts")],
    mountPathOf: (volume) => sidecar.path(volume),
  });
  const base = join(sidecar.appRoot, "..");
  const skills = createSkills({
    orgFs,
    clock,
    log,
    stateDir: join(base, "state"),
    configDir: join(base, "config"),
    agentUser: null,
    mountPathOf: (volume) => sidecar.path(volume),
    mounted: () => volumes,
    deadlineMs,
  });
  const checkout = join(sidecar.appRoot, "repo");
  await mkdir(checkout);
  return {
    sidecar,
    skills,
    log,
    seen: join(base, "config/skills"),
    checkout,
    pass: (ms) => {
      passedMs += ms;
    },
    async [Symbol.asyncDispose]() {
      orgFs.stop();
      await sidecar[Symbol.asyncDispose]();
    },
  };
}
