/** A reader that comes back near the end of a run of 100,000 frames: from its request to the first frame. */

import { join } from "node:path";
import { checkEnd, dispatchRequest, startBenchDaemon } from "./bench-daemon.ts";
import { PROGRAMS } from "./floors.ts";
import { exchange } from "./http.ts";
import { atMost, type Bench, inTurns, type Row, spreadOf } from "./measure.ts";

const ROUNDS = 21;
const FRAMES = 100_000;
const FRAME_BYTES = 110;
const FROM_END = 20;

export const reattach: Bench = {
  name: "reattach",
  about: `first frame of a reader that attaches ${FROM_END} frames before the end of a run of ${FRAMES}`,
  async run() {
    const emitter = [process.execPath, join(PROGRAMS, "emit-frames.ts"), `${FRAME_BYTES}`, `${FRAMES * FRAME_BYTES}`];
    await using daemon = await startBenchDaemon(emitter);
    const request = dispatchRequest(daemon);
    const { runId } = request;
    const whole = await exchange(request);
    checkEnd(whole);
    const lastSeq = Number(/\{"seq":(\d+),"chunks":\[\],"settled"/.exec(whole.tail)?.[1]);
    if (!(lastSeq >= FRAMES)) throw new Error(`the run has ${lastSeq} frames, not ${FRAMES}`);
    const read = async (after: number): Promise<number> => {
      const path = `/runs/${runId}/frames?after=${after}`;
      const answer = await exchange({ port: daemon.port, token: daemon.token, path });
      if (!answer.tail.includes(`{"seq":${lastSeq},`)) throw new Error(`no end in ${answer.tail}`);
      return answer.firstFrameMs;
    };
    const times = await inTurns(ROUNDS, { floor: () => read(0), product: () => read(lastSeq - FROM_END) });
    const product = spreadOf(times.product);
    const row: Row = {
      bench: "reattach",
      name: "first frame near the end, against from the start",
      unit: "ms",
      product,
      floor: spreadOf(times.floor),
      verdict: atMost("alone", 20, product),
    };
    return { rows: [row] };
  },
};
