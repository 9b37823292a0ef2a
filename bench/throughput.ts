/** Frames from a harness to one reader, against a bare copy of the same bytes; and the memory that it takes. */
import { join } from "node:path";
import { dispatchTurn, startBenchDaemon } from "./bench-daemon.ts";
import { CopyServer, Floors, PROGRAMS, peakRssMib } from "./floors.ts";
import { exchange } from "./http.ts";
import { atLeast, atMost, type Bench, inTurns, type Row, type Spread, spreadOf } from "./measure.ts";

const ROUNDS = 5;
const MS_PER_S = 1000;

interface Size {
  readonly name: string;
  readonly lineBytes: number;
  readonly totalBytes: number;
}

interface Measured {
  readonly totalMs: number;
  readonly rssMib: number;
}

const SIZES: readonly Size[] = [
  { name: "64 KiB", lineBytes: 64 << 10, totalBytes: 1 << 30 },
  { name: "1 KiB", lineBytes: 1 << 10, totalBytes: 1 << 30 },
  { name: "110 bytes", lineBytes: 110, totalBytes: 220_000_000 },
];

export const throughput: Bench = {
  name: "throughput",
  about: "frames from a harness to one reader, against a bare copy from a child's stdout to a response",
  async run(progress) {
    await using floors = await Floors.open();
    const copyBinary = await floors.compile("copy-server");
    const rows: Row[] = [];
    for (const size of SIZES) {
      progress(`frames of ${size.name}`);
      rows.push(...(await measureSize(size, copyBinary)));
    }
    return { rows };
  },
};

async function measureSize(size: Size, copyBinary: string): Promise<Row[]> {
  const emitter = [process.execPath, join(PROGRAMS, "emit-frames.ts"), `${size.lineBytes}`, `${size.totalBytes}`];
  const runs = await inTurns(ROUNDS, {
    // Both begin anew every time, so that the peak of memory is that of one run.
    floor: async () => {
      await using copy = await CopyServer.start(copyBinary, emitter);
      const { totalMs } = await exchange({ port: copy.port, path: "/" });
      return { totalMs, rssMib: await peakRssMib(copy.pid) };
    },
    product: async () => {
      await using daemon = await startBenchDaemon(emitter);
      const { totalMs } = await dispatchTurn(daemon);
      return { totalMs, rssMib: await peakRssMib(daemon.pid) };
    },
  });
  const perSecond = (amount: number, of: readonly Measured[]): Spread =>
    spreadOf(of.map(({ totalMs }) => (amount / totalMs) * MS_PER_S));
  const peak = (of: readonly Measured[]): Spread => spreadOf(of.map(({ rssMib }) => rssMib));
  const row = { bench: "throughput", name: size.name };
  const megabytes = {
    ...row,
    unit: "MB/s" as const,
    product: perSecond(size.totalBytes / 1e6, runs.product),
    floor: perSecond(size.totalBytes / 1e6, runs.floor),
  };
  const memory = {
    bench: "throughput",
    name: `${size.name}, peak RSS`,
    unit: "MiB" as const,
    product: peak(runs.product),
    floor: peak(runs.floor),
  };
  const memoryVerdict = atMost("difference", 32, memory.product, memory.floor);
  if (size.lineBytes === 110) {
    const frames = perSecond(size.totalBytes / size.lineBytes, runs.product);
    const verdict = atLeast("alone", 500_000, frames);
    return [megabytes, { ...row, unit: "frames/s", product: frames, verdict }, memory];
  }
  const limit = size.lineBytes === 1024 ? 0.2 : 0.4;
  const verdict = atLeast("ratio", limit, megabytes.product, megabytes.floor);
  return [
    { ...megabytes, verdict },
    { ...memory, verdict: memoryVerdict },
  ];
}
