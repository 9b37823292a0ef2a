/** Attaching at any seq, at any moment: the same lines in the same order, no gap and no double. */
import { expect, test } from "bun:test";
import { eventually, TestDaemon } from "../support/daemon.ts";
import { Follower } from "../support/follow.ts";
import { RawReader } from "../support/raw-reader.ts";
import { OPEN, type Step } from "../support/scripted-harness.ts";

/** A frame that takes more than one block of 256 KiB, printed by the shell: it would be too much for a prompt. */
const largeFrame = (size: number): Step => ({
  sh: `printf '{"chunks":[{"type":"data-x","data":"'; head -c ${size} /dev/zero | tr '\\0' x; printf '"}]}\\n'`,
  wait: true,
});

const STEPS: Step[] = [
  OPEN,
  { deltas: 40, numbered: true, everyMs: 4, text: "é\u2028𝄞" },
  largeFrame(300 << 10),
  { deltas: 10, numbered: true, everyMs: 4 },
  largeFrame(256 << 10),
  largeFrame(1 << 20),
  { deltas: 30, numbered: true, text: "y".repeat(9000) },
  { deltas: 10, numbered: true, everyMs: 4 },
  { json: { outcome: { type: "finished" } } },
];

/** The frame lines of an event stream; every event has to be the line under its own seq. */
function linesOfEvents(lines: readonly string[]): string[] {
  // Every line has its newline: the last event ends in two as well.
  const text = lines.map((line) => `${line}\n`).join("");
  const events = text.split("\n\n").filter((event) => event !== "" && event !== ":");
  return events.map((event) => {
    const found = /^id: (\d+)\ndata: (\{"seq":(\d+),[^\n]*)$/.exec(event);
    expect(found?.[1]).toBe(found?.[3] ?? "no event");
    return found?.[2] ?? "";
  });
}

for (const accept of ["application/x-ndjson", "text/event-stream"]) {
  test(`at every seq of a run while it streams: ${accept}`, async () => {
    await using daemon = await TestDaemon.start({ env: { MAX_READERS: "200", KEEPALIVE_MS: "50" } });
    const owner = new Follower(await daemon.dispatch({ runId: "r", steps: STEPS }));
    const readers: { after: number; reader: Follower }[] = [];
    // As soon as the owner has seen a frame, somebody asks for what comes after it.
    for (let after = 0; ; after++) {
      await owner.until(({ frameLines, whole }) => frameLines.length >= after || whole === true);
      if (owner.whole === true && owner.frameLines.length <= after) break;
      const response = await daemon.fetch(`/runs/r/frames?after=${after}`, { headers: { accept } });
      expect(response.status).toBe(200);
      readers.push({ after, reader: new Follower(response) });
    }
    await owner.ended;
    const expected = owner.frameLines;
    expect(expected.map((line) => Number(/^\{"seq":(\d+)/.exec(line)?.[1]))).toEqual(expected.map((_, at) => at + 1));
    expect(readers.length).toBe(expected.length);
    for (const { after, reader } of readers) {
      await reader.ended;
      expect(reader.whole).toBe(true);
      const lines = accept === "text/event-stream" ? linesOfEvents(reader.lines) : reader.frameLines;
      // Compared by hash first: a difference of megabytes helps nobody.
      if (Bun.hash(lines.join("\n")) === Bun.hash(expected.slice(after).join("\n"))) continue;
      expect(lines.map((line) => line.slice(0, 60))).toEqual(expected.slice(after).map((line) => line.slice(0, 60)));
      expect(`after ${after}: other bytes`).toBe("the same");
    }
  });
}

test("at random seqs of a run that prints as fast as it can", async () => {
  await using daemon = await TestDaemon.start({ env: { MAX_READERS: "200" } });
  const owner = new Follower(await daemon.dispatch({ runId: "r", steps: [OPEN, { deltas: 60_000, numbered: true }] }));
  const readers: { after: number; reader: Follower }[] = [];
  for (let round = 0; round < 40 && owner.whole === undefined; round++) {
    await owner.until(({ lines, whole }) => lines.length > round * 500 || whole === true);
    const { lastSeq } = (await daemon.show("r")) as { lastSeq: number };
    // The newest frame may be on its way to the disk still.
    const after = [lastSeq, Math.floor(lastSeq / 2), lastSeq - 1][round % 3] ?? 0;
    const response = await daemon.fetch(`/runs/r/frames?after=${after}`);
    if (response.status === 200) readers.push({ after, reader: new Follower(response) });
    else expect(response.status).toBe(204);
  }
  await owner.ended;
  expect(owner.frameLines.length).toBe(60_004);
  expect(readers.length).toBeGreaterThan(3);
  for (const { after, reader } of readers) {
    await reader.ended;
    expect(Bun.hash(reader.frameLines.join("\n"))).toBe(Bun.hash(owner.frameLines.slice(after).join("\n")));
  }
});

test("an owner that is lost is followed by one who gets the frame after its last whole one", async () => {
  await using daemon = await TestDaemon.start({ env: { KEEPALIVE_MS: "50" } });
  const go = daemon.path("go");
  const leave = new AbortController();
  const steps = [OPEN, largeFrame(300 << 10), { waitFor: go }, largeFrame(300 << 10)];
  const first = new Follower(await daemon.dispatch({ runId: "r", steps, signal: leave.signal }));
  await first.until(({ frameLines }) => frameLines.length === 3);
  leave.abort();
  await first.ended;
  await eventually(async () => (await daemon.show("r")).readers === 0);
  const second = new Follower(await daemon.dispatch({ runId: "r", steps }));
  await second.until(({ lines }) => lines.length > 1);
  await Bun.write(go, "");
  await second.ended;
  expect(second.frames.map(({ seq }) => seq)).toEqual([4, 5, 6]);
  expect(await daemon.starts()).toEqual(["r#1"]);
});

test("a newer owner ends the body of the older one after a whole line and without done", async () => {
  await using daemon = await TestDaemon.start();
  const steps: Step[] = [OPEN, { deltas: 60, everyMs: 3, text: "z".repeat(30_000) }, largeFrame(600 << 10)];
  const owners = [new Follower(await daemon.dispatch({ runId: "r", steps }))];
  for (let after = 1; after <= 5; after++) {
    await owners.at(-1)?.until(({ frames }) => (frames.at(-1)?.seq ?? 0) >= after * 8);
    owners.push(new Follower(await daemon.dispatch({ runId: "r", steps, after })));
  }
  await Promise.all(owners.map(({ ended }) => ended));
  const all = owners.at(-1)?.frameLines ?? [];
  expect(JSON.parse(all.at(-1) ?? "")).toMatchObject({ seq: 65, done: true });
  for (const [index, owner] of owners.slice(0, -1).entries()) {
    expect(owner.whole).toBe(true);
    expect(owner.frames.some(({ done }) => done)).toBe(false);
    // From the frame after `index` on: what the newest owner has from frame 6 on.
    const seqs = owner.frames.map(({ seq }) => seq);
    expect(seqs).toEqual(seqs.map((_, at) => index + 1 + at));
    expect(owner.frameLines.slice(5 - index)).toEqual(all.slice(0, seqs.length - (5 - index)));
  }
  expect(await daemon.starts()).toEqual(["r#1"]);
});

test("an older owner that is within a large frame gets the rest of it", async () => {
  await using daemon = await TestDaemon.start();
  const go = daemon.path("go");
  const steps: Step[] = [OPEN, largeFrame(15 << 20), { chunks: [{ type: "data-y" }] }, { waitFor: go }];
  const body = { runId: "r", input: { threadId: "t", userMessage: JSON.stringify(steps) } };
  const older = new RawReader(daemon, "/dispatch", JSON.stringify(body));
  older.kept = [];
  await eventually(async () => (await daemon.show("r").catch(() => ({ lastSeq: 0 }))).lastSeq === 4);
  // Within the frame, of which its socket holds less than what is left.
  older.readUpTo(2 << 20);
  await eventually(() => older.received >= 2 << 20);
  const newer = new Follower(await daemon.dispatch({ runId: "r", threadId: "t", steps, after: 3 }));
  await newer.until(({ frameLines }) => frameLines.length === 1);
  older.read();
  await eventually(async () => (await daemon.show("r")).readers === 1);
  await eventually(() => older.body() !== undefined);
  const lines = older.body()?.toString().split("\n") ?? [];
  expect(lines.pop()).toBe("");
  expect(lines.filter(Boolean).map((line) => JSON.parse(line).seq)).toEqual([1, 2, 3]);
  older.leave("close");
  await Bun.write(go, "");
  await newer.ended;
  expect(newer.frames.map(({ seq }) => seq)).toEqual([4, 5, 6]);
});

test("64 readers see the same, the next one is told that there is no place, and a place that is left can be taken", async () => {
  await using daemon = await TestDaemon.start();
  const go = daemon.path("go");
  const owner = new Follower(
    await daemon.dispatch({ runId: "r", steps: [OPEN, { waitFor: go }, { deltas: 200, numbered: true }] }),
  );
  await owner.until(({ frameLines }) => frameLines.length === 2);
  const leave = new AbortController();
  const attach = (init: RequestInit = {}): Promise<Response> => daemon.fetch("/runs/r/frames", init);
  const responses = await Promise.all(
    Array.from({ length: 64 }, (_, index) => attach(index === 0 ? { signal: leave.signal } : {})),
  );
  expect(responses.map(({ status }) => status)).toEqual(responses.map(() => 200));
  const [leaver, ...readers] = responses.map((response) => new Follower(response));
  expect((await daemon.show("r")).readers).toBe(65);
  const refused = await attach();
  expect(refused.status).toBe(429);
  expect(await refused.json()).toMatchObject({ error: "too_many_readers" });
  leave.abort();
  await leaver?.ended;
  await eventually(async () => (await daemon.show("r")).readers === 64);
  const late = await attach();
  expect(late.status).toBe(200);
  readers.push(new Follower(late));
  await Bun.write(go, "");
  await owner.ended;
  for (const reader of readers) {
    await reader.ended;
    expect(reader.frameLines).toEqual(owner.frameLines);
  }
});
