/**
 * A thread that lives through many turns on many pods, and an oracle that knows what the volume held. Pods are killed,
 * cut off, and go on although everybody gave them up; write-back is late, cut or lost; listings are old; restores hang
 * or fail; sidecars restart; bits rot.
 */
import { compareSaves, isMarked, runKeyOf, type SaveName } from "../../../src/session/save-name.ts";
import { otherUser } from "../../../src/session/suspension-uses.ts";
import { Chance } from "./chance.ts";
import { type Backend, Mount } from "./mount.ts";
import { type Event, type Held, Pod, type Truth, type World } from "./pod.ts";

export interface WorldTraits {
  /** Ticks (seconds) that a listing is old. */
  readonly listingTicks: number;
  readonly fenced: boolean;
  readonly hints: boolean;
  readonly zombies: boolean;
  /** How often a restore meets trouble. */
  readonly flaky: number;
  /** How often a file rots between two turns. */
  readonly rot: number;
  /** How often each sidecar restarts between two turns. */
  readonly restarts: number;
  readonly turns: number;
  readonly longTurns: boolean;
}

export interface WorldReport {
  /** Restores that mixed two histories. */
  mixed: number;
  /** Starts without any history though the volume held one, or with a volume that lost all it held. */
  emptied: number;
  /** Starts that lacked three turns or more of what the volume held. */
  rewound: number;
  lostTurns: number;
  restores: number;
  /** Suspensions that were claimed, and those of them whose use the volume held for another run. */
  claims: number;
  usedTwice: number;
  mostFiles: number;
  readonly log: string[];
}

const REWOUND_TURNS = 3;

interface Whole extends Held {
  readonly name: SaveName;
}

