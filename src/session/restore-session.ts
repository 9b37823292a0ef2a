/**
 * The restore flight, in the worker: lists the thread's saves, waits a while for one that has to be there or is still on
 * its way, chooses, and fills a folder of the pod with the files of the one that it chose. The daemon puts them in place.
 *
 * A name that vanishes while it is read belongs to a run that goes on elsewhere and folds: then it lists again.
 */
import type { SessionFiles } from "../harness/port.ts";
import { type Choice, chooseSave, isCovered, type LocalSession, type Verdict } from "./choose-save.ts";
import { type Listing, listSaves } from "./list-saves.ts";
import { filesOf, type HeadResult, readHead, readSegments, type SaveSource } from "./read-save.ts";
import { hashOf } from "./save-file.ts";
import type { SaveHead } from "./save-head.ts";
import { compareSaves, nextTurn, placeOf, type RunKey, type SaveName } from "./save-name.ts";
import { isSessionId, kindOfPath, MAX_SIDE_FILES } from "./session-paths.ts";
import { mergeUses, type SuspensionUse } from "./suspension-uses.ts";
import { type Segment, type StoredFile, sizeOf, TAIL_BYTES } from "./thread-state.ts";

/** Where the files are put; each by its number, the main transcript is 0. */
export interface Staging {
  append(file: number, bytes: Uint8Array): Promise<void>;
  truncate(file: number, bytes: number): Promise<void>;
  remove(file: number): Promise<void>;
  /** The last bytes of it, at most so many. */
  tail(file: number, bytes: number): Promise<Uint8Array>;
}

export interface RestoreOrder {
  readonly local?: LocalSession;
  readonly hint?: SaveName;
  readonly harness: string;
  readonly sessionFiles: SessionFiles;
  /** How long it waits for what is to come. */
  readonly waitMs: number;
}

export interface RestoreReport {
  readonly choice: Choice;
  /** How many names of saves there are. */
  readonly saves: number;
  /** One above the highest of all names. */
  readonly turn: number;
  /** The highest of all names. */
  readonly fence: number;
  readonly waitedMs: number;
  /** Saves that are there and are no saves of ours, with the reason; the newest first, at most `MAX_REJECTED`. */
  readonly rejected: readonly { readonly name: SaveName; readonly reason: string }[];
  /** Used suspensions in any head that was read; absent when there were none. */
  readonly used?: readonly SuspensionUse[];
  /** When `choice.source` is "stored". */
  readonly restored?: Restored;
  /** It is not sealed, though there are keys. */
  readonly unsealed?: true;
}

export interface Restored {
  readonly session: string;
  readonly harness: string;
  readonly line: readonly RunKey[];
  /** In the order of their numbers in the staging folder. Empty when the session is another harness's. */
  readonly files: readonly StoredFile[];
  readonly saves: Readonly<Record<string, number>>;
  readonly bytes: number;
  /** Side files that were not whole, or are none of the session; `MAX_NAMED` of them by name. */
  readonly leftOut: readonly string[];
  /** Used suspensions in its head. */
  readonly used?: readonly SuspensionUse[];
}

export interface Waiting {
  readonly monotonic: () => number;
  readonly sleep: (ms: number) => Promise<void>;
}

const LOOK_AGAIN_MS = 250;
const MAX_REJECTED = 8;
const MAX_NAMED = 100;
/** How often it chooses anew because files vanished. */
const MAX_TRIES = 4;
const GONE = "the newest save of the thread vanished while it was read";

