/**
 * The save flight, in the worker: lists the folder, gives up if a save of another run is above its own, plans, writes, and
 * then deletes. It may be killed anywhere. What it wrote is in the state file before the next step; a name is taken there
 * before it is used, so that nothing that comes late on the volume can fall on a file of somebody's.
 */
import { inPlace, type WritingState, whoPassed, whoUsed } from "./guard-save.ts";
import { listSaves } from "./list-saves.ts";
import { ifReadable, type LocalFile, type LocalFiles } from "./local-files.ts";
import { KEEP_OWN, LOST_AFTER_MS, planDeletions } from "./plan-deletions.ts";
import { type FilePlan, isStored, keptFile, planFiles } from "./plan-files.ts";
import { MAX_TEXT_BYTES, type SaveSource } from "./read-save.ts";
import { encodeFrames, encodeSave, hashOf } from "./save-file.ts";
import { type HeadFile, LINE_RUNS } from "./save-head.ts";
import { isMarked, type SaveName } from "./save-name.ts";
import { holdsAll, type SuspensionUse } from "./suspension-uses.ts";
import {
  keyOfRun,
  nextName,
  refsOf,
  type Segment,
  type StateFile,
  type StoredFile,
  TAIL_BYTES,
  type ThreadState,
} from "./thread-state.ts";

export interface SaveOrder {
  readonly session: string;
  readonly harness: string;
  /** The run that saves, as `SavingRun.id`. */
  readonly run: string;
  /** The used suspensions of the thread that this pod knows of: they go into the head. */
  readonly used?: readonly SuspensionUse[];
  /** One of them that the run is about to use, if no other run's save says that it did. */
  readonly claim?: SuspensionUse;
  /** How many of the pod's own saves are kept, when it is not the usual number. */
  readonly keepOwn?: number;
  /** Text of a save at most, when it is not what readers take. */
  readonly maxTextBytes?: number;
}

export type SaveReport =
  | {
      readonly type: "saved";
      readonly name: SaveName;
      readonly bytes: number;
      readonly deleted: number;
      /** Files beside the transcript that cannot be read, or are too large for a save; absent when there are none. */
      readonly leftOut?: readonly string[];
    }
  /** The newest save holds all of it already. */
  | { readonly type: "unchanged"; readonly name: SaveName }
  | { readonly type: "no-transcript" }
  /** A save of another run is above. This run saves no more. */
  | { readonly type: "passed"; readonly by: SaveName }
  /** The thread's state belongs to a later run of this pod. */
  | { readonly type: "superseded" }
  /** Another run has used the suspension. */
  | { readonly type: "used"; readonly by: string };

/** Deletions on their way at once. */
const AT_A_TIME = 16;

/** Text of one file of the store at most; more news makes several. */
const FILE_TEXT_BYTES = 32 << 20;

interface Piece {
  readonly file: LocalFile;
  readonly from: number;
  readonly to: number;
}

export async function saveSession(
  source: SaveSource & { readonly threadId: string },
  order: SaveOrder,
  local: LocalFiles,
  stateFile: StateFile,
  now: () => number,
): Promise<SaveReport> {
  const read = await stateFile.read();
  if (read?.run?.id !== order.run) return { type: "superseded" };
  try {
    return await saveAs({ ...read, run: read.run }, source, order, local, ownState(stateFile, order.run), now);
  } catch (error) {
    if (error instanceof Superseded) return { type: "superseded" };
    throw error;
  }
}

/** The thread's next run has begun in the meantime, without waiting for this flight: the state is its own now. */
class Superseded extends Error {}

function ownState(stateFile: StateFile, run: string): Pick<StateFile, "write"> {
  return {
    async write(state) {
      if ((await stateFile.read())?.run?.id !== run) throw new Superseded();
      await stateFile.write(state);
    },
  };
}

