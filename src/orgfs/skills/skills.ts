/**
 * The org's skills, on the daemon's side: before a run they are brought to the pod, after it and in between what the
 * agent made of them goes back. All the work is done in flights, one at a time for each volume; a volume that hangs or
 * fails costs what changed in the skills of that volume.
 */

import type { Owner } from "../../agent-folder.ts";
import type { Clock } from "../../clock/port.ts";
import { messageOf } from "../../errors.ts";
import type { Log } from "../../log/port.ts";
import type { FlightResult, OrgFs } from "../port.ts";
import type { Attempt, BroughtHome, BroughtSets, Conflict, ReturnedSkills, VolumeInput } from "./jobs.ts";
import { CALL_MS } from "./limits.ts";
import type { SkillsLink } from "./link-skills.ts";

const HOME = "home";
/** The volume whose folders are sets. Every other one without a leading dot is a set itself. */
const PUBLIC = "public";
/** At a checkpoint, a skill that changed within this time is taken to be in the making. */
const QUIET_MS = 2000;
/** For another pod that returns the same skill, which takes it as long as a few files need. */
const PATIENCE_MS = 2000;
const MAX_NAMES_TOLD = 10;

export interface SkillsOptions {
  readonly orgFs: OrgFs;
  readonly clock: Clock;
  readonly log: Log;
  readonly stateDir: string;
  readonly configDir: string;
  readonly agentUser: Owner | null;
  readonly mountPathOf: (volume: string) => string;
  /** The volumes that are mounted now. */
  readonly mounted: () => readonly string[];
  /** The longest that bringing the skills of a volume may take, and returning them. */
  readonly deadlineMs: number;
}

export interface BroughtSkills {
  /** `none`: no volume is mounted. The worst of all volumes counts; single skills that are missing are no failure. */
  readonly state: "none" | "ready" | "timeout" | "failed";
  /** What is missing, in one sentence. */
  readonly reason?: string;
}

/** What one run gets, for its turn document. */
export interface RunSkills {
  /** Sets, each a local plugin. They stay as they are until the release. */
  readonly pluginDirs: readonly string[];
  readonly missing?: string;
  /** The run is over: the copies that it used may be removed. */
  release(): void;
}

export interface Skills {
  /**
   * Brings what changed on the volumes that are mounted. One attempt at a time, which all callers wait for that come
   * meanwhile; `signal` ends the wait of this one alone. Never rejects.
   */
  bring(signal?: AbortSignal): Promise<BroughtSkills>;
  /** What is there by now, also when the last attempt hung or failed. Undefined: nothing was ever brought. */
  forRun(): RunSkills | undefined;
  /**
   * After a run: everything that changed goes back, `checkout` being where it worked. What `signal` cuts short is gone on
   * with the next time. Never rejects.
   */
  afterRun(options: {
    readonly checkout: string;
    readonly deadlineMs?: number;
    readonly signal?: AbortSignal;
  }): Promise<void>;
  /** While a run works: what is not being written goes back. Does nothing while an earlier call is at it. */
  checkpoint(options: { readonly checkout: string }): Promise<void>;
}

type State = "ready" | "timeout" | "failed";

/** What is known of a volume's skills. */
interface VolumeState {
  readonly state: State;
  readonly reason?: string;
  readonly absent: readonly string[];
  /** Copies that are there, also from an earlier attempt. */
  readonly sets: BroughtSets["sets"];
  readonly link: BroughtHome["link"] | undefined;
}

