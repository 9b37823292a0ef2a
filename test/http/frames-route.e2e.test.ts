import { afterAll, beforeAll, expect, test } from "bun:test";
import { writeFile } from "node:fs/promises";
import { eventually, TestDaemon } from "../support/daemon.ts";
import { CLOSE, FINISHED, OPEN } from "../support/scripted-harness.ts";

const SSE = { accept: "text/event-stream" };
const MAX_READERS = 3;

let daemon: TestDaemon;
/** The lines of the run `done`, as the live reader saw them. */
let lines: string[];
beforeAll(async () => {
  daemon = await TestDaemon.start({ env: { KEEPALIVE_MS: "50", MAX_READERS: String(MAX_READERS) } });
  const steps = [OPEN, { deltas: 5, numbered: true, text: "é\u2028" }, CLOSE, FINISHED];
  const response = await daemon.dispatch({ runId: "done", steps });
  lines = (await response.text()).split("\n").filter(Boolean);
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

const frames = (query = "", headers: Record<string, string> = {}): Promise<Response> =>
  daemon.fetch(`/runs/done/frames${query}`, { headers });
const seqs = async (response: Response): Promise<number[]> =>
  [...(await response.text()).matchAll(/"seq":(\d+)/g)].map(([, seq]) => Number(seq));
const from = (first: number): number[] => lines.map((_, index) => index + 1).slice(first - 1);

test("a replay gives the same bytes from any seq on", async () => {
  for (let after = 0; after < lines.length; after++) {
    const response = await frames(`?after=${after}`);
    expect(Object.fromEntries(response.headers)).toMatchObject({
      "content-type": "application/x-ndjson",
      "x-run-attempt": "1",
      "x-accel-buffering": "no",
      "cache-control": "no-store",
    });
    expect((await response.text()).split("\n").filter(Boolean)).toEqual(lines.slice(after));
  }
});

test("events carry the seq as id and the line as data", async () => {
  const response = await frames("", SSE);
  expect(response.headers.get("content-type")).toBe("text/event-stream");
  const events = (await response.text()).split("\n\n").filter((event) => event !== "" && !event.startsWith(":"));
  expect(events).toEqual(lines.map((line, index) => `id: ${index + 1}\ndata: ${line}`));
});

test("Last-Event-ID wins over the query, in both encodings", async () => {
  expect(await seqs(await frames("?after=1", { ...SSE, "last-event-id": "4" }))).toEqual(from(5));
  expect(await seqs(await frames("?after=1", { "last-event-id": "4" }))).toEqual(from(5));
  expect(await seqs(await frames("?after=4", { ...SSE, "last-event-id": "0" }))).toEqual(from(1));
  expect(await seqs(await frames("?after=4", { ...SSE, "last-event-id": "" }))).toEqual(from(5));
});

test("the encoding follows Accept", async () => {
  for (const [accept, type] of [
    ["text/event-stream", "text/event-stream"],
    ["application/json, text/event-stream;q=0.5", "text/event-stream"],
    ["TEXT/EVENT-STREAM", "text/event-stream"],
    ["application/x-ndjson", "application/x-ndjson"],
    ["*/*", "application/x-ndjson"],
    ["text/*", "application/x-ndjson"],
  ] as const) {
    const response = await frames("", { accept });
    await response.text();
    expect([accept, response.headers.get("content-type")]).toEqual([accept, type]);
  }
});

test("there is nothing at or past the end: 204", async () => {
  for (const after of [lines.length, lines.length + 1, 999_999_999]) {
    for (const headers of [{}, SSE]) expect((await frames(`?after=${after}`, headers)).status).toBe(204);
    expect((await frames("", { "last-event-id": String(after) })).status).toBe(204);
  }
});

test("what cannot be asked for is refused", async () => {
  for (const [query, headers, status, error] of [
    ["?after=-1", {}, 400, "bad_input"],
    ["?after=1.5", {}, 400, "bad_input"],
    ["?after=x", {}, 400, "bad_input"],
    [`?after=${"9".repeat(30)}`, {}, 400, "bad_input"],
    ["", { "last-event-id": "x" }, 400, "bad_input"],
    ["?attempt=x", {}, 400, "bad_input"],
    ["?attempt=2", {}, 409, "superseded"],
    ["?attempt=0", {}, 409, "superseded"],
  ] as const) {
    const response = await frames(query, headers);
    expect([query, response.status]).toEqual([query, status]);
    expect(await response.json()).toMatchObject({ error });
  }
  const unknown = await daemon.fetch("/runs/nobody/frames");
  expect([unknown.status, await unknown.json()]).toEqual([404, expect.objectContaining({ error: "unknown_run" })]);
});

test("a quiet reader gets newlines, or comments, between frames; readers past the limit are refused", async () => {
  const go = daemon.path("go");
  const owner = await daemon.dispatch({ runId: "quiet", steps: [OPEN, { waitFor: go }, CLOSE, FINISHED] });
  await daemon.event("harness started", 0, ({ run }) => run === "quiet");
  const later = await daemon.fetch("/runs/quiet/frames?after=999");
  expect([later.status, await later.json()]).toEqual([409, expect.objectContaining({ error: "bad_after" })]);

  const texts = { ndjson: "", sse: "", again: "" };
  const read = async (into: keyof typeof texts, headers: Record<string, string>): Promise<void> => {
    const response = await daemon.fetch("/runs/quiet/frames", { headers });
    const decoder = new TextDecoder();
    for await (const piece of response.body ?? []) texts[into] += decoder.decode(piece as Uint8Array);
  };
  const readers = [read("ndjson", {}), read("sse", SSE), read("again", {})];
  await eventually(async () => (await daemon.show("quiet")).readers === MAX_READERS + 1);
  const refused = await daemon.fetch("/runs/quiet/frames");
  expect([refused.status, await refused.json()]).toEqual([429, expect.objectContaining({ error: "too_many_readers" })]);
  await eventually(() => /\n\n\n\n$/.test(texts.ndjson) && /(:\n\n){3}$/.test(texts.sse));
  await writeFile(go, "");
  await Promise.all(readers);
  const owned = (await owner.text()).split("\n").filter(Boolean);
  expect(texts.ndjson.split("\n").filter(Boolean)).toEqual(owned);
  expect(texts.again.split("\n").filter(Boolean)).toEqual(owned);
  const events = texts.sse.split("\n\n").filter((event) => event !== "" && event !== ":");
  expect(events).toEqual(owned.map((line, index) => `id: ${index + 1}\ndata: ${line}`));
});

test("readers that come and go leave no file and no reader behind", async () => {
  const go = daemon.path("leak");
  const owner = daemon.run({ runId: "leak", steps: [OPEN, { waitFor: go }, CLOSE, FINISHED] });
  await daemon.event("harness started", 0, ({ run }) => run === "leak");
  const files = async (): Promise<number> =>
    (await daemon.openFiles()).filter((path) => path.endsWith(".ndjson")).length;
  expect(await files()).toBe(1);
  for (let round = 0; round < 60; round++) {
    const left = new AbortController();
    const asked = daemon.fetch(`/runs/${round % 2 ? "leak" : "done"}/frames`, { signal: left.signal });
    // Some leave before the answer, some within it.
    if (round % 3 === 0) left.abort();
    await asked.then((response) => response.body?.getReader().read()).catch(() => {});
    left.abort();
    await eventually(
      async () => (await daemon.show("leak")).readers === 1 && (await daemon.show("done")).readers === 0,
    );
  }
  await writeFile(go, "");
  await owner;
  await eventually(async () => (await files()) === 0);
});
