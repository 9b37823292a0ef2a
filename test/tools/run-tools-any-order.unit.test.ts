/**
 * Whatever a harness, its shim, a callback, people and the clock do, and in whatever order: what was promised of calls
 * and questions holds. A failure names its seed.
 */
import { expect, test } from "bun:test";
import { endOfMessage } from "../../src/frames/end-of-message.ts";
import { OpenParts } from "../../src/frames/open-parts.ts";
import type { AnswerResult } from "../../src/tools/open-questions.ts";
import { Chance } from "../session/model/chance.ts";
import { settle } from "../support/manual-clock.ts";
import { readMessage } from "../support/read-message.ts";
import { FINISH, HOLD_MS, RunToolsBench, SPECS, START, STEP_ENDS } from "../support/run-tools-bench.ts";

const SEEDS = 400;
const STEPS = 60;
const FINAL = /^tool-output-(available|error|denied)$/;

function choose<T>(chance: Chance, items: readonly T[]): T {
  const item = chance.pick(items);
  if (item === undefined) throw new Error("nothing to choose from");
  return item;
}

interface Given {
  readonly interruptId: string;
  readonly payload: unknown;
}

/** One turn, and what people were told of the answers that they gave. */
async function play(seed: number): Promise<{ bench: RunToolsBench; accepted: Given[]; story: string[] }> {
  const chance = new Chance(seed);
  const disposition = choose(chance, ["hold", "hold", "acknowledge"] as const);
  const bench = new RunToolsBench({ disposition });
  const story: string[] = [disposition];
  const accepted: Given[] = [];
  const waits: PromiseWithResolvers<undefined>[] = [];
  const ids = ["c0", "c1", "c2", "c3", "c4", "c5"];
  const toolOf = new Map(ids.map((id) => [id, choose(chance, SPECS).name]));
  const announced: string[] = [];
  let requests = 0;
  bench.signing = async () => {
    if (chance.of(0.5)) return undefined;
    const wait = Promise.withResolvers<undefined>();
    waits.push(wait);
    return wait.promise;
  };
  await bench.print(...START);
  const acts: Record<string, () => Promise<unknown>> = {
    announce: async () => {
      const id = ids.find((each) => !announced.includes(each));
      if (id === undefined) return;
      announced.push(id);
      const more = chance.of(0.2) ? { providerMetadata: { dispatchd: { parentToolCallId: "agent" } } } : {};
      await bench.announce(id, toolOf.get(id) ?? "", { n: id }, more);
    },
    request: async () => {
      const id = choose(chance, ids);
      const args = chance.of(0.1) ? { n: "forged" } : { n: id };
      await bench.request(id, toolOf.get(id) ?? "", args, `r${requests++}`);
    },
    withdraw: () => bench.withdraw(`r${chance.below(requests)}`),
    report: async () => {
      const id = chance.pick(announced);
      if (id === undefined) return;
      const error = { type: "tool-output-error", toolCallId: id, errorText: "given up", dynamic: true };
      const output = { type: "tool-output-available", toolCallId: id, output: "made up", dynamic: true };
      await bench.print(chance.of(0.5) ? error : output);
    },
    reply: async () => {
      chance.pick(bench.carried)?.resolve({ text: "carried out", isError: chance.of(0.2) });
    },
    answer: async () => {
      const open = bench.waiting.at(-1)?.interrupts ?? [];
      const ever = bench.waiting.flatMap(({ interrupts }) => interrupts);
      const asked = open.length > 0 && chance.of(0.8) ? open : ever;
      if (asked.length === 0) return;
      const entries = [choose(chance, asked), ...(chance.of(0.2) ? [choose(chance, asked)] : [])].map((interrupt) => ({
        interruptId: interrupt.id,
        status: "resolved" as const,
        payload: interrupt.reason === "tool_call" ? { approved: chance.of(0.7) } : { picked: chance.below(3) },
      }));
      const answering = bench.tools.answer(entries).then((result: AnswerResult) => {
        if (result.type === "accepted") accepted.push(...entries);
      });
      if (chance.of(0.5)) await settle();
      else void answering;
    },
    sign: async () => void waits.splice(chance.below(waits.length), 1)[0]?.resolve(undefined),
    time: () => bench.clock.advance(choose(chance, [1, 1, 500, 2000, HOLD_MS / 2])),
    park: async () => {
      if (chance.of(0.1)) bench.tools.park("by chance");
    },
    step: async () => {
      if (chance.of(0.1)) await bench.print(STEP_ENDS, { type: "start-step" });
    },
  };
  for (let step = 0; step < STEPS && bench.outcomes.length === 0; step++) {
    const name = choose(chance, [...Object.keys(acts), "announce", "request", "request", "answer", "answer", "sign"]);
    story.push(name);
    await acts[name]?.();
    if (chance.of(0.7)) await settle();
  }
  if (chance.of(0.5)) await bench.print(STEP_ENDS, FINISH);
  const ended = bench.tools.conclude({ type: "finished" });
  for (let round = 0; round < 20; round++) {
    for (const wait of waits.splice(0)) wait.resolve(undefined);
    await settle();
  }
  await ended;
  for (const { resolve } of bench.carried) resolve({ text: "too late", isError: false });
  await bench.clock.advance(10 * HOLD_MS);
  return { bench, accepted, story };
}

