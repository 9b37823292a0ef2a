/** `sessions ls`, `show`, `verify` and `prune`. */
import {
  removeThread,
  type SaveVerdict,
  summarize,
  type ThreadSummary,
  threadFoldersIn,
  verifyThread,
} from "../session/inspect-store.ts";
import type { SaveSource } from "../session/read-save.ts";
import { sourceIn } from "../session/store-place.ts";
import { EXIT } from "./exit-codes.ts";
import type { CliIo } from "./io.ts";
import { safeLine } from "./safe-text.ts";
import type { SessionsCall } from "./sessions.ts";

const DAY_MS = 24 * 3_600_000;

export async function list({ store, json, io }: SessionsCall): Promise<number> {
  const threads = await summaries(store);
  threads.sort((a, b) => b.modifiedAt - a.modifiedAt);
  if (json) await print(io, threads.map(forJson));
  else if (threads.length === 0) await io.stderr.write("no threads\n");
  else await io.stdout.write(table(["THREAD", "SESSION", "SAVES", "BYTES", "LAST SAVED"], threads.map(threadRow)));
  return EXIT.ok;
}

export async function show(call: SessionsCall, source: SaveSource): Promise<number> {
  const verdicts = await verifyThread(source);
  if (verdicts.length === 0) return noThread(call.io);
  await printVerdicts(call, verdicts);
  return EXIT.ok;
}

export async function verify(call: SessionsCall, source: SaveSource | undefined): Promise<number> {
  const { store, json, io } = call;
  if (source) {
    const verdicts = await verifyThread(source);
    if (verdicts.length === 0) return noThread(io);
    await printVerdicts(call, verdicts);
    return verdicts.some(({ state }) => state === "damaged") ? EXIT.failed : EXIT.ok;
  }
  let damaged = 0;
  for (const summary of await summaries(store)) {
    const { thread, folder, saves } = summary;
    const verdicts = thread === undefined ? [] : await verifyPlain(store, thread);
    const bad = verdicts.filter(({ state }) => state === "damaged");
    const unreadable = thread === undefined && saves > 0;
    if (bad.length > 0 || unreadable) damaged++;
    const newest = verdicts.find(({ state }) => state === "whole");
    const report = { folder, thread, saves, damaged: bad.length, newestWhole: newest?.name, unreadable };
    const words = unreadable
      ? "sealed, or damaged: verify it by its thread's id"
      : bad.length > 0
        ? `${bad.length} of ${saves} saves damaged, ${newest ? "an older one is whole" : "none is whole"}`
        : "whole";
    if (json) await print(io, [report]);
    else await io.stdout.write(`${safeLine(thread ?? folder, 64)}  ${words}\n`);
  }
  return damaged > 0 ? EXIT.failed : EXIT.ok;
}

export async function prune({ store, json, io }: SessionsCall, days: number, dryRun: boolean): Promise<number> {
  const old = (await summaries(store)).filter(({ saves, modifiedAt }) => {
    // A folder without a save may be one that is just being made.
    return saves > 0 && io.clock.now() - modifiedAt > days * DAY_MS;
  });
  for (const thread of old) {
    if (!dryRun) await removeThread(store, thread.folder);
    if (json) await print(io, [{ ...forJson(thread), removed: !dryRun }]);
    else await io.stdout.write(`${dryRun ? "would remove" : "removed"}  ${threadRow(thread).join("  ")}\n`);
  }
  if (!json) await io.stderr.write(`${old.length} ${old.length === 1 ? "thread" : "threads"}\n`);
  return EXIT.ok;
}

async function verifyPlain(store: string, thread: string): Promise<SaveVerdict[]> {
  const source = sourceIn(store, thread, []);
  await using _open = source.folder;
  return await verifyThread(source);
}

async function summaries(store: string): Promise<ThreadSummary[]> {
  const found: ThreadSummary[] = [];
  for (const folder of await threadFoldersIn(store)) found.push(await summarize(store, folder));
  return found;
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

async function noThread(io: CliIo): Promise<number> {
  await io.stderr.write("dispatchd sessions: the store has no save of this thread\n");
  return EXIT.failed;
}

function threadRow({ thread, folder, session, saves, bytes, modifiedAt }: ThreadSummary): string[] {
  const facts = [thread ?? `(sealed or damaged) ${folder}`, session ?? "-"].map((text) => safeLine(text, 72));
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
