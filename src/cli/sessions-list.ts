/** `sessions ls`, `show`, `verify` and `prune`. */
import {
  removeThread,
  type SaveVerdict,
  summarize,
  type ThreadSummary,
  threadFoldersIn,
  verifyFolder,
  verifyThread,
} from "../session/inspect-store.ts";
import type { SaveSource } from "../session/read-save.ts";
import { threadFolders } from "../session/sealing.ts";
import { sourceIn } from "../session/store-place.ts";
import { SESSIONS_EXIT } from "./exit-codes.ts";
import type { CliIo } from "./io.ts";
import { safeLine } from "./safe-text.ts";
import type { SessionsCall } from "./sessions.ts";

const DAY_MS = 24 * 3_600_000;

export async function list(call: SessionsCall): Promise<number> {
  const { json, io } = call;
  const threads = await summaries(call);
  threads.sort((a, b) => b.modifiedAt - a.modifiedAt);
  if (json) await print(io, threads.map(forJson));
  else if (threads.length === 0) await io.stderr.write("no threads\n");
  else await io.stdout.write(table(["THREAD", "SESSION", "SAVES", "BYTES", "LAST SAVED"], threads.map(threadRow)));
  const closed = threads.filter(({ thread, sealed }) => sealed && thread === undefined).length;
  if (closed > 0) await io.stderr.write(`${count(closed)} sealed: ${HOW_TO_OPEN}\n`);
  return SESSIONS_EXIT.ok;
}

/** The key of a thread is made from its id: the keys alone open nothing. */
const HOW_TO_OPEN = "the store does not tell their ids; give SESSION_KEYS, and the ids with --threads";

export async function show(call: SessionsCall, source: SaveSource): Promise<number> {
  const verdicts = await verifyThread(source);
  if (verdicts.length === 0) return noThread(call.io);
  await printVerdicts(call, verdicts);
  return SESSIONS_EXIT.ok;
}

export async function verifyOne(call: SessionsCall, source: SaveSource): Promise<number> {
  const verdicts = await verifyThread(source);
  if (verdicts.length === 0) return noThread(call.io);
  await printVerdicts(call, verdicts);
  return SESSIONS_EXIT[conditionOf(verdicts)];
}

type Condition = "ok" | "damaged" | "cut" | "sealed";

export async function verifyAll(call: SessionsCall): Promise<number> {
  const { json, io } = call;
  const found = new Set<Condition>();
  const seen = new Set<string>();
  const known = knownFolders(call);
  for (const summary of await summaries(call)) {
    const { folder, saves, sealed } = summary;
    const thread = summary.thread ?? known.get(folder);
    // With several keys a thread has several folders: they are one. Its plain one is another.
    const place = thread === undefined ? folder : `${sealed} ${thread}`;
    if (saves === 0 || seen.has(place)) continue;
    seen.add(place);
    const isClosed = thread === undefined && sealed;
    const verdicts = isClosed ? [] : await verifySource(call, thread, summary);
    const condition = isClosed ? "sealed" : conditionOf(verdicts);
    found.add(condition);
    const damaged = verdicts.filter(({ state }) => state === "damaged").length;
    const cut = verdicts.filter(({ state }) => state === "cut").length;
    const newestWhole = verdicts.find(({ state }) => state === "whole")?.name;
    const report = { folder, thread, saves, condition, damaged, cut, newestWhole };
    if (json) await print(io, [report]);
    else await io.stdout.write(`${safeLine(thread ?? folder, 64)}  ${wordsFor(report)}\n`);
  }
  if (found.has("sealed")) await io.stderr.write(`sealed threads were not checked: ${HOW_TO_OPEN}\n`);
  return SESSIONS_EXIT[(["damaged", "sealed", "cut"] as const).find((each) => found.has(each)) ?? "ok"];
}

function conditionOf(verdicts: readonly SaveVerdict[]): Condition {
  if (verdicts.some(({ state }) => state === "damaged")) return "damaged";
  return verdicts.some(({ state }) => state === "cut") ? "cut" : "ok";
}

interface ThreadReport {
  readonly saves: number;
  readonly condition: Condition;
  readonly damaged: number;
  readonly cut: number;
  readonly newestWhole: string | undefined;
}