export async function restoreSession(
  source: SaveSource,
  order: RestoreOrder,
  staging: Staging,
  clock: Waiting,
): Promise<RestoreReport> {
  const startedAt = clock.monotonic();
  const left = (): number => order.waitMs - (clock.monotonic() - startedAt);
  let listing = await listSaves(source);
  while (left() > 0 && (await isSomethingToCome(source, listing.names, order))) {
    await clock.sleep(Math.max(0, Math.min(LOOK_AGAIN_MS, left())));
    listing = await listSaves(source);
  }
  for (let tries = 1; ; tries++) {
    const { names } = listing;
    const reading = new Reading({ ...source, cache: new Map() }, order, staging);
    const choice = await chooseSave(names, order.local, order.hint, reading);
    const restored = choice.source === "stored" && choice.pick ? await reading.finish(choice.pick.name) : undefined;
    if (reading.vanished && tries < MAX_TRIES) {
      listing = await listSaves(source);
      const changed = listing.names.length !== names.length || listing.names.some((name) => !names.includes(name));
      if (changed) {
        await staging.truncate(0, 0);
        continue;
      }
    }
    const used = await reading.used();
    return {
      choice:
        choice.source === "stored" && !restored ? { ...choice, source: "none", blind: true, reason: GONE } : choice,
      saves: names.length,
      turn: nextTurn(order.local?.last ? [...names, order.local.last.name] : names),
      fence: names.reduce((max, name) => Math.max(max, placeOf(name).fence), 0),
      waitedMs: Math.round(clock.monotonic() - startedAt),
      rejected: [...madeUpIn(listing), ...reading.rejected].slice(0, MAX_REJECTED),
      ...(used.length > 0 ? { used } : {}),
      ...(restored ? { restored } : {}),
    };
  }
}

function madeUpIn({ madeUp }: Listing): { name: SaveName; reason: string }[] {
  return madeUp.map((name) => ({ name, reason: "no thread comes to this turn" }));
}

/** True while the save that the caller knows of is not to be seen, or the newest one is only half there. */
async function isSomethingToCome(
  source: SaveSource,
  names: readonly SaveName[],
  order: RestoreOrder,
): Promise<boolean> {
  const { hint } = order;
  const own = order.local?.last?.name;
  const newest = [...names, ...(own ? [own] : [])].sort(compareSaves).at(-1);
  if (hint && (!newest || compareSaves(newest, hint) < 0)) return true;
  if (!newest || isCovered(newest, order.local)) return false;
  const result = await readHead(source, newest);
  return result.type === "bad" && result.cut;
}

/** Reads candidates one after the other. What they share of the main transcript is read once. */
class Reading {
  vanished = false;
  readonly rejected: { name: SaveName; reason: string }[] = [];
  readonly #heads = new Map<SaveName, Promise<HeadResult>>();
  readonly #bad = new Set<string>();
  #staged: Segment[] = [];

  constructor(
    readonly source: SaveSource,
    readonly order: RestoreOrder,
    readonly staging: Staging,
  ) {}

  async parentOf(name: SaveName): Promise<{ parent?: SaveName } | "no-file" | undefined> {
    const result = await this.#head(name);
    if (result.type === "no-file") return this.#noFile(name, result.reason);
    if (result.type !== "head") return undefined;
    return result.head.parent ? { parent: result.head.parent } : {};
  }

  async verify(name: SaveName): Promise<Verdict> {
    const result = await this.#head(name);
    if (result.type === "unreadable") return "unreadable";
    if (result.type === "no-file") return this.#noFile(name, result.reason);
    if (result.type === "bad") return this.#reject(name, result.reason);
    const { head, fileBytes } = result;
    if (head.part) return this.#reject(name, "a part of a save that never came");
    // Its text is of no use here, but it is the thread's newest state all the same.
    if (head.harness !== this.order.harness) return "whole";
    const described = filesOf(name, head, fileBytes);
    const [main] = described?.files ?? [];
    if (!described || !main || !this.#isSession(head)) return this.#reject(name, "its files are none of a session");
    return this.#stageMain(name, main, described.saves);
  }

  /** Side files too. Undefined when it changed since it was verified. */
  async finish(name: SaveName): Promise<Restored | undefined> {
    const result = await this.#head(name);
    if (result.type !== "head" || (await this.verify(name)) !== "whole") return undefined;
    const { head, fileBytes } = result;
    const facts = { session: head.session, harness: head.harness, line: head.line };
    if (head.harness !== this.order.harness) return { ...facts, files: [], saves: {}, bytes: 0, leftOut: [] };
    const { files = [], saves = {} } = filesOf(name, head, fileBytes) ?? {};
    const placed: StoredFile[] = [];
    const leftOut: string[] = [];
    let bytes = 0;
    for (const [index, file] of files.entries()) {
      const number = placed.length;
      const tail =
        index === 0
          ? await this.staging.tail(number, TAIL_BYTES)
          : await this.#stageSide(number, head.session, file, saves);
      if (!tail) {
        leftOut.push(file.path);
        continue;
      }
      placed.push({ ...file, tailHash: hashOf(tail) });
      bytes += sizeOf(file.segments);
    }
    const kept = new Set(placed.flatMap(({ segments }) => segments.map(({ save }) => save as string)));
    const keptSaves = Object.fromEntries(Object.entries(saves).filter(([save]) => kept.has(save)));
    const used = head.used ? { used: head.used } : {};
    return { ...facts, ...used, files: placed, saves: keptSaves, bytes, leftOut: named(leftOut) };
  }

  /** Also those of saves that were not taken: whoever wrote them used the suspension. */
  async used(): Promise<SuspensionUse[]> {
    const results = await Promise.all(this.#heads.values());
    return mergeUses(...results.map((result) => (result.type === "head" ? (result.head.used ?? []) : [])));
  }

  #head(name: SaveName): Promise<HeadResult> {
    const known = this.#heads.get(name) ?? readHead(this.source, name);
    this.#heads.set(name, known);
    return known;
  }

  #noFile(name: SaveName, reason: string): "no-file" {
    this.rejected.push({ name, reason });
    return "no-file";
  }