async function saveAs(
  begun: WritingState,
  source: SaveSource & { readonly threadId: string },
  order: SaveOrder,
  local: LocalFiles,
  stateFile: Pick<StateFile, "write">,
  now: () => number,
): Promise<SaveReport> {
  let state = begun;
  if (state.run.passedBy) return { type: "passed", by: state.run.passedBy };
  const { files, unreadable } = await local.find(order.session);
  const { found, leftOut } = fitting(files, order.maxTextBytes ?? MAX_TEXT_BYTES);
  if (found.length === 0) return { type: "no-transcript" };

  // What is referred to is known without the listing: a mount answers both in the time of one.
  const [{ names }, present] = await Promise.all([listSaves(source), presentSaves(source, state)]);
  if (state.run.unlisted) {
    state = inPlace(state, names);
    await stateFile.write(state);
  }
  const next = nextName(state.run);
  const usedBy = order.claim && (await whoUsed(source, order.claim, names, next));
  if (usedBy !== undefined) return { type: "used", by: usedBy };
  const { by, nobodys } = await whoPassed(source, state, names);
  if (by) {
    await stateFile.write({ ...state, run: { ...state.run, passedBy: by } });
    return { type: "passed", by };
  }
  if (nobodys.length > 0) {
    const passedOver = [...(state.run.passedOver ?? []), ...nobodys];
    state = { ...state, run: { ...state.run, passedOver } };
  }

  const { plans, leftOut: notPlanned } = await planFiles(found, state, present, local);
  leftOut.push(...unreadable, ...notPlanned);
  const { last } = state;
  const { used = [] } = order;
  const stands =
    last !== undefined &&
    names.includes(last.name) &&
    isMarked(last.name) === state.run.marked &&
    holdsAll(state.used ?? [], used);
  if (stands && plans.every(isStored) && plans.length === state.files.length) {
    return { type: "unchanged", name: last.name };
  }

  const session = { id: order.session, harness: order.harness };
  // A name that was taken and never came to be is nothing to keep in mind for ever.
  const own = state.own.filter((save, index) => index >= state.own.length - KEEP_OWN || names.includes(save.name));
  state = { ...state, session, files: plans.map(keptFile), own };
  const groups = groupPieces(plans);
  let bytes = 0;
  let name = next;
  for (const [index, group] of groups.entries()) {
    const isLast = index === groups.length - 1;
    const run = state.run;
    name = nextName(run);
    state = { ...state, run: { ...run, number: run.number + 1 }, own: [...state.own, { name, refs: [] }] };
    await stateFile.write(state);
    const written = await writeFile(source, local, name, state, group, isLast ? { used } : "part");
    state = isLast ? { ...withLast(written.state, name), used } : written.state;
    bytes += written.bytes;
    leftOut.push(...written.leftOut);
    await stateFile.write(state);
  }
  const deleted = await deleteOld(source, [...names, name], state, now(), order.keepOwn);
  if (deleted.length > 0)
    await stateFile.write({ ...state, own: state.own.filter((save) => !deleted.includes(save.name)) });
  return { type: "saved", name, bytes, deleted: deleted.length, ...(leftOut.length > 0 ? { leftOut } : {}) };
}

/** A save of more text than readers take would be none, and the saves before it would go. A large file costs no other. */
function fitting(files: readonly LocalFile[], maxBytes: number): { found: readonly LocalFile[]; leftOut: string[] } {
  const [main] = files;
  if (main && main.bytes > maxBytes) throw Object.assign(new Error("the transcript is too large"), { code: "EFBIG" });
  let bytes = 0;
  const found: LocalFile[] = [];
  const leftOut: string[] = [];
  for (const file of files) {
    if (bytes + file.bytes > maxBytes) {
      leftOut.push(file.path);
      continue;
    }
    bytes += file.bytes;
    found.push(file);
  }
  return { found, leftOut };
}

/** Of the saves that the stored files refer to, those that the volume shows in their full length. */
async function presentSaves({ folder }: SaveSource, state: ThreadState): Promise<ReadonlySet<string>> {
  const names = refsOf(state.files);
  // Side by side: a mount answers many in the time of one.
  const facts = await Promise.all(names.map((name) => folder.stat(name)));
  return new Set(names.filter((name, index) => facts[index]?.bytes === state.saves[name]));
}

/** The main transcript's pieces first. An empty last group still makes a save. */
function groupPieces(plans: readonly FilePlan[]): Piece[][] {
  const groups: Piece[][] = [[]];
  let bytes = 0;
  for (const { file, ranges } of plans) {
    for (const range of ranges) {
      const size = range.to - range.from;
      if (bytes > 0 && bytes + size > FILE_TEXT_BYTES) {
        groups.push([]);
        bytes = 0;
      }
      groups.at(-1)?.push({ file, ...range });
      bytes += size;
    }
  }
  return groups;
}

