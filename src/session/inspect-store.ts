/** A store as an operator looks at it: no pod's state, no run, only what lies there. */
import { lstat, readdir, realpath, rm } from "node:fs/promises";
import { basename, join } from "node:path";
import { errnoOf } from "../errors.ts";
import { chooseSave } from "./choose-save.ts";
import { diskSaveFolder } from "./disk-save-folder.ts";
import { type Listing, listSaves } from "./list-saves.ts";
import { filesOf, readHead, readSegment, type SaveSource } from "./read-save.ts";
import { parseFirstLine } from "./save-file.ts";
import type { SaveHead } from "./save-head.ts";
import { compareSaves, type SaveName } from "./save-name.ts";
import { createSealer, type SessionKeys, threadFolders } from "./sealing.ts";
import { type StoredFile, sizeOf } from "./thread-state.ts";

export interface ThreadSummary {
  /** The folder, below the store. */
  readonly folder: string;
  /** Absent when none of its saves can be read: a sealed one is opened by its thread's id. */
  readonly thread?: string;
  readonly session?: string;
  /** Its folder is that of a sealed thread, or, where nobody says whose it is, the newest save that tells is sealed. */
  readonly sealed: boolean;
  readonly saves: number;
  readonly bytes: number;
  readonly newest?: SaveName;
  /** Milliseconds since the epoch. */
  readonly modifiedAt: number;
}

export interface SaveVerdict {
  readonly name: SaveName;
  /** `part`: frames of a later save, by themselves no state. `cut`: on its way still, or lost with its pod. */
  readonly state: "whole" | "part" | "cut" | "damaged";
  readonly bytes: number;
  /** Of the transcript and the files beside it. */
  readonly textBytes?: number;
  readonly files?: number;
  readonly session?: string;
  readonly reason?: string;
}

export interface ExportedFile {
  readonly path: string;
  readonly pieces: AsyncIterable<Uint8Array>;
}

/** The folders of threads below a store. What else is named like one, a link or a file, is none. */
export async function threadFoldersIn(store: string): Promise<string[]> {
  const folders: string[] = [];
  for (const first of await foldersIn(store, /^[0-9a-f]{2}$/)) {
    for (const second of await foldersIn(join(store, first), /^[0-9a-f]{2}$/)) {
      const keys = await foldersIn(join(store, first, second), /^[0-9a-f]{40}$/);
      folders.push(...keys.map((key) => `${first}/${second}/${key}`));
    }
  }
  return folders.sort();
}

/** Where it really is: the way to it is the operator's, and may lead over links; none is followed from there on. */
export async function storeAt(path: string): Promise<string | undefined> {
  if ((await whenThere(() => lstat(path)))?.isDirectory() !== true) return undefined;
  return await whenThere(() => realpath(path));
}

/** `thread`: whose folder it is, when that is known; a sealed one opens for nobody else. */
export async function summarize(
  store: string,
  folder: string,
  keys: SessionKeys,
  thread: string | undefined,
): Promise<ThreadSummary> {
  await using saves = diskSaveFolder([join(store, folder)]);
  const names = (await savesOf({ folder: saves, threadId: "", sealer: PLAIN })).toSorted(compareSaves).reverse();
  let bytes = 0;
  let modifiedAt = 0;
  for (const name of names) {
    const facts = await saves.stat(name);
    bytes += facts?.bytes ?? 0;
    modifiedAt = Math.max(modifiedAt, facts?.modifiedAt ?? 0);
  }
  const [newest] = names;
  const head = await newestHead(folder, saves, names, keys, thread);
  const sealed = thread === undefined ? await isSealed(saves, names) : keys.length > 0;
  return {
    folder,
    ...(head ? { thread: head.thread, session: head.session } : {}),
    sealed,
    saves: names.length,
    bytes,
    ...(newest ? { newest } : {}),
    modifiedAt,
  };
}

/** Of saves that may be cut short or damaged from their first byte on. */
async function isSealed(saves: SaveSource["folder"], newestFirst: readonly SaveName[]): Promise<boolean> {
  for (const name of newestFirst) {
    const line = parseFirstLine(await saves.read(name, 0, LINE_BYTES).catch(() => new Uint8Array()));
    if (typeof line === "object") return line.sealed;
  }
  return false;
}

/** The same of a folder of which nobody can tell whose it is. What is whole in it is of a thread that lies elsewhere. */
export async function verifyFolder(store: string, folder: string): Promise<SaveVerdict[]> {
  await using saves = diskSaveFolder([join(store, folder)]);
  const verdicts = await verifyThread({ folder: saves, threadId: undefined, sealer: PLAIN });
  return verdicts.map((each) =>
    each.state === "whole" ? { ...each, state: "damaged", reason: "of another thread" } : each,
  );
}

/** Reads and checks every byte of every save of a thread; the newest first. */
export async function verifyThread(source: SaveSource): Promise<SaveVerdict[]> {
  const { names, madeUp } = await listingOf(source);
  const checked = new Map<string, Promise<string | undefined>>();
  const verdicts: SaveVerdict[] = [];
  const reason = "no thread comes to this turn: it counts for nothing";
  for (const name of madeUp) verdicts.push({ name, state: "damaged", bytes: 0, reason });
  for (const name of names.toSorted(compareSaves).reverse()) verdicts.push(await verifySave(source, name, checked));
  return verdicts;
}