export function createSkills(options: SkillsOptions): Skills {
  const { orgFs, clock, log } = options;
  const known = new Map<string, VolumeState>();
  const underway = new Map<string, Promise<VolumeState>>();
  const uses = new Map<string, number>();
  let checkpointing = false;

  const inputOf = (volume: string, deadlineMs: number): VolumeInput => ({
    volume,
    mountPath: options.mountPathOf(volume),
    stateDir: options.stateDir,
    agent: options.agentUser,
    // The worker gives up before it is given up, so that what it has done is known.
    callMs: Math.max(1, Math.min(CALL_MS, Math.round(deadlineMs / 2))),
    nowMs: clock.now(),
  });
  const flightOf = (volume: string, deadlineMs: number) => ({
    volume,
    deadlineMs,
    lane: `skills/${volume}`,
    proves: ({ hung }: Attempt) => !hung,
  });

  async function bringVolume(volume: string): Promise<VolumeState> {
    const { deadlineMs } = options;
    const input = inputOf(volume, deadlineMs);
    const flight = flightOf(volume, deadlineMs);
    const startedAt = clock.monotonic();
    const result: FlightResult<BroughtHome | BroughtSets> =
      volume === HOME
        ? await orgFs.fly("skills-home", { ...input, configDir: options.configDir }, flight)
        : await orgFs.fly(
            "skills-sets",
            { ...input, layout: volume === PUBLIC ? "many" : "one", used: [...uses.keys()] },
            flight,
          );
    const state = stateAfter(result, known.get(volume));
    known.set(volume, state);
    const waitedMs = Math.round(clock.monotonic() - startedAt);
    const facts = { volume, state: state.state, waitedMs, ...factsOf(result) };
    if (state.state === "ready" && isComplete(result)) log.info("skills ready", facts);
    else log.warn("skills incomplete", { ...facts, reason: state.reason });
    if (result.type === "done" && "conflicts" in result.output) tellConflicts(result.output.conflicts);
    return state;
  }

  function stateAfter(result: FlightResult<BroughtHome | BroughtSets>, before: VolumeState | undefined): VolumeState {
    if (result.type !== "done") {
      const { state, reason } = troubleOf(result);
      return { state, reason, absent: before?.absent ?? [], sets: before?.sets ?? [], link: before?.link };
    }
    const { output } = result;
    return {
      state: output.hung ? "timeout" : "ready",
      ...(output.hung ? { reason: HANGS } : {}),
      absent: output.leftOut.filter(({ kept }) => !kept).map(({ name }) => name),
      sets: "sets" in output ? output.sets : [],
      link: "link" in output ? output.link : undefined,
    };
  }

  /** One attempt at a time. */
  function attempt(volume: string): Promise<VolumeState> {
    const joined = underway.get(volume);
    if (joined) return joined;
    const begun = bringVolume(volume)
      .catch((error: unknown): VolumeState => {
        log.error("skills not brought", { volume, reason: messageOf(error) });
        return stateAfter({ type: "failed", code: "internal", message: "" }, known.get(volume));
      })
      .finally(() => underway.delete(volume));
    underway.set(volume, begun);
    return begun;
  }

  async function giveBack(
    checkout: string,
    quietMs: number,
    deadlineMs: number = options.deadlineMs,
    signal?: AbortSignal,
  ): Promise<void> {
    if (!options.mounted().includes(HOME)) return;
    const patienceMs = Math.min(PATIENCE_MS, Math.round(deadlineMs / 4));
    const input = { ...inputOf(HOME, deadlineMs), checkouts: [checkout], quietMs, patienceMs };
    const result = await orgFs.fly("skills-return", input, {
      ...flightOf(HOME, deadlineMs),
      // Without anything to return it does not ask the volume.
      proves: ({ hung, returned }: ReturnedSkills) => !hung && returned.length > 0,
      ...(signal ? { signal } : {}),
    });
    tellReturned(result);
  }

  function tellReturned(result: FlightResult<ReturnedSkills>): void {
    if (result.type === "aborted") return;
    if (result.type !== "done") {
      log.warn("skills not returned", { reason: troubleOf(result).reason });
      return;
    }
    const { returned, adopted, conflicts, leftOut } = result.output;
    tellConflicts(conflicts);
    if (returned.length > 0 || adopted.length > 0) log.info("skills returned", { returned, adopted });
    if (leftOut.length > 0) log.warn("skills not returned", { leftOut: leftOut.slice(0, MAX_NAMES_TOLD) });
  }

  function tellConflicts(conflicts: readonly Conflict[]): void {
    for (const conflict of conflicts) log.warn("skill changed on both sides", { ...conflict });
  }

  function use(dirs: readonly string[]): () => void {
    for (const dir of dirs) uses.set(dir, (uses.get(dir) ?? 0) + 1);
    let released = false;
    return () => {
      if (released) return;
      released = true;
      for (const dir of dirs) {
        const left = (uses.get(dir) ?? 1) - 1;
        if (left > 0) uses.set(dir, left);
        else uses.delete(dir);
      }
    };
  }

  return {
    async bring(signal) {
      const volumes = withSkills(options.mounted());
      if (volumes.length === 0) return { state: "none" };
      const all = Promise.all(volumes.map(attempt));
      const states = await Promise.race([all, ...(signal ? [aborted(signal)] : [])]);
      if (!states) return { state: "timeout", reason: "the wait for skills was cut short" };
      const state = (["failed", "timeout"] as const).find((bad) => states.some((found) => found.state === bad));
      const reason = missingOf(states);
      return { state: state ?? "ready", ...(reason ? { reason } : {}) };
    },

    forRun() {
      const states = withSkills(options.mounted()).flatMap((volume) => known.get(volume) ?? []);
      if (states.length === 0) return undefined;
      const pluginDirs = states.flatMap(({ sets }) => sets.map(({ dir }) => dir));
      const missing = missingOf(states);
      return { pluginDirs, ...(missing ? { missing } : {}), release: use(pluginDirs) };
    },

    async afterRun({ checkout, deadlineMs, signal }) {
      try {
        await giveBack(checkout, 0, deadlineMs, signal);
      } catch (error) {
        log.error("skills not returned", { reason: messageOf(error) });
      }
    },

    async checkpoint({ checkout }) {
      if (checkpointing) return;
      checkpointing = true;
      try {
        await giveBack(checkout, QUIET_MS);
      } catch (error) {
        log.error("skills not returned", { reason: messageOf(error) });
      } finally {
        checkpointing = false;
      }
    },
  };
}

