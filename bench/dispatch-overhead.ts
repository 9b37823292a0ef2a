/** A dispatch of a harness that ends at once, from the request to the last byte, against spawning that harness alone. */
import { spawn } from "node:child_process";
import { dispatchTurn, startBenchDaemon } from "./bench-daemon.ts";
import { atMost, type Bench, inTurns, spreadOf } from "./measure.ts";

const ROUNDS = 60;
const WARMUPS = 5;
/** Reads its turn and gives an outcome: the least that a harness can do. */
const INSTANT = ["/bin/sh", "-c", `read -r _; echo '{"chunks":[],"outcome":{"type":"finished"}}'`];

export const dispatchOverhead: Bench = {
  name: "dispatch-overhead",
  about: "dispatch of an instant harness, request to last byte, against spawning the same harness alone",
  async run() {
    await using daemon = await startBenchDaemon(INSTANT);
    const sides = { floor: spawnAlone, product: async () => (await dispatchTurn(daemon)).totalMs };
    const times = await inTurns(ROUNDS, sides, WARMUPS);
    const product = spreadOf(times.product);
    const floor = spreadOf(times.floor);
    const verdict = atMost("difference", 10, product, floor);
    return {
      rows: [{ bench: "dispatch-overhead", name: "request to last byte", unit: "ms", product, floor, verdict }],
    };
  },
};

/** From the spawn until its output has ended and its exit is known. */
function spawnAlone(): Promise<number> {
  const [command = "", ...args] = INSTANT;
  const startedAt = performance.now();
  const child = spawn(command, args, { env: { PATH: "/usr/bin:/bin" }, stdio: ["pipe", "pipe", "pipe"] });
  child.stdin.end("{}\n");
  child.stdout.resume();
  child.stderr.resume();
  return new Promise((resolve, reject) => {
    child.on("close", () => resolve(performance.now() - startedAt));
    child.on("error", reject);
  });
}
