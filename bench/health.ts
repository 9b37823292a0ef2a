/** How long /health takes while one run streams 1 KiB frames, also on a pod whose org volume hangs. */
import { join } from "node:path";
import type { TestDaemon } from "../test/support/daemon.ts";
import { mountsMissing } from "../test/support/wedgefs/index.ts";
import { checkEnd, dispatchRequest, dispatchTurn, startBenchDaemon } from "./bench-daemon.ts";
import { CopyServer, Floors, PROGRAMS } from "./floors.ts";
import { type Ask, type Exchange, Probe } from "./http.ts";
import { atMost, type Bench, inTurns, quantile, type Row, type Spread, spreadOf } from "./measure.ts";
import { WedgedPod } from "./wedged-pod.ts";

const ROUNDS = 5;
const FRAME_BYTES = 1024;
const FULL_SPEED_BYTES = 800_000_000;
const HELD_BYTES_PER_S = 50_000_000;
const HELD_BYTES = 150_000_000;
const SESSION_BYTES = 64 << 20;
const PROBE_EVERY_MS = 2;
const MS_PER_S = 1000;

interface Load {
  /** Latencies of /health while the load ran. */
  readonly latencies: readonly number[];
  readonly bytesPerSecond: number;
}

export const health: Bench = {
  name: "health",
  about: "/health, asked every 2 ms on one connection, while one run streams 1 KiB frames",
  async run(progress) {
    await using floors = await Floors.open();
    const copyBinary = await floors.compile("copy-server");
    progress("at full speed");
    const full = await inTurns(ROUNDS, {
      product: () => loadDaemon(FULL_SPEED_BYTES, 0),
      floor: () => loadCopy(copyBinary, FULL_SPEED_BYTES, 0),
    });
    progress("the copy at the rate that the daemon reached");
    const reached = spreadOf(full.product.map((load) => load.bytesPerSecond)).median;
    const sameRate = await inTurns(ROUNDS, { floor: () => loadCopy(copyBinary, FULL_SPEED_BYTES, reached) });
    progress("held to 50 MB/s");
    const held = await inTurns(ROUNDS, {
      product: () => loadDaemon(HELD_BYTES, HELD_BYTES_PER_S),
      floor: () => loadCopy(copyBinary, HELD_BYTES, HELD_BYTES_PER_S),
    });
    progress(mountsMissing ?? "while flights to the org volume are wedged");
    const wedged = mountsMissing
      ? []
      : (await inTurns(ROUNDS, { product: () => loadWedged(HELD_BYTES, HELD_BYTES_PER_S) })).product;
    progress(mountsMissing ?? "the same while a 64 MiB session is saved");
    const saving = mountsMissing
      ? { full: [], held: [] }
      : await inTurns(ROUNDS, {
          full: () => loadSaving(FULL_SPEED_BYTES, 0),
          held: () => loadSaving(HELD_BYTES, HELD_BYTES_PER_S),
        });
    const p99 = (loads: readonly Load[]): Spread => spreadOf(loads.map(({ latencies }) => ninetyNinth(latencies)));
    const fullProduct = p99(full.product);
    const heldProduct = p99(held.product);
    const row = { bench: "health", unit: "ms" as const };
    const rows: Row[] = [
      {
        ...row,
        name: "p99, full speed",
        product: fullProduct,
        floor: p99(full.floor),
        verdict: atMost("ratio", 1, fullProduct, p99(full.floor)),
      },
      { ...row, name: "p99, full speed, the copy held to our rate", product: fullProduct, floor: p99(sameRate.floor) },
      {
        ...row,
        name: "p99, held to 50 MB/s",
        product: heldProduct,
        floor: p99(held.floor),
        verdict: atMost("alone", 10, heldProduct),
      },
      { ...row, name: "slowest of all, full speed", product: slowest(full.product), floor: slowest(full.floor) },
      { ...row, unit: "MB/s", name: "rate at full speed", product: rates(full.product), floor: rates(full.floor) },
    ];
    if (wedged.length > 0) {
      const wedgedProduct = p99(wedged);
      rows.push(
        {
          ...row,
          name: "p99, held to 50 MB/s, flights wedged",
          product: wedgedProduct,
          floor: p99(held.floor),
          verdict: atMost("alone", 10, wedgedProduct),
        },
        { ...row, unit: "MB/s", name: "rate held, flights wedged", product: rates(wedged), floor: rates(held.product) },
      );
    }
    if (saving.full.length > 0) {
      const [fullSaving, heldSaving] = [p99(saving.full), p99(saving.held)];
      const [fullCopy, heldCopy] = [p99(full.floor), p99(held.floor)];
      rows.push(
        {
          ...row,
          name: "p99, full speed, wedged, 64 MiB saved",
          product: fullSaving,
          floor: fullCopy,
          verdict: atMost("ratio", 1, fullSaving, fullCopy),
        },
        {
          ...row,
          name: "p99, held, wedged, 64 MiB saved",
          product: heldSaving,
          floor: heldCopy,
          verdict: atMost("alone", 10, heldSaving),
        },
        { ...row, unit: "MB/s", name: "rate at full speed, wedged, saved", product: rates(saving.full) },
        { ...row, unit: "MB/s", name: "rate held, wedged, saved", product: rates(saving.held) },
      );
    }
    const notes = mountsMissing ? [`health: no flights were wedged and no session saved: ${mountsMissing}`] : [];
    return { rows, notes };
  },
};

