/**
 * What a session costs on the volume, against copying its files: 64 KiB of news behind a long history, and a restore.
 * Through the flights of the compiled binary, on a local disk and on a FUSE mount on which every request takes 10 ms.
 */
import { mkdir, mkdtemp, readFile, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { zstdCompressSync } from "node:zlib";
import { systemClock } from "../src/clock/system.ts";
import { createOrgFs } from "../src/orgfs/supervisor.ts";
import { hashOf, SEGMENT_BYTES } from "../src/session/save-file.ts";
import { DiskPod } from "../test/session/pod-disk.ts";
import { BINARY } from "../test/support/daemon.ts";
import { RcloneVolume, rcloneMissing } from "../test/support/rclone.ts";
import { recordingLog, silentMetrics } from "../test/support/silent.ts";
import { mountsMissing, WedgeFs } from "../test/support/wedgefs/index.ts";
import { atLeast, atMost, type Bench, type Row, spreadOf } from "./measure.ts";
import { transcript } from "./transcript.ts";

const HISTORIES_MIB = [1, 8, 64, 256];
const ALONE_MIB = 64;
const NEWS_BYTES = 64 << 10;
const SAVES = 64;
const SLOW_SAVES = 8;
const RESTORES = 5;
const REQUEST_MS = 10;
const RCLONE_SAVES = 6;
const QUIET_MS = 500;
const QUIET_STEP_MS = 50;
const MAIN = "projects/p/s.jsonl";

export const sessions: Bench = {
  name: "sessions",
  about: `saves of ${NEWS_BYTES >> 10} KiB of news and restores, against copying the session's files`,
  async run(progress) {
    const rows: Row[] = [];
    for (const mib of HISTORIES_MIB) {
      progress(`${mib} MiB on a disk`);
      rows.push(...(await onDisk(mib)));
    }
    if (mountsMissing !== undefined) return { rows, notes: [`sessions: no mount to measure on: ${mountsMissing}`] };
    progress(`64 MiB on a mount with ${REQUEST_MS} ms a request`);
    rows.push(...(await onMount(64)));
    if (rcloneMissing === undefined) {
      progress("through rclone and WebDAV");
      rows.push(await throughRclone("listing cached", "60s", 0), await throughRclone("listing expired", "1s", 1500));
    }
    const notes = [
      ...(rcloneMissing === undefined ? [] : [`sessions: no backend requests were counted: ${rcloneMissing}`]),
      "sessions: the copy is Node's `cp` of the session's files; a save is a whole flight, its process too",
    ];
    return { rows, notes };
  },
};

async function onDisk(mib: number): Promise<Row[]> {
  await using place = await Place.create();
  await using pod = await place.pod();
  const run = await grown(pod, mib);
  const saves: number[] = [];
  const bytes: number[] = [];
  for (let n = 0; n < SAVES; n++) {
    await pod.append(MAIN, transcript(NEWS_BYTES));
    const from = performance.now();
    const settled = await run.save({ deadlineMs: 30_000 });
    saves.push(performance.now() - from);
    bytes.push((settled.bytes ?? Number.NaN) / (1 << 20));
  }
  const copies: number[] = [];
  const restores: number[] = [];
  for (let n = 0; n < RESTORES; n++) {
    copies.push(await copyTime(pod.configDir, join(place.home, `copy-${n}`)));
    restores.push(await restoreTime(place));
  }
  const size = (await stat(join(pod.configDir, MAIN))).size / (1 << 20);
  const alone = mib === ALONE_MIB ? whatRestoringTakes(await readFile(join(pod.configDir, MAIN)), copies) : [];
  const [product, floor] = [spreadOf(bytes), spreadOf([size])];
  const name = `${mib} MiB`;
  const verdict = mib >= 64 ? { verdict: atMost("ratio", 0.01, product, floor) } : {};
  return [
    { bench: "sessions", name: `save behind ${name}: written`, unit: "MiB", product, floor, ...verdict },
    row(`save behind ${name}, on a disk`, saves, copies),
    row(`restore of ${name}, on a disk`, restores, copies),
    ...alone,
  ];
}

/** What no restore can do without, each by itself on one core: the format has these. */
function whatRestoringTakes(text: Buffer, copies: readonly number[]): Row[] {
  const pieces: Buffer[] = [];
  for (let at = 0; at < text.length; at += SEGMENT_BYTES) pieces.push(text.subarray(at, at + SEGMENT_BYTES));
  const frames = pieces.map((piece) => zstdCompressSync(piece));
  const times = (work: () => void): number[] =>
    Array.from({ length: RESTORES }, () => {
      const from = performance.now();
      work();
      return performance.now() - from;
    });
  const hashing = times(() => {
    for (const piece of pieces) hashOf(piece);
  });
  const decompressing = times(() => {
    for (const frame of frames) Bun.zstdDecompressSync(frame);
  });
  const name = `${ALONE_MIB} MiB alone`;
  return [row(`SHA-256 of ${name}`, hashing, copies), row(`zstd decompression of ${name}`, decompressing, copies)];
}

async function onMount(mib: number): Promise<Row[]> {
  await using place = await Place.create();
  await using mount = await WedgeFs.mount(place.home);
  await using pod = await place.pod();
  const run = await grown(pod, mib);
  await mount.delay({ ms: REQUEST_MS });
  const saves: number[] = [];
  for (let n = 0; n < SLOW_SAVES; n++) {
    await pod.append(MAIN, transcript(NEWS_BYTES));
    const from = performance.now();
    await run.save({ deadlineMs: 30_000 });
    saves.push(performance.now() - from);
  }
  await mount.counts();
  await pod.append(MAIN, transcript(NEWS_BYTES));
  await run.save({ deadlineMs: 30_000 });
  const counts = Object.entries(await mount.counts()).filter(([name]) => !name.startsWith("bytes"));
  const requests = counts.reduce((sum, [, count]) => sum + count, 0);
  // Both ways through the mount: the copy to it is what a save spares, the copy from it what a restore does.
  const copied = join(place.home, "copy");
  const copies = [await copyTime(pod.configDir, copied)];
  const back: number[] = [];
  const restores: number[] = [];
  for (let n = 0; n < RESTORES; n++) {
    back.push(await copyTime(copied, join(place.folder, `back-${n}`)));
    restores.push(await restoreTime(place));
  }
  await mount.heal();
  const [product, floor] = [spreadOf(saves), spreadOf(copies)];
  const speed = spreadOf([floor.median / product.median]);
  const restored = row(`restore of ${mib} MiB, ${REQUEST_MS} ms a request`, restores, back);
  const { product: restore, floor: copy } = restored;
  return [
    row(`save behind ${mib} MiB, ${REQUEST_MS} ms a request`, saves, copies),
    {
      bench: "sessions",
      name: "how many times faster",
      unit: "x",
      product: speed,
      verdict: atLeast("alone", 20, speed),
    },
    { bench: "sessions", name: "requests of one save to the mount", unit: "x", product: spreadOf([requests]) },
    { ...restored, ...(copy ? { verdict: atMost("ratio", 1.5, restore, copy) } : {}) },
  ];
}

/** What one save asks of the backend. */
async function throughRclone(name: string, listings: string, pauseMs: number): Promise<Row> {
  await using place = await Place.create();
  await using mount = await RcloneVolume.mount(place.home, listings);
  await using pod = await place.pod();
  const run = await grown(pod, 1);
  await settled(mount);
  const requests: number[] = [];
  for (let n = 0; n < RCLONE_SAVES; n++) {
    await Bun.sleep(pauseMs);
    await pod.append(MAIN, transcript(NEWS_BYTES));
    await run.save({ deadlineMs: 30_000 });
    requests.push(await settled(mount));
  }
  const product = spreadOf(requests);
  const title = `backend requests of one save, ${name}`;
  // A listing that the mount has forgotten is one more.
  const verdict = pauseMs === 0 ? { verdict: atMost("alone", 3, product) } : {};
  return { bench: "sessions", name: title, unit: "x", product, ...verdict };
}

/** How many there were, when what was written has reached the backend and it is quiet. */
async function settled(mount: RcloneVolume): Promise<number> {
  let [sum, puts, quietMs] = [0, 0, 0];
  while (puts === 0 || quietMs < QUIET_MS) {
    await Bun.sleep(QUIET_STEP_MS);
    const counts = mount.requests.take();
    const now = Object.values(counts).reduce((all, count) => all + count, 0);
    puts += counts.PUT ?? 0;
    sum += now;
    quietMs = now === 0 ? quietMs + QUIET_STEP_MS : 0;
  }
  return sum;
}

function row(name: string, product: readonly number[], floor: readonly number[]): Row {
  return { bench: "sessions", name, unit: "ms", product: spreadOf(product), floor: spreadOf(floor) };
}

/** A pod whose thread has a saved history. */
async function grown(pod: DiskPod, mib: number) {
  const run = await pod.begin("thread");
  await pod.say(run, "s", transcript(mib << 20));
  const { saved, reason } = await run.save({ deadlineMs: 60_000 });
  if (!saved) throw new Error(`the history was not saved: ${reason}`);
  return run;
}

async function restoreTime(place: Place): Promise<number> {
  await using pod = await place.pod();
  const from = performance.now();
  const { found } = await pod.begin("thread");
  if (found.state !== "restored") throw new Error(`not restored: ${found.reason}`);
  return performance.now() - from;
}

/** In a process of its own: what is copied may lie on the mount. */
async function copyTime(from: string, to: string): Promise<number> {
  const startedAt = performance.now();
  const child = Bun.spawn(["cp", "-r", from, to]);
  if ((await child.exited) !== 0) throw new Error("the copy failed");
  return performance.now() - startedAt;
}

class Place implements AsyncDisposable {
  readonly home: string;
  readonly #orgFs;
  private constructor(readonly folder: string) {
    this.home = join(folder, "home");
    const parts = { clock: systemClock, log: recordingLog(), metrics: silentMetrics() };
    const workerArgv = [BINARY, "orgfs-worker"];
    this.#orgFs = createOrgFs({ ...parts, workerArgv, mountPathOf: () => this.home });
  }
  static async create(): Promise<Place> {
    const place = new Place(await mkdtemp(join(tmpdir(), "dispatchd-bench-")));
    await mkdir(place.home);
    return place;
  }
  pod(): Promise<DiskPod> {
    return DiskPod.create({ home: this.home }, { orgFs: this.#orgFs, env: { SESSION_IO_BUDGET_MS: "60000" } });
  }
  async [Symbol.asyncDispose](): Promise<void> {
    this.#orgFs.stop();
    await rm(this.folder, { recursive: true, force: true });
  }
}
