/** A pod of the model: the real flights over a mount, local files and a state in memory. */
import { stateOfRun } from "../../../src/session/begin-run.ts";
import { type RestoreReport, restoreSession } from "../../../src/session/restore-session.ts";
import { runKeyOf, type SaveName } from "../../../src/session/save-name.ts";
import { saveSession } from "../../../src/session/save-session.ts";
import { createSealer } from "../../../src/session/sealing.ts";
import { mergeUses, otherUser, type SuspensionUse } from "../../../src/session/suspension-uses.ts";
import { NO_STATE, sizeOf, type ThreadState } from "../../../src/session/thread-state.ts";
import type { Chance } from "./chance.ts";
import { MemoryLocalFiles, MemoryStaging, MemoryStateFile } from "./memory-ports.ts";
import { Killed, type Mount } from "./mount.ts";

export const THREAD = "thread";
const SESSION = "session";
const MAIN = `projects/p/${SESSION}.jsonl`;
const FILES = { main: "projects/*/<id>.jsonl", side: "projects/*/<id>" };
const SEALER = createSealer(THREAD, []);

export interface Event {
  readonly id: number;
  readonly previous: number;
  readonly turn: number;
}

export interface PodRun {
  readonly turn: number;
  readonly id: string;
  readonly startedAt: number;
  left: number;
  /** False once a later run was seen. */
  saves: boolean;
  saved: SaveName | undefined;
}

/** What every save held when it was written. */
export type Truth = Map<SaveName, Held>;

export interface Held {
  readonly turns: ReadonlySet<number>;
  readonly refs: readonly SaveName[];
  readonly used: readonly SuspensionUse[];
}

export interface World {
  readonly chance: Chance;
  readonly truth: Truth;
  readonly now: () => number;
  /** Time goes on while a flight waits. */
  readonly pass: (ms: number) => Promise<void>;
  readonly nextEvent: () => number;
}

export class Pod {
  readonly local = new MemoryLocalFiles();
  readonly state = new MemoryStateFile();
  run: PodRun | undefined;
  /** The pod's own record of used suspensions. */
  used: readonly SuspensionUse[] = [];
  /** What the local transcript says; parsed when it was replaced. */
  events: Event[] = [];

  constructor(
    readonly world: World,
    public mount: Mount,
    readonly number: number,
  ) {}

  get isFree(): boolean {
    return this.mount.alive && this.mount.online && (this.run === undefined || this.run.left === 0);
  }

  /** `trouble`: the listing hangs, or every read fails. */
  async begin(turn: number, fence: number | undefined, hint: SaveName | undefined, trouble: boolean, length: number) {
    const { world } = this;
    const before = this.state.state ?? NO_STATE;
    const isLocal = this.local.text(MAIN) !== "";
    const staging = new MemoryStaging();
    const hangs = trouble && world.chance.of(0.5);
    this.mount.broken = trouble;
    const order = {
      ...(isLocal
        ? {
            local: {
              ...(before.last ? { last: before.last } : {}),
              coversRun: this.#coversRun(before),
              ownRuns: before.line.filter((run) => before.own.some(({ name }) => runKeyOf(name) === run)),
            },
          }
        : {}),
      ...(hint ? { hint } : {}),
      harness: "h",
      sessionFiles: FILES,
      waitMs: 30_000,
    };
    const clock = { monotonic: () => world.now() * 1000, sleep: (ms: number) => world.pass(ms) };
    const source = { folder: this.mount, threadId: THREAD, sealer: SEALER };
    const report = hangs ? undefined : await restoreSession(source, order, staging, clock).catch(() => undefined);
    this.mount.broken = false;
    this.used = mergeUses(this.used, report?.used ?? [], before.used ?? []);
    const id = `${turn}x${Math.floor(world.chance.next() * 2 ** 31).toString(36)}`.padStart(16, "0");
    const toBegin = { id, ...(fence === undefined ? {} : { fence }), ...(hint ? { hint } : {}) };
    this.state.state = stateOfRun(before, toBegin, this.#startOf(report, staging, isLocal));
    this.run = { turn, id, startedAt: world.now(), left: length, saves: true, saved: undefined };
    return report;
  }

  #coversRun({ last, own, files }: ThreadState): boolean {
    const isOurRun = own.some(({ name }) => last !== undefined && runKeyOf(name) === runKeyOf(last.name));
    return isOurRun || this.local.text(MAIN).length !== sizeOf(files[0]?.segments ?? []);
  }

  #startOf(report: RestoreReport | undefined, staging: MemoryStaging, isLocal: boolean) {
    if (report?.choice.source === "stored" && report.restored) {
      this.local.set(MAIN, staging.files.get(0) ?? Buffer.alloc(0));
      this.events = parseEvents(this.local.text(MAIN));
      const inode = this.local.files.get(MAIN)?.inode ?? 0;
      const files = report.restored.files.map((file) => ({ ...file, inode }));
      return { source: "stored", report, files } as const;
    }
    const source = isLocal ? "local" : "none";
    return report ? ({ source, report } as const) : ({ source } as const);
  }

  async tick(): Promise<void> {
    this.mount.tick();
    const { run, world } = this;
    if (!run || !this.mount.alive || run.left === 0) return;
    run.left--;
    if (world.chance.of(0.5)) {
      const event: Event = { id: world.nextEvent(), previous: this.events.at(-1)?.id ?? 0, turn: run.turn };
      this.events.push(event);
      this.local.append(MAIN, `${JSON.stringify(event)}\n`);
    }
    const isCheckpoint = (world.now() - run.startedAt) % 5 === 4;
    if (run.saves && isCheckpoint) await this.save(run);
    if (run.saves && run.left === 0) await this.save(run);
  }

  /** The run that has used the suspension: this one, or another. */
  async claim(run: PodRun, id: string): Promise<string> {
    const use = { id, run: run.id, exp: 0 };
    const by = otherUser(this.used, use) ?? (await this.save(run, use));
    this.used = mergeUses(this.used, [{ ...use, run: by ?? run.id }]);
    return by ?? run.id;
  }

  /** Another run that has used the suspension that was to be claimed. */
  async save(run: PodRun, claim?: SuspensionUse): Promise<string | undefined> {
    const { chance, truth } = this.world;
    const used = claim ? mergeUses(this.used, [claim]) : this.used;
    // Abandoned before it wrote anything.
    if (chance.of(0.03)) return undefined;
    this.mount.killWrite = chance.of(0.01);
    const source = { folder: this.mount, threadId: THREAD, sealer: SEALER };
    const claimed = claim ? { claim } : {};
    const order = { session: SESSION, harness: "h", run: run.id, keepOwn: 20, used, ...claimed };
    try {
      const report = await saveSession(source, order, this.local, this.state, () => 0);
      if (report.type === "passed") run.saves = false;
      if (report.type === "unchanged") run.saved = report.name;
      if (report.type === "used") return report.by;
      if (report.type !== "saved") return undefined;
      run.saved = report.name;
      const refs = this.state.state?.own.find(({ name }) => name === report.name)?.refs ?? [];
      truth.set(report.name, { turns: new Set(this.events.map((event) => event.turn)), refs, used });
    } catch (error) {
      // A mount that is cut off gives EIO; everything else is a fault of the store.
      if (!(error instanceof Killed) && (error as { code?: string }).code !== "EIO") throw error;
    } finally {
      this.mount.killWrite = false;
    }
    return undefined;
  }
}

function parseEvents(text: string): Event[] {
  return text
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as Event);
}