function emitter(totalBytes: number, bytesPerSecond: number): string[] {
  const program = join(PROGRAMS, "emit-frames.ts");
  return [process.execPath, program, `${FRAME_BYTES}`, `${totalBytes}`, `${Math.round(bytesPerSecond)}`];
}

async function loadDaemon(totalBytes: number, bytesPerSecond: number): Promise<Load> {
  await using daemon: TestDaemon = await startBenchDaemon(emitter(totalBytes, bytesPerSecond));
  return await load(daemon.port, dispatchRequest(daemon), totalBytes, checkEnd);
}

/** On a pod of which at least four workers hang at a volume. */
async function loadWedged(totalBytes: number, bytesPerSecond: number): Promise<Load> {
  await using pod = await WedgedPod.start(emitter(totalBytes, bytesPerSecond));
  return await load(pod.daemon.port, dispatchRequest(pod.daemon), totalBytes, checkEnd);
}

/** At least four workers hang at other volumes, and meanwhile a long session is saved to the one that is well. */
async function loadSaving(totalBytes: number, bytesPerSecond: number): Promise<Load> {
  await using pod = await WedgedPod.start(emitter(totalBytes, bytesPerSecond), { homeIsWell: true });
  const loaded = load(pod.daemon.port, dispatchRequest(pod.daemon), totalBytes, checkEnd);
  const saved = await dispatchTurn(pod.daemon, { transcriptBytes: SESSION_BYTES });
  if (!saved.tail.includes('"saved":true')) throw new Error(`the session was not saved: ${saved.tail}`);
  return await loaded;
}

async function loadCopy(binary: string, totalBytes: number, bytesPerSecond: number): Promise<Load> {
  await using copy = await CopyServer.start(binary, emitter(totalBytes, bytesPerSecond));
  return await load(copy.port, { port: copy.port, path: "/" }, totalBytes, () => {});
}

/** Reads the stream in a process of its own, so that this one does nothing but ask and wait. */
async function load(port: number, ask: Ask, totalBytes: number, check: (answer: Exchange) => void): Promise<Load> {
  const probe = await Probe.connect(port);
  const cmd = [process.execPath, join(PROGRAMS, "read-stream.ts"), JSON.stringify(ask)];
  const reader = Bun.spawn({ cmd, stdout: "pipe", stderr: "inherit" });
  let over = false;
  const answer = reader.stdout.json().finally(() => {
    over = true;
  }) as Promise<Exchange>;
  const latencies: number[] = [];
  while (!over) {
    latencies.push(await probe.ask({ port, path: "/health" }));
    await Bun.sleep(PROBE_EVERY_MS);
  }
  probe.close();
  const exchange = await answer;
  check(exchange);
  return { latencies, bytesPerSecond: (totalBytes / exchange.totalMs) * MS_PER_S };
}

function ninetyNinth(latencies: readonly number[]): number {
  const sorted = [...latencies].sort((one, other) => one - other);
  return quantile(sorted, 0.99);
}

function slowest(loads: readonly Load[]): Spread {
  return spreadOf(loads.map(({ latencies }) => Math.max(...latencies)));
}

function rates(loads: readonly Load[]): Spread {
  return spreadOf(loads.map(({ bytesPerSecond }) => bytesPerSecond / 1e6));
}
