import { describe, expect, test } from "bun:test";
import type { PeerState } from "../../src/http/peer-state.ts";
import { createReaderWatch } from "../../src/http/reader-watch.ts";

const LIMITS = { keepaliveMs: 15_000, stallMs: 60_000 };
const EVERY_MS = 5000;

interface Step extends Partial<PeerState> {
  readonly taken?: number;
}

/** The verdicts on samples taken every 5 s, up to the first that is not "alive", with its second. */
function judge(steps: readonly Step[]): string {
  const watch = createReaderWatch(LIMITS);
  for (const [index, { taken = 0, ...peer }] of steps.entries()) {
    const atMs = 1_000_000 + index * EVERY_MS;
    const state: PeerState = { txQueueBytes: 0, retransmits: 0, probes: 0, timer: "none", ...peer };
    const verdict = watch.judge({ atMs, takenBytes: taken, peer: state });
    if (verdict !== "alive") return `${verdict} at ${(index * EVERY_MS) / 1000} s`;
  }
  return "alive";
}

const steps = (count: number, step: (index: number) => Step): Step[] =>
  Array.from({ length: count }, (_, at) => step(at));

describe("alive is a reader", () => {
  test("that takes keepalives", () => {
    expect(judge(steps(100, (at) => ({ taken: at })))).toBe("alive");
  });

  test("that is always behind, but takes what the server hands over", () => {
    const full = { txQueueBytes: 4_000_000, timer: "retransmit" } as const;
    expect(judge(steps(100, (at) => ({ ...full, taken: 4_000_000 + at * 100_000 })))).toBe("alive");
  });

  test("that is slow: its window is closed whenever one looks, and now and then it takes something", () => {
    const slow = { txQueueBytes: 1_300_000, timer: "zero-window" } as const;
    expect(judge(steps(200, (at) => ({ ...slow, taken: Math.floor(at / 10) * 200_000 })))).toBe("alive");
  });

  test("on a bad network: much is sent twice, and is acknowledged in the end", () => {
    const lossy = (at: number): Step => ({ txQueueBytes: 5000, retransmits: at % 4, taken: 10_000 + at * 10 });
    expect(judge(steps(100, lossy))).toBe("alive");
  });

  test("that was cut off for less than two keepalives", () => {
    const cut = (at: number): Step => ({ txQueueBytes: 6, retransmits: at + 2, timer: "retransmit" });
    const whole = [{}, {}, ...steps(6, cut), {}, ...steps(6, cut), {}];
    expect(judge(whole)).toBe("alive");
  });
});

describe("cut is a reader", () => {
  test("that acknowledges nothing for two keepalives, though the queue grows with every one", () => {
    const queue = [0x6, 0x12, 0x18, 0x24, 0x2a, 0x36, 0x3c];
    const retransmits = [2, 4, 6, 7, 8, 9, 9];
    const cut = queue.map(
      (txQueueBytes, at): Step => ({
        txQueueBytes,
        retransmits: retransmits[at] ?? 0,
        timer: "retransmit",
        taken: 100 + Math.floor(txQueueBytes / 6),
      }),
    );
    expect(judge([{ taken: 100 }, ...cut])).toBe("cut at 35 s");
  });

  test("where our own side of the link is down, and retransmissions do not go on counting", () => {
    const retransmits = [0, 3, 4, 5, 5, 6, 6, 6];
    expect(
      judge(
        retransmits.map((count, at) => ({ txQueueBytes: 12 * at, retransmits: count, timer: "retransmit", taken: at })),
      ),
    ).toBe("cut at 35 s");
  });

  test("in full flow", () => {
    const flow = steps(3, (at) => ({ txQueueBytes: 2_000_000, taken: 2_000_000 + at * 5_000_000 }));
    const cut = steps(20, (at) => ({
      txQueueBytes: 4_180_073,
      retransmits: at + 4,
      timer: "retransmit",
      taken: 16_000_000,
    }));
    // The first sample after the cut still has something that was acknowledged before it.
    expect(judge([...flow, ...cut])).toBe("cut at 50 s");
  });

  test("that had stopped reading, once it leaves a probe without an answer", () => {
    const closed = { txQueueBytes: 1_257_592, timer: "zero-window" } as const;
    expect(judge([...steps(3, () => closed), ...steps(20, () => ({ ...closed, probes: 1 }))])).toBe("cut at 45 s");
  });
});

describe("stalled is a reader", () => {
  test("whose window stays closed, though it answers every probe", () => {
    expect(
      judge(steps(100, (at) => ({ txQueueBytes: 1_257_592, timer: "zero-window", probes: at % 3 === 0 ? 1 : 0 }))),
    ).toBe("stalled at 60 s");
  });

  test("that is owed keepalives alone", () => {
    const owed = (at: number): Step => ({ txQueueBytes: 6 * (at + 1), timer: "zero-window", taken: at });
    expect(judge(steps(100, owed))).toBe("stalled at 60 s");
  });
});