export async function liveThrough(seed: number, traits: WorldTraits): Promise<WorldReport> {
  const chance = new Chance(seed * 7919 + 13);
  const backend: Backend = new Map();
  const truth: Truth = new Map();
  const rotten = new Set<string>();
  const pods: Pod[] = [];
  const report: WorldReport = {
    mixed: 0,
    emptied: 0,
    rewound: 0,
    lostTurns: 0,
    restores: 0,
    claims: 0,
    usedTwice: 0,
    mostFiles: 0,
    log: [],
  };
  let now = 0;
  let rest = 0;
  let events = 0;
  const tick = async (): Promise<void> => {
    now++;
    for (const pod of pods) await pod.tick();
  };
  const world: World = {
    chance,
    truth,
    now: () => now,
    nextEvent: () => ++events,
    async pass(ms) {
      for (rest += ms; rest >= 1000; rest -= 1000) await tick();
    },
  };
  const newMount = (): Mount =>
    new Mount(backend, { listingTicks: traits.listingTicks, slowTicks: 4 }, () => now, chance);
  const wholeSaves = (): Whole[] =>
    [...truth].flatMap(([name, held]) => {
      const isWhole = [name, ...held.refs].every((each) => backend.get(each)?.cut === false && !rotten.has(each));
      return isWhole ? [{ name, ...held }] : [];
    });
  /** What was whole so long ago that every listing shows it. */
  let settled: readonly Whole[] = [];

  let hint: SaveName | undefined;
  let current: Pod | undefined;
  let everDurable = false;
  for (let turn = 1; turn <= traits.turns; turn++) {
    const pod = choosePod();
    const trouble = chance.of(traits.flaky);
    const length = traits.longTurns && chance.of(0.2) ? 600 + chance.below(3000) : 3 + chance.below(60);
    const whole = wholeSaves();
    const begun = await pod.begin(
      turn,
      traits.fenced ? turn : undefined,
      traits.hints ? hint : undefined,
      trouble,
      length,
    );
    report.restores++;
    judge(turn, pod.events, trouble, whole, `${begun?.choice.source ?? "unlisted"}`);
    await claim(pod, turn, trouble);
    current = pod;
    const isZombie = await carryOn(pod, length);
    if (!isZombie && pod.mount.alive && pod.run?.saved && pod.run.saves) hint = pod.run.saved;
    if (isZombie) current = undefined;
    await betweenTurns();
    report.mostFiles = Math.max(report.mostFiles, backend.size);
  }
  return report;

  /** Several turns are given the same suspension. What a whole save in plain sight says of it is known to all. */
  async function claim(pod: Pod, turn: number, trouble: boolean): Promise<void> {
    const { run } = pod;
    if (!run || !chance.of(0.4)) return;
    const id = `suspension ${turn >> 2}`;
    const newest = settled
      .filter(({ name }) => !isMarked(name) && backend.has(name))
      .reduce<Whole | undefined>((a, b) => (a && compareSaves(a.name, b.name) > 0 ? a : b), undefined);
    const user = otherUser(newest?.used ?? [], { id, run: run.id, exp: 0 });
    const by = await pod.claim(run, id);
    report.claims++;
    if (by !== run.id || user === undefined || trouble) return;
    report.usedTwice++;
    report.log.push(`turn ${turn}: ${id} used again, though ${newest?.name} says that ${user} did`);
  }

  function choosePod(): Pod {
    const roll = chance.next();
    if (current?.isFree && roll < 0.5) return current;
    const warm = pods.filter((pod) => pod.isFree);
    const found = roll < 0.7 ? chance.pick(warm) : undefined;
    if (found) return found;
    const pod = new Pod(world, newMount(), pods.length);
    pods.push(pod);
    return pod;
  }

  /** True when everybody gives the pod up, although it goes on. */
  async function carryOn(pod: Pod, length: number): Promise<boolean> {
    const isZombie = traits.zombies && chance.of(0.15);
    const killAt = chance.of(0.2) ? chance.below(length) : -1;
    for (let t = 0; t < length; t++) {
      await tick();
      if (t === killAt) {
        if (isZombie) return true;
        pod.mount.kill();
        if (pod.run) pod.run.left = 0;
        return false;
      }
      if (isZombie && t === length >> 1) {
        if (chance.of(0.5)) pod.mount.online = false;
        return true;
      }
    }
    return isZombie;
  }

  async function betweenTurns(): Promise<void> {
    for (const pod of pods) if (!pod.mount.online && chance.of(0.4)) pod.mount.online = true;
    const before = wholeSaves();
    const gap = chance.of(0.4) ? chance.below(8) : chance.below(400);
    for (let t = 0; t < gap; t++) await tick();
    if (gap > traits.listingTicks) settled = before;
    for (const pod of pods) if (pod !== current && pod.mount.alive && chance.of(0.2)) pod.mount.kill();
    if (current && chance.of(0.15)) current.mount.kill();
    for (const pod of pods) {
      if (!pod.mount.alive || !chance.of(traits.restarts)) continue;
      pod.mount.kill();
      pod.mount = newMount();
    }
    const victim = chance.of(traits.rot) ? chance.pick([...backend.keys()]) : undefined;
    if (victim === undefined) return;
    rotten.add(victim);
    const file = backend.get(victim);
    const bytes = Buffer.from(file?.bytes ?? []);
    const at = bytes.length - 1;
    if (at >= 0) bytes[at] = (bytes[at] ?? 0) ^ 1;
    backend.set(victim, { bytes, cut: file?.cut ?? false });
  }

  function judge(
    turn: number,
    started: readonly Event[],
    trouble: boolean,
    whole: readonly { name: SaveName; turns: ReadonlySet<number> }[],
    how: string,
  ): void {
    const isChain = started.every((event, n) => event.previous === (started[n - 1]?.id ?? 0));
    if (!isChain) {
      report.mixed++;
      report.log.push(`turn ${turn}: a mix of histories`);
    }
    if (whole.length > 0) everDurable = true;
    if (trouble) return;
    if (whole.length === 0) {
      if (everDurable && started.length === 0) {
        report.emptied++;
        report.log.push(`turn ${turn}: the volume lost all that it held`);
        everDurable = false;
      }
      return;
    }
    const have = new Set(started.map((event) => event.turn));
    const best = whole.reduce((a, b) => (b.turns.size > a.turns.size ? b : a));
    const missing = [...best.turns].filter((each) => !have.has(each)).length;
    const extra = [...have].filter((each) => !best.turns.has(each)).length;
    if (started.length === 0) {
      report.emptied++;
      report.log.push(`turn ${turn}: fresh, though ${whole.length} saves are whole`);
    }
    if (missing <= extra) return;
    report.lostTurns += missing - extra;
    if (missing - extra < REWOUND_TURNS) return;
    report.rewound++;
    report.log.push(`turn ${turn}: lacks ${missing - extra} turns of ${runKeyOf(best.name)} (${how})`);
  }
}
