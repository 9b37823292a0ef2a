/**
 * Save and restore with a fault at operation n, for n = 1, 2, … until a flight ends without one. After each the store is
 * read by another pod: the old session or the new one, never a mix; and the next save of the same pod is good again.
 */
import { expect, test } from "bun:test";
import { stateOfRun } from "../../src/session/begin-run.ts";
import { restoreSession } from "../../src/session/restore-session.ts";
import type { SaveFolder } from "../../src/session/save-folder.ts";
import { saveSession } from "../../src/session/save-session.ts";
import { createSealer } from "../../src/session/sealing.ts";
import type { SuspensionUse } from "../../src/session/suspension-uses.ts";
import { NO_STATE } from "../../src/session/thread-state.ts";
import { Chance } from "./model/chance.ts";
import { MemoryLocalFiles, MemoryStaging, MemoryStateFile } from "./model/memory-ports.ts";
import { type BackendFile, errno, Mount } from "./model/mount.ts";
import { FAULTS, Saboteur } from "./model/saboteur.ts";

const THREAD = "thread";
const FILES = { main: "projects/*/<id>.jsonl", side: "projects/*/<id>" };
const MAIN = "projects/p/s.jsonl";
const SIDE = "projects/p/s/tool.txt";
const SEALERS = { plain: createSealer(THREAD, []), sealed: createSealer(THREAD, [new Uint8Array(32)]) };

class World {
  readonly backend = new Map<string, BackendFile>();
  readonly local = new MemoryLocalFiles();
  readonly state = new MemoryStateFile();
  readonly mount: Mount;
  #now = 0;