function check(
  { read, answered, outcomes, failures, waiting, waitingAt, carried }: RunToolsBench,
  accepted: Given[],
): void {
  expect(failures).toEqual([]);
  expect(outcomes).toHaveLength(1);
  const names = answered.map(([name]) => name);
  expect(new Set(names).size).toBe(names.length);
  const outputsBefore = (end: number): string[] =>
    read.slice(0, end).flatMap(({ type, toolCallId }) => (FINAL.test(type) ? [String(toolCallId)] : []));
  const outputs = outputsBefore(read.length);
  expect(new Set(outputs).size).toBe(outputs.length);
  // Nobody is asked for what the reader was shown the output of.
  for (const [index, { interrupts }] of waiting.entries()) {
    const closed = outputsBefore(waitingAt[index] ?? 0);
    for (const { toolCallId } of interrupts) expect(closed).not.toContain(toolCallId);
  }
  const [outcome] = outcomes;
  const parked = outcome?.type === "interrupt" ? outcome.interrupts : [];
  for (const { id, toolCallId } of parked) {
    expect(outputs).not.toContain(toolCallId);
    expect(accepted.map(({ interruptId }) => interruptId)).not.toContain(id);
  }
  // What a person gave is what the reader was shown, if the call was not given up meanwhile.
  const byId = new Map(waiting.flatMap(({ interrupts }) => interrupts.map((interrupt) => [interrupt.id, interrupt])));
  for (const { interruptId, payload } of accepted) {
    const { toolCallId, reason } = byId.get(interruptId) ?? {};
    if (reason === "tool_call") continue;
    const shown = read.find((chunk) => chunk.toolCallId === toolCallId && FINAL.test(chunk.type));
    expect(shown).toMatchObject({ type: "tool-output-available", output: payload });
  }
  // Without approval nothing runs that needs one.
  const approved = accepted.filter(({ payload }) => (payload as { approved?: unknown }).approved === true);
  const approvedCalls = approved.map(({ interruptId }) => byId.get(interruptId)?.toolCallId);
  for (const { call } of carried) {
    expect(["look_up", "erase"]).toContain(call.spec.name);
    if (call.spec.name === "erase") expect(approvedCalls).toContain(call.toolCallId);
  }
}

/** As the attempt ends it. */
async function checkMessage({ read, outcomes: [outcome] }: RunToolsBench): Promise<void> {
  const parts = new OpenParts();
  for (const chunk of read) parts.note(chunk);
  const whole = [...read, ...(outcome ? endOfMessage(parts, outcome) : [])];
  expect((await readMessage(whole)).errors).toEqual([]);
}

test("calls and questions in any order", async () => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    const { bench, accepted, story } = await play(seed);
    try {
      check(bench, accepted);
      await checkMessage(bench);
    } catch (error) {
      throw new Error(`seed ${seed}: ${story.join(" ")}`, { cause: error });
    }
  }
}, 60_000);