async function writeFile(
  source: SaveSource & { readonly threadId: string },
  local: LocalFiles,
  name: SaveName,
  state: WritingState,
  pieces: readonly Piece[],
  kind: "part" | { readonly used: readonly SuspensionUse[] },
): Promise<{ state: WritingState; bytes: number; leftOut: string[] }> {
  const { read, leftOut } = await readPieces(pieces, state, local);
  const texts = read.flatMap(({ texts }) => texts);
  const frames = encodeFrames(name, texts, source.sealer);
  const segments = texts.map((text, index): Segment => {
    const { frame = new Uint8Array(), at = 0 } = frames[index] ?? {};
    return { save: name, at, length: frame.length, size: text.length, hash: hashOf(text) };
  });
  const added = new Map(
    read.map(({ path, texts, tailHash }) => [path, { own: segments.splice(0, texts.length), tailHash }]),
  );
  const files = state.files.flatMap((file): StoredFile[] => {
    if (leftOut.includes(file.path)) return [];
    const { own = [], tailHash = file.tailHash } = added.get(file.path) ?? {};
    return [{ ...file, segments: [...file.segments, ...own], tailHash }];
  });
  const { session = { id: "", harness: "" }, run, line } = state;
  const facts = { thread: source.threadId, session: session.id, harness: session.harness };
  const saves = refsOf(files).filter((save) => save !== name);
  const head =
    kind === "part"
      ? { ...facts, part: true as const, line: line.slice(0, LINE_RUNS), saves: [], files: [] }
      : {
          ...facts,
          ...(run.marked && run.parent ? { parent: run.parent } : {}),
          line: line.slice(0, LINE_RUNS),
          saves: saves.map((save) => [save, state.saves[save] ?? 0] as const),
          files: files.map((file) => headFile(file, saves)),
          ...(kind.used.length > 0 ? { used: kind.used } : {}),
        };
  const { pieces: bytesOf, bytes } = encodeSave(
    name,
    head,
    frames.map(({ frame }) => frame),
    source.sealer,
  );
  await source.folder.write(name, bytesOf);
  const lengths: Record<string, number> = {};
  for (const save of saves) lengths[save] = state.saves[save] ?? 0;
  if (refsOf(files).includes(name)) lengths[name] = bytes;
  return { state: { ...state, files, saves: lengths }, bytes, leftOut };
}

interface ReadFile {
  readonly path: string;
  readonly texts: readonly Uint8Array[];
  readonly tailHash: string;
}

/** By file, in order. What of the files beside the transcript cannot be read is left out, as a whole. */
async function readPieces(
  pieces: readonly Piece[],
  { files }: WritingState,
  local: LocalFiles,
): Promise<{ read: ReadFile[]; leftOut: string[] }> {
  const [main] = files;
  const byPath = new Map<string, Piece[]>(files.map(({ path }) => [path, []]));
  // Of a file that was left out of a part there is nothing to come.
  for (const piece of pieces) byPath.get(piece.file.path)?.push(piece);
  const read: ReadFile[] = [];
  const leftOut: string[] = [];
  for (const [path, own] of byPath) {
    if (own.length === 0) continue;
    const readOwn = (): Promise<ReadFile> => readFile(path, own, local);
    const file = path === main?.path ? await readOwn() : await ifReadable(readOwn);
    if (file) read.push(file);
    else leftOut.push(path);
  }
  return { read, leftOut };
}

async function readFile(path: string, pieces: readonly Piece[], local: LocalFiles): Promise<ReadFile> {
  const texts: Uint8Array[] = [];
  for (const { from, to } of pieces) texts.push(await local.read(path, from, to));
  const covered = pieces.at(-1)?.to ?? 0;
  const tail = await local.read(path, Math.max(0, covered - TAIL_BYTES), covered);
  return { path, texts, tailHash: hashOf(tail) };
}

function headFile({ path, segments }: StoredFile, saves: readonly SaveName[]): HeadFile {
  return { path, segments: segments.map(({ save, ...rest }) => ({ save: saves.indexOf(save), ...rest })) };
}

function withLast(state: WritingState, name: SaveName): WritingState {
  const { run } = state;
  const last = { name, ...(run.marked && run.parent ? { parent: run.parent } : {}) };
  const own = state.own.map((save) => (save.name === name ? { name, refs: refsOf(state.files) } : save));
  return { ...state, last, own };
}

/** What could not be deleted is deleted another time: the save is written. */
async function deleteOld(
  { folder }: SaveSource,
  names: readonly SaveName[],
  state: WritingState,
  now: number,
  keepOwn: number | undefined,
): Promise<SaveName[]> {
  const { own, proof, run } = state;
  const line = [keyOfRun(run), ...state.line];
  const plan = planDeletions({ names, own, proof, line, blind: run.marked, ...(keepOwn ? { keepOwn } : {}) });
  const deleted: SaveName[] = [];
  try {
    await sideBySide(plan.remove, async (name) => {
      await folder.remove(name);
      deleted.push(name);
    });
    await sideBySide(plan.ifOld, async (name) => {
      const facts = await folder.stat(name);
      if (facts && now - facts.modifiedAt > LOST_AFTER_MS) await folder.remove(name);
    });
  } catch {
    // A volume that went away in between: whatever is left over is found by the next flight.
  }
  return deleted;
}

/** A mount answers many in the time of one. */
async function sideBySide(names: readonly SaveName[], work: (name: SaveName) => Promise<void>): Promise<void> {
  for (let at = 0; at < names.length; at += AT_A_TIME) {
    await Promise.all(names.slice(at, at + AT_A_TIME).map(work));
  }
}
