/**
 * The store's real code in random worlds. `SESSION_MODEL_WORLDS` lives through more of them, `SESSION_MODEL_SEED` begins
 * elsewhere; a failure names the seed.
 */
import { expect, test } from "bun:test";
import { liveThrough, type WorldTraits } from "./model/world.ts";

const WORLDS = Number(process.env.SESSION_MODEL_WORLDS ?? 6);
const FIRST_SEED = Number(process.env.SESSION_MODEL_SEED ?? 1);

const COMMON: WorldTraits = {
  listingTicks: 5,
  fenced: true,
  hints: true,
  zombies: true,
  flaky: 0,
  rot: 0,
  restarts: 0,
  turns: 25,
  longTurns: false,
};

/** What a world may cost in all: with listings as young as the design asks for, nothing but single turns. */
const CASES: readonly (readonly [name: string, traits: WorldTraits])[] = [
  ["fences and hints", COMMON],
  ["a tenth of the restores fails", { ...COMMON, flaky: 0.1 }],
  ["neither fences nor hints", { ...COMMON, fenced: false, hints: false }],
  ["hints without fences, nobody goes on when given up", { ...COMMON, fenced: false, zombies: false }],
  ["sidecars restart", { ...COMMON, flaky: 0.05, restarts: 0.1 }],
  ["long turns", { ...COMMON, turns: 12, longTurns: true }],
];

/** Beyond what the store can promise: nothing is mixed up all the same. */
const HARSH: readonly (readonly [name: string, traits: WorldTraits])[] = [
  ["listings five minutes old", { ...COMMON, listingTicks: 300, flaky: 0.05 }],
  ["bits that rot", { ...COMMON, rot: 0.03 }],
];

for (const [name, traits] of HARSH) {
  test(`no thread is mixed up: ${name}`, async () => {
    let mixed = 0;
    for (let seed = FIRST_SEED; seed < FIRST_SEED + WORLDS; seed++) mixed += (await liveThrough(seed, traits)).mixed;
    expect(mixed).toBe(0);
  }, 60_000);
}

for (const [name, traits] of CASES) {
  test(`no thread is emptied, mixed up or rewound, no suspension used twice: ${name}`, async () => {
    const bad: string[] = [];
    const worlds = traits.longTurns ? Math.ceil(WORLDS / 3) : WORLDS;
    for (let seed = FIRST_SEED; seed < FIRST_SEED + worlds; seed++) {
      const { log } = await liveThrough(seed, traits);
      bad.push(...log.map((line) => `seed ${seed}, ${line}`));
    }
    expect(bad).toEqual([]);
  }, 60_000);
}