  #reject(name: SaveName, reason: string): Verdict {
    if (reason === "vanished") this.vanished = true;
    this.rejected.push({ name, reason });
    return "not-whole";
  }

  #isSession({ session, files: [main] }: SaveHead): boolean {
    if (!isSessionId(session) || !main) return false;
    return kindOfPath(main.path, this.order.sessionFiles, session) === "main";
  }

  async #stageMain(name: SaveName, main: StoredFile, saves: Readonly<Record<string, number>>): Promise<Verdict> {
    if (main.segments.length === 0) return this.#reject(name, "it has no transcript");
    if (main.segments.some((segment) => this.#bad.has(keyOf(segment)))) {
      return this.#reject(name, "a segment of its transcript is damaged");
    }
    let shared = 0;
    while (shared < this.#staged.length && isSame(this.#staged[shared], main.segments[shared])) shared++;
    if (shared < this.#staged.length) {
      this.#staged.length = shared;
      await this.staging.truncate(0, sizeOf(this.#staged));
    }
    for await (const { segment, result } of readSegments(this.source, main.segments.slice(shared), saves)) {
      if (result.type === "unreadable") return "unreadable";
      if (result.type === "bad") {
        this.#bad.add(keyOf(segment));
        if (result.vanished) this.vanished = true;
        return this.#reject(name, "a segment of its transcript is missing or damaged");
      }
      await this.staging.append(0, result.text);
      this.#staged.push(segment);
    }
    return "whole";
  }

  /** Its last bytes; undefined when it is not whole, or no file of the session. */
  async #stageSide(
    number: number,
    session: string,
    { path, segments }: StoredFile,
    saves: Readonly<Record<string, number>>,
  ): Promise<Uint8Array | undefined> {
    if (number > MAX_SIDE_FILES || kindOfPath(path, this.order.sessionFiles, session) !== "side") return undefined;
    let tail: Uint8Array = new Uint8Array();
    // There may be thousands of them: nothing is asked of the disk that is known.
    if (segments.length === 0) await this.staging.append(number, tail);
    for await (const { result } of readSegments(this.source, segments, saves)) {
      if (result.type !== "text") {
        await this.staging.remove(number);
        return undefined;
      }
      await this.staging.append(number, result.text);
      tail = Buffer.concat([tail, result.text.subarray(-TAIL_BYTES)]).subarray(-TAIL_BYTES);
    }
    return tail;
  }
}

function named(paths: readonly string[]): string[] {
  if (paths.length <= MAX_NAMED) return [...paths];
  return [...paths.slice(0, MAX_NAMED), `and ${paths.length - MAX_NAMED} more`];
}

function keyOf({ save, at }: Segment): string {
  return `${save}:${at}`;
}

function isSame(a: Segment | undefined, b: Segment | undefined): boolean {
  return a !== undefined && b !== undefined && a.hash === b.hash && a.size === b.size && keyOf(a) === keyOf(b);
}
