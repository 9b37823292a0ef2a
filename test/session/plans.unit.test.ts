/** The pure parts: names, segments, deletions, heads. */
import { expect, test } from "bun:test";
import { chooseSave } from "../../src/session/choose-save.ts";
import { planDeletions } from "../../src/session/plan-deletions.ts";
import { planSegments } from "../../src/session/plan-segments.ts";
import { parseHead } from "../../src/session/save-head.ts";
import {
  compareRuns,
  compareSaves,
  formatSaveName,
  isSaveName,
  nextTurn,
  placeOf,
  runKeyOf,
  type SaveName,
} from "../../src/session/save-name.ts";
import { createSealer, threadFolders } from "../../src/session/sealing.ts";
import { type Segment, sizeOf } from "../../src/session/thread-state.ts";
import { needleOf } from "../../src/session/user-text.ts";

const nameOf = (fence: number, turn: number, run: string, number: number, marked = false): SaveName =>
  formatSaveName({ fence, turn, run: run.padStart(16, "0"), number, marked });

test("saves are in the order of fence, turn, run and number", () => {
  const inOrder = [
    nameOf(0, 1, "a", 0),
    nameOf(0, 1, "a", 10),
    nameOf(0, 1, "b", 2),
    nameOf(0, 10, "a", 1),
    nameOf(1, 1, "a", 1),
    nameOf(Number.MAX_SAFE_INTEGER, 1, "a", 1),
  ];
  expect([...inOrder].reverse().sort(compareSaves)).toEqual(inOrder);
  const [first = nameOf(0, 1, "a", 0), second = first, third = first] = inOrder;
  expect(compareRuns(first, second)).toBe(0);
  expect(compareRuns(second, third)).toBeLessThan(0);
  expect(placeOf(second)).toEqual({ fence: 0, turn: 1, run: "a".padStart(16, "0"), number: 10, marked: false });
  expect(nextTurn(inOrder)).toBe(11);
  expect(nextTurn([])).toBe(1);
});

test("what is no name of a save", () => {
  const good = nameOf(1, 2, "a", 3, true);
  expect(isSaveName(good)).toBe(true);
  for (const bad of [
    "",
    `${good}x`,
    good.toUpperCase(),
    good.replace("-b", "-c"),
    `99${good.slice(2)}`,
    `../${good}`,
  ]) {
    expect(isSaveName(bad)).toBe(false);
  }
  expect(() => nameOf(1, 100_000_000, "a", 1)).toThrow();
  expect(() => nameOf(1, 1, "a", 1_000_000)).toThrow();
});

test("segments stay few, each byte is written a few times, and never more than 8 MiB at once", () => {
  const step = 64 << 10;
  let segments: Segment[] = [];
  let size = 0;
  let written = 0;
  let most = 0;
  for (let n = 0; n < 1024; n++) {
    size += step;
    const { kept, ranges } = planSegments(segments, size);
    const now = ranges.reduce((sum, { from, to }) => sum + to - from, 0);
    written += now;
    most = Math.max(most, now);
    segments = [
      ...kept,
      ...ranges.map(({ from, to }) => ({ save: nameOf(0, 1, "a", n), at: 1, length: 1, size: to - from, hash: "" })),
    ];
    expect(sizeOf(segments)).toBe(size);
    expect(segments.length).toBeLessThanOrEqual(8 + Math.ceil(size / (4 << 20)));
  }
  expect(most).toBeLessThanOrEqual(8 << 20);
  expect(written / size).toBeLessThan(6);
  expect(planSegments(segments, size).ranges).toEqual([]);
  expect(planSegments([], 20 << 20).ranges.map(({ from, to }) => to - from)).toEqual([8 << 20, 8 << 20, 4 << 20]);
});

test("deletes keep the newest of its own, the proof, and what these refer to", () => {
  const mine = Array.from({ length: 6 }, (_, n) => nameOf(2, 2, "mine", n));
  const before = nameOf(1, 1, "before", 0);
  const proof = nameOf(1, 1, "before", 5);
  const referred = nameOf(1, 1, "before", 2);
  const lost = nameOf(1, 1, "lost", 0);
  const above = nameOf(3, 3, "above", 0);
  const facts = {
    names: [...mine, before, proof, referred, lost, above],
    own: mine.map((name, n) => ({ name, refs: n === 5 ? [mine[1] ?? name, name] : [name] })),
    proof: { name: proof, refs: [referred] },
    line: [runKeyOf(nameOf(2, 2, "mine", 0)), runKeyOf(before)],
    blind: false,
    keepOwn: 2,
  };
  expect(planDeletions(facts).remove).toEqual([before, mine[0], mine[2], mine[3]].filter((name) => name !== undefined));
  expect(planDeletions(facts).ifOld).toEqual([lost]);
  const blind = planDeletions({ ...facts, blind: true });
  expect(blind.remove).not.toContain(before);
  expect(blind.ifOld).toEqual([]);
  expect(planDeletions({ ...facts, proof: undefined }).remove).not.toContain(before);
  const many = Array.from({ length: 200 }, (_, n) => nameOf(2, 2, "mine", n));
  expect(planDeletions({ ...facts, names: many, own: many.map((name) => ({ name, refs: [] })) }).remove.length).toBe(
    64,
  );
});