  constructor(readonly sealer: (typeof SEALERS)["plain"]) {
    this.mount = new Mount(this.backend, { listingTicks: 0, slowTicks: 1 }, () => this.#now, new Chance(1));
    this.state.state = stateOfRun(NO_STATE, { id: "r".repeat(16) }, { source: "none", report: EMPTY_REPORT });
  }

  async save(saboteur?: Saboteur, claim?: SuspensionUse) {
    const folder = saboteur ? saboteur.folder(this.mount) : this.mount;
    const order = {
      session: "s",
      harness: "h",
      run: "r".repeat(16),
      keepOwn: 2,
      ...(claim ? { claim, used: [claim] } : {}),
    };
    const state = saboteur
      ? {
          read: () => saboteur.run(() => this.state.read()),
          write: (s: never) => saboteur.run(() => this.state.write(s)),
        }
      : this.state;
    const local = saboteur
      ? {
          find: (id: string) => saboteur.run(() => this.local.find(id)),
          read: (path: string, from: number, to: number) => saboteur.run(() => this.local.read(path, from, to)),
        }
      : this.local;
    return saveSession({ folder, threadId: THREAD, sealer: this.sealer }, order, local, state, () => 0);
  }

  /** What another pod reads, when all that was written has arrived. */
  async read(saboteur?: Saboteur) {
    this.#now += 1000;
    this.mount.tick();
    const staging = new MemoryStaging();
    const source = {
      folder: saboteur ? saboteur.folder(this.mount) : this.mount,
      threadId: THREAD,
      sealer: this.sealer,
    };
    const order = { harness: "h", sessionFiles: FILES, waitMs: 0 };
    const report = await restoreSession(source, order, staging, { monotonic: () => 0, sleep: async () => {} });
    const files = report.restored?.files.map(({ path }, n) => [path, staging.files.get(n)?.toString() ?? ""]);
    return { report, files: files && Object.fromEntries(files) };
  }
}

const EMPTY_REPORT = {
  choice: { source: "none", blind: false },
  saves: 0,
  turn: 1,
  fence: 0,
  waitedMs: 0,
  rejected: [],
} as const;

async function prepared(sealer: (typeof SEALERS)["plain"]): Promise<World> {
  const world = new World(sealer);
  // Enough saves that the next one folds and deletes.
  for (let n = 1; n <= 5; n++) {
    world.local.append(MAIN, `line ${n} ${"x".repeat(100 * n)}\n`);
    if (n === 3) world.local.set(SIDE, Buffer.from("a result"));
    expect((await world.save()).type).toBe("saved");
  }
  return world;
}

const contentOf = (world: World) => ({ [MAIN]: world.local.text(MAIN), [SIDE]: world.local.text(SIDE) });

for (const [kind, sealer] of Object.entries(SEALERS)) {
  for (const fault of FAULTS) {
    test(`save, ${kind}: ${fault} at every operation`, async () => {
      let happened = true;
      let n = 0;
      while (happened) {
        const world = await prepared(sealer);
        const before = contentOf(world);
        world.local.append(MAIN, "the newest line\n");
        world.local.append(SIDE, " of more");
        const after = contentOf(world);
        const saboteur = new Saboteur(++n, fault);
        const result = await saboteur.lasting(world.save(saboteur)).catch((error) => {
          if (!saboteur.happened) throw error;
        });
        happened = saboteur.happened;
        const read = await world.read();
        // A side file that could not be read is missing, and not an older one.
        expect([before, after, { [MAIN]: after[MAIN] }]).toContainEqual(read.files ?? {});
        if (!(SIDE in (read.files ?? {}))) expect(result).toMatchObject({ type: "saved", leftOut: [SIDE] });
        expect(["saved", "unchanged"]).toContain((await world.save()).type);
        expect((await world.read()).files).toEqual(after);
      }
      expect(n).toBeGreaterThan(10);
    });

    test(`the claim of a suspension, ${kind}: ${fault} at every operation`, async () => {
      const claim = { id: "suspension", run: "a run", exp: 1 };
      let happened = true;
      let n = 0;
      while (happened) {
        const world = await prepared(sealer);
        const content = contentOf(world);
        const saboteur = new Saboteur(++n, fault);
        const result = await saboteur.lasting(world.save(saboteur, claim)).catch((error) => {
          if (!saboteur.happened) throw error;
        });
        happened = saboteur.happened;
        const { report, files } = await world.read();
        expect(files).toEqual(content);
        expect([[], [claim]]).toContainEqual([...(report.used ?? [])]);
        if (result) expect(report.used).toEqual([claim]);
        // Whether it was told or not: the run has it, and says so once more.
        expect(["saved", "unchanged"]).toContain((await world.save(undefined, claim)).type);
        const again = await world.read();
        expect([again.report.used, again.files] as unknown).toEqual([[claim], content]);
      }
      expect(n).toBeGreaterThan(5);
    });

    test(`restore, ${kind}: ${fault} at every operation`, async () => {
      let happened = true;
      let n = 0;
      while (happened) {
        const world = await prepared(sealer);
        const whole = contentOf(world);
        const saboteur = new Saboteur(++n, fault);
        const result = await saboteur.lasting(world.read(saboteur)).catch((error) => {
          if (!saboteur.happened) throw error;
        });
        happened = saboteur.happened;
        if (result?.files) {
          const main = result.files[MAIN] ?? "";
          // An older state, said to be one; a side file may be missing, and is named.
          expect(whole[MAIN]?.startsWith(main) && main.endsWith("\n")).toBe(true);
          if (main !== whole[MAIN]) expect(result.report.choice.blind).toBe(true);
          const { leftOut = [] } = result.report.restored ?? {};
          if (main === whole[MAIN]) expect(SIDE in result.files || leftOut.includes(SIDE)).toBe(true);
        } else if (result) expect(result.report.choice.blind).toBe(true);
        expect((await world.read()).files).toEqual(whole);
      }
      expect(n).toBeGreaterThan(5);
    });
  }
}

for (const [name, spoil] of Object.entries({
  "cut off": (bytes: Buffer) => bytes.subarray(0, bytes.length - 3),
  "a flipped bit at its end": (bytes: Buffer) => {
    bytes[bytes.length - 2] = (bytes[bytes.length - 2] ?? 0) ^ 4;
    return bytes;
  },
  "a flipped bit in its head": (bytes: Buffer) => {
    bytes[120] = (bytes[120] ?? 0) ^ 1;
    return bytes;
  },
  "of a later version": (bytes: Buffer) =>
    Buffer.from(bytes.toString("latin1").replace("save 1 ", "save 2 "), "latin1"),
  empty: () => Buffer.alloc(0),
})) {
  test(`the newest save is ${name}: the next best session, and the reason`, async () => {
    const world = await prepared(SEALERS.plain);
    await world.read();
    const newest = [...world.backend.keys()].sort().at(-1) ?? "";
    const bytes = Buffer.from(world.backend.get(newest)?.bytes ?? []);
    world.backend.set(newest, { bytes: spoil(bytes), cut: true });
    const { report, files } = await world.read();
    expect(report.rejected[0]).toMatchObject({ name: newest, reason: expect.any(String) });
    expect(files?.[MAIN]).toStartWith("line 1 ");
    expect(files?.[MAIN]).not.toContain("line 5");
  });
}

test("a save that refers to a missing file is no save, and the next flight writes anew what is missing", async () => {
  const world = await prepared(SEALERS.plain);
  await world.read();
  const [oldest = ""] = (world.state.state?.own.at(-1)?.refs ?? []).filter(
    (name) => name !== world.state.state?.last?.name,
  );
  expect(world.backend.delete(oldest)).toBe(true);
  expect((await world.read()).files).not.toEqual(contentOf(world));
  world.local.append(MAIN, "more\n");
  expect((await world.save()).type).toBe("saved");
  expect((await world.read()).files).toEqual(contentOf(world));
});

test("more news than one file takes: parts, the last of them the save; cut off, it goes on where it was", async () => {
  const world = new World(SEALERS.plain);
  const line = `${crypto.randomUUID().repeat(2800)}\n`;
  world.local.set(MAIN, Buffer.from(line.repeat(Math.ceil((70 << 20) / line.length))));
  const folder = new Saboteur(0, "EIO").folder(world.mount);
  const order = { session: "s", harness: "h", run: "r".repeat(16) };
  let writes = 0;
  const counted: SaveFolder = {
    ...folder,
    write: (name, pieces) => {
      if (++writes === 2) throw errno("EIO");
      return world.mount.write(name, pieces);
    },
  };
  const source = { folder: counted, threadId: THREAD, sealer: SEALERS.plain };
  await expect(saveSession(source, order, world.local, world.state, () => 0)).rejects.toThrow();
  expect((await world.read()).report.choice).toMatchObject({ source: "none", blind: true });
  const before = world.backend.size;
  expect((await world.save()).type).toBe("saved");
  expect((await world.read()).files?.[MAIN]?.length).toBe(world.local.text(MAIN).length);
  expect(world.backend.size - before).toBe(2);
}, 30_000);