export async function hasSaves(source: SaveSource): Promise<boolean> {
  return (await savesOf(source)).length > 0;
}

/** The files of the session that a run would go on from. Undefined when there is none. */
export async function exportThread(source: SaveSource): Promise<{ name: SaveName; files: ExportedFile[] } | undefined> {
  const names = await savesOf(source);
  const checked = new Map<string, Promise<string | undefined>>();
  const { pick } = await chooseSave(names, undefined, undefined, {
    async verify(name) {
      const { state } = await verifySave(source, name, checked, true);
      return state === "whole" ? "whole" : "not-whole";
    },
    async parentOf(name) {
      const result = await readHead(source, name);
      return result.type === "head" ? (result.head.parent ? { parent: result.head.parent } : {}) : undefined;
    },
  });
  if (!pick) return undefined;
  const result = await readHead(source, pick.name);
  const described = result.type === "head" ? filesOf(pick.name, result.head, result.fileBytes) : undefined;
  if (!described) return undefined;
  const files = described.files.map((file) => ({ path: file.path, pieces: textOf(source, file, described.saves) }));
  return { name: pick.name, files };
}

/** Everything of a thread. */
export async function removeThread(store: string, folder: string): Promise<void> {
  await rm(join(store, folder), { recursive: true, force: true });
}

const PLAIN = createSealer("", []);
const LINE_BYTES = 128;

async function newestHead(
  folder: string,
  saves: SaveSource["folder"],
  names: readonly SaveName[],
  keys: SessionKeys,
  thread: string | undefined,
): Promise<SaveHead | undefined> {
  const sealer = thread === undefined ? PLAIN : createSealer(thread, keys);
  for (const name of names) {
    const result = await readHead({ folder: saves, threadId: thread, sealer }, name);
    if (result.type !== "head" || result.head.part) continue;
    const folders = threadFolders(result.head.thread, thread === undefined ? [] : keys);
    if (folders.some((each) => basename(each) === basename(folder))) return result.head;
  }
  return undefined;
}

async function verifySave(
  source: SaveSource,
  name: SaveName,
  checked: Map<string, Promise<string | undefined>>,
  mainAlone = false,
): Promise<SaveVerdict> {
  const bytes = (await source.folder.stat(name))?.bytes ?? 0;
  const result = await readHead(source, name);
  if (result.type === "bad" && result.cut) return { name, state: "cut", bytes, reason: result.reason };
  if (result.type !== "head") return { name, state: "damaged", bytes, reason: result.reason };
  const { head, fileBytes } = result;
  if (head.part) return { name, state: "part", bytes };
  const described = filesOf(name, head, fileBytes);
  if (!described || described.files.length === 0) {
    return { name, state: "damaged", bytes, reason: "its files are not described" };
  }
  const files = mainAlone ? described.files.slice(0, 1) : described.files;
  for (const { path, segments } of files) {
    for (const segment of segments) {
      const key = `${segment.save}:${segment.at}:${segment.hash}`;
      const check =
        checked.get(key) ??
        readSegment(source, segment, described.saves[segment.save] ?? 0).then((read) => {
          if (read.type === "text") return undefined;
          if (read.type === "unreadable") return read.reason;
          return read.vanished ? "is missing" : "is damaged";
        });
      checked.set(key, check);
      const wrong = await check;
      if (wrong === undefined) continue;
      return { name, state: "damaged", bytes, reason: `${path}: a segment in ${segment.save} ${wrong}` };
    }
  }
  const textBytes = described.files.reduce((sum, { segments }) => sum + sizeOf(segments), 0);
  return { name, state: "whole", bytes, textBytes, files: described.files.length, session: head.session };
}

async function* textOf(
  source: SaveSource,
  { path, segments }: StoredFile,
  saves: Readonly<Record<string, number>>,
): AsyncGenerator<Uint8Array, void> {
  for (const segment of segments) {
    const read = await readSegment(source, segment, saves[segment.save] ?? 0);
    if (read.type !== "text") throw new Error(`${path} is damaged in ${segment.save}`);
    yield read.text;
  }
}

/** None where something else than a folder has the thread's name. */
async function savesOf(source: SaveSource): Promise<readonly SaveName[]> {
  return (await listingOf(source)).names;
}

async function listingOf(source: SaveSource): Promise<Listing> {
  return (await whenThere(() => listSaves(source))) ?? { names: [], madeUp: [] };
}

async function foldersIn(path: string, shape: RegExp): Promise<string[]> {
  const folders: string[] = [];
  for (const name of (await whenThere(() => readdir(path))) ?? []) {
    // Asked for, not taken from the listing: some mounts do not say there what an entry is.
    if (shape.test(name) && (await whenThere(() => lstat(join(path, name))))?.isDirectory()) folders.push(name);
  }
  return folders;
}

/** Undefined: there is nothing, or no folder. */
async function whenThere<T>(look: () => Promise<T>): Promise<T | undefined> {
  try {
    return await look();
  } catch (error) {
    if (["ENOENT", "ENOTDIR", "ELOOP"].includes(errnoOf(error) ?? "")) return undefined;
    throw error;
  }
}