test("a save of more files than are kept deletes none of the states before it", () => {
  const states = [nameOf(0, 1, "a", 0), nameOf(0, 2, "b", 0)];
  const parts = Array.from({ length: 150 }, (_, n) => nameOf(0, 3, "c", n));
  const last = nameOf(0, 3, "c", 150);
  const own = [
    ...states.map((name) => ({ name, refs: [name] })),
    ...parts.map((name) => ({ name, refs: [] })),
    { name: last, refs: [...parts, last] },
  ];
  const names = own.map(({ name }) => name);
  const line = names.map(runKeyOf);
  expect(planDeletions({ names, own, proof: undefined, line, blind: false }).remove).toEqual([]);
});

test("names whose files never came to be are no saves: as many as there are, what was saved before them stays", () => {
  const states = [nameOf(0, 1, "a", 0), nameOf(0, 2, "b", 0)];
  const failed = Array.from({ length: 150 }, (_, n) => ({ name: nameOf(0, 3, "c", n), refs: [] }));
  const last = nameOf(0, 3, "c", 150);
  const own = [...states.map((name) => ({ name, refs: [name] })), ...failed, { name: last, refs: [last] }];
  const line = own.map(({ name }) => runKeyOf(name));
  expect(planDeletions({ names: [...states, last], own, proof: undefined, line, blind: false }).remove).toEqual([]);
});

test("what is no file is neither the newest save nor what the caller knows of", async () => {
  const [hinted, folder, marked] = [nameOf(0, 5, "a", 0), nameOf(0, 9, "b", 0), nameOf(0, 9, "c", 0, true)];
  const reader = { verify: async () => "no-file" as const, parentOf: async () => "no-file" as const };
  const names = [folder, marked];
  expect(await chooseSave(names, undefined, undefined, reader)).toEqual({
    source: "none",
    blind: false,
    passedOver: [marked, folder],
  });
  const missed = await chooseSave(names, undefined, hinted, reader);
  expect(missed).toMatchObject({ blind: true, reason: "the newest save of the thread is not on the volume yet" });
});

test("what is lost of the very run that is taken makes nobody blind, and is said", async () => {
  const [kept, lost] = [nameOf(0, 5, "a", 1), nameOf(0, 5, "a", 2)];
  const reader = {
    verify: async (name: SaveName) => (name === kept ? ("whole" as const) : ("not-whole" as const)),
    parentOf: async () => undefined,
  };
  const cut = await chooseSave([kept, lost], undefined, undefined, reader);
  expect(cut).toMatchObject({ pick: { name: kept }, blind: false, reason: expect.stringContaining("not whole") });
  const absent = await chooseSave([kept], undefined, lost, reader);
  expect(absent).toMatchObject({
    pick: { name: kept },
    blind: false,
    reason: expect.stringContaining("not on the volume"),
  });
  // What this pod's own run wrote is in its session, whether it got anywhere or not.
  const own = { last: { name: kept }, coversRun: true, ownRuns: [runKeyOf(kept)] };
  expect((await chooseSave([kept, lost], own, lost, reader)).reason).toBeUndefined();
  expect((await chooseSave([kept], undefined, kept, reader)).reason).toBeUndefined();
});

test("a head that is none says why", () => {
  const good = { thread: "t", session: "s", harness: "h", line: [], saves: [], files: [] };
  expect(parseHead(JSON.stringify({ ...good, unknown: 1 }))).toEqual(good);
  const segment = { save: 0, at: 1, length: 1, size: 1, hash: "0".repeat(64) };
  const wrong = [
    { ...good, thread: 1 },
    { ...good, parent: "x" },
    { ...good, line: ["x"] },
    { ...good, saves: [["x", 1]] },
    { ...good, files: [{ path: "p", segments: [segment] }] },
    { ...good, files: [{ path: "p", segments: [{ ...segment, save: -1, at: -1 }] }] },
    { ...good, files: [{ path: "p", segments: [{ ...segment, save: -1, hash: "x" }] }] },
    [],
    null,
  ];
  for (const head of wrong) expect(typeof parseHead(JSON.stringify(head))).toBe("string");
  expect(typeof parseHead("{")).toBe("string");
});

test("what is sealed opens in its place alone", () => {
  const keys = [new Uint8Array(32).fill(1), new Uint8Array(32).fill(2)];
  const [first = new Uint8Array(), second = new Uint8Array()] = keys;
  const sealed = createSealer("t", keys).seal(Buffer.from("text"), "here");
  expect(Buffer.from(createSealer("t", keys).open(sealed, "here") ?? []).toString()).toBe("text");
  expect(createSealer("t", keys).open(sealed, "there")).toBeUndefined();
  expect(createSealer("u", keys).open(sealed, "here")).toBeUndefined();
  expect(createSealer("t", [second]).open(sealed, "here")).toBeUndefined();
  expect(createSealer("t", [second, first]).open(sealed, "here")).toBeDefined();
  const changed = Buffer.from(sealed);
  changed[14] = (changed[14] ?? 0) ^ 1;
  expect(createSealer("t", keys).open(changed, "here")).toBeUndefined();
  expect(threadFolders("t", keys)).toHaveLength(2);
  expect(threadFolders("t", [])[0]).toMatch(/^([0-9a-f]{2})\/([0-9a-f]{2})\/\1\2[0-9a-f]{36}$/);
  expect(threadFolders("t", [first])[0]).not.toBe(threadFolders("t", [])[0]);
});

test("the user's message as a transcript holds it", () => {
  expect(needleOf("  do it ")).toBe("do it");
  expect(needleOf({ content: 'say "hi"' })).toBe("say ");
  expect(needleOf({ parts: [{ type: "file" }, { type: "text", text: "look" }] })).toBe("look");
  expect(needleOf({ parts: [] })).toBeUndefined();
  expect(needleOf("ü")).toBeUndefined();
});