/** Volumes with a leading dot hold what runs exchange with people, and no skills. */
function withSkills(volumes: readonly string[]): readonly string[] {
  return volumes.filter((volume) => !volume.startsWith("."));
}

function aborted(signal: AbortSignal): Promise<undefined> {
  if (signal.aborted) return Promise.resolve(undefined);
  return new Promise((resolve) => signal.addEventListener("abort", () => resolve(undefined), { once: true }));
}

const HANGS = "the volume does not answer";

function troubleOf(result: Exclude<FlightResult<unknown>, { type: "done" }>): { state: State; reason: string } {
  if (result.type === "failed") return { state: "failed", reason: `the volume cannot be read: ${result.code}` };
  return { state: "timeout", reason: HANGS };
}

function isComplete(result: FlightResult<BroughtHome | BroughtSets>): boolean {
  return result.type === "done" && result.output.leftOut.length === 0;
}

function factsOf(result: FlightResult<BroughtHome | BroughtSets>): Readonly<Record<string, unknown>> {
  if (result.type !== "done") return result.type === "failed" ? { detail: result.message } : {};
  const { output } = result;
  const facts = "sets" in output ? factsOfSets(output) : factsOfHome(output);
  return { ...facts, ...(output.leftOut.length > 0 ? { leftOut: output.leftOut.slice(0, MAX_NAMES_TOLD) } : {}) };
}

function factsOfSets({ sets, changed }: BroughtSets): Readonly<Record<string, unknown>> {
  return { sets: sets.length, skills: sets.reduce((sum, { count }) => sum + count, 0), changed: changed.length };
}

function factsOfHome({ count, changed, removed, link }: BroughtHome): Readonly<Record<string, unknown>> {
  return { skills: count, changed: changed.length, removed: removed.length, link };
}

const UNLINKED = {
  "own-folder": "has a skills folder of its own",
  "no-folder": "is a link, or no folder",
  unwritable: "cannot be written",
} as const satisfies Record<Exclude<SkillsLink, "linked">, string>;

/** One sentence for a person and for the model. */
function missingOf(states: readonly VolumeState[]): string | undefined {
  const absent = states.flatMap((found) => found.absent).sort();
  const reasons = [...new Set(states.flatMap(({ reason }) => reason ?? []))];
  const told = absent.slice(0, MAX_NAMES_TOLD).join(", ") + (absent.length > MAX_NAMES_TOLD ? ", …" : "");
  const parts = [
    ...reasons.map((reason) => `skills of the organization may be missing or out of date: ${reason}`),
    ...(absent.length > 0
      ? [`${absent.length} ${absent.length === 1 ? "skill" : "skills"} could not be loaded: ${told}`]
      : []),
    ...states.flatMap(({ link }) =>
      link === undefined || link === "linked"
        ? []
        : [`the organization's own skills are not in use: the agent's config folder ${UNLINKED[link]}`],
    ),
  ];
  return parts.length > 0 ? parts.join("; ") : undefined;
}