function wordsFor({ saves, condition, damaged, cut, newestWhole }: ThreadReport): string {
  const whole = newestWhole === undefined ? "none is whole" : "another one is whole";
  switch (condition) {
    case "ok":
      return "whole";
    case "sealed":
      return "sealed: not checked";
    case "cut":
      return `${cut} of ${saves} saves cut short, on their way or lost with their pod; ${whole}`;
    case "damaged":
      return `${damaged} of ${saves} saves damaged; ${whole}`;
  }
}

export async function prune(call: SessionsCall, days: number, dryRun: boolean): Promise<number> {
  const { store, json, io } = call;
  const old = (await summaries(call)).filter(({ saves, modifiedAt }) => {
    // A folder without a save may be one that is just being made.
    return saves > 0 && io.clock.now() - modifiedAt > days * DAY_MS;
  });
  for (const thread of old) {
    if (!dryRun) await removeThread(store, thread.folder);
    if (json) await print(io, [{ ...forJson(thread), removed: !dryRun }]);
    else await io.stdout.write(`${dryRun ? "would remove" : "removed"}  ${threadRow(thread).join("  ")}\n`);
  }
  if (!json) await io.stderr.write(`${count(old.length)}\n`);
  return SESSIONS_EXIT.ok;
}

async function verifySource(
  { store, keys }: SessionsCall,
  thread: string | undefined,
  { folder, sealed }: ThreadSummary,
): Promise<SaveVerdict[]> {
  if (thread === undefined) return await verifyFolder(store, folder);
  const source = sourceIn(store, thread, sealed ? keys : []);
  await using _open = source.folder;
  return await verifyThread(source);
}

/** The threads whose ids were given, by their folders. */
function knownFolders({ keys, threads }: SessionsCall): ReadonlyMap<string, string> {
  return new Map(threads.flatMap((thread) => threadFolders(thread, keys).map((folder) => [folder, thread] as const)));
}

async function summaries(call: SessionsCall): Promise<ThreadSummary[]> {
  const { store, keys } = call;
  const known = knownFolders(call);
  const found: ThreadSummary[] = [];
  for (const folder of await threadFoldersIn(store)) {
    found.push(await summarize(store, folder, keys, known.get(folder)));
  }
  return found;
}

function count(threads: number): string {
  return `${threads} ${threads === 1 ? "thread" : "threads"}`;
}

async function printVerdicts({ json, io }: SessionsCall, verdicts: readonly SaveVerdict[]): Promise<void> {
  if (json) return print(io, verdicts);
  const rows = verdicts.map(({ name, state, bytes, textBytes, files, session, reason }) => [
    name,
    state,
    String(bytes),
    textBytes === undefined ? "-" : String(textBytes),
    files === undefined ? "-" : String(files),
    safeLine(session ?? reason ?? "-", 96),
  ]);
  await io.stdout.write(table(["SAVE", "STATE", "BYTES", "TEXT", "FILES", "SESSION"], rows));
}

export async function noThread(io: CliIo): Promise<number> {
  await io.stderr.write("dispatchd sessions: the store has no save of this thread\n");
  return SESSIONS_EXIT.noThread;
}

function threadRow({ thread, sealed, folder, session, saves, bytes, modifiedAt }: ThreadSummary): string[] {
  const name = thread ?? `(${sealed ? "sealed" : "damaged"}) ${folder}`;
  const facts = [name, session ?? "-"].map((text) => safeLine(text, 72));
  return [...facts, String(saves), String(bytes), iso(modifiedAt)];
}

function forJson({ modifiedAt, ...facts }: ThreadSummary): object {
  return { ...facts, lastSaved: iso(modifiedAt) };
}

function iso(ms: number): string {
  return ms === 0 ? "-" : new Date(ms).toISOString();
}

async function print(io: CliIo, records: readonly object[]): Promise<void> {
  await io.stdout.write(records.map((record) => `${JSON.stringify(record)}\n`).join(""));
}

function table(headings: readonly string[], rows: readonly (readonly string[])[]): string {
  const all = [headings, ...rows];
  const widths = headings.map((_, column) => Math.max(...all.map((cells) => (cells[column] ?? "").length)));
  const line = (cells: readonly string[]): string => cells.map((cell, n) => cell.padEnd(widths[n] ?? 0)).join("  ");
  return all.map((cells) => `${line(cells).trimEnd()}\n`).join("");
}
