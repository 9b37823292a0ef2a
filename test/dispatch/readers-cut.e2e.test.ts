/** A cable that is cut raises no event: the reader at its end is lost when it has acknowledged nothing for a while. */
import { expect, test } from "bun:test";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { Cable, missingForCable } from "../support/cable.ts";
import { eventually, TestDaemon } from "../support/daemon.ts";
import { OPEN, type Step } from "../support/scripted-harness.ts";

const READER = join(import.meta.dir, "../support/plain-reader.ts");
const missing = await missingForCable();
if (missing && process.env.CI === "1") throw new Error(`a cut cable cannot be tried: ${missing} is missing`);
const skipped = missing === undefined ? "" : ` (skipped: ${missing} is missing)`;

const RUNS: Record<string, Step[]> = {
  quiet: [OPEN, { sleepMs: 60_000 }],
  streaming: [OPEN, { deltas: 30_000, everyMs: 2, text: "x".repeat(200) }],
};

for (const family of ["v4", "v6"] as const) {
  for (const [kind, steps] of Object.entries(RUNS)) {
    for (const end of ["far", "near"] as const) {
      // What is particular to IPv6 is how the kernel names the connection: once is enough.
      if (family === "v6" && (kind === "quiet" || end === "near")) continue;
      test.concurrent.skipIf(missing !== undefined)(
        `a reader over ${family} whose cable is cut at the ${end} end is lost, ${kind} run${skipped}`,
        async () => {
          await using cable = await Cable.lay();
          const env = { DAEMON_HOST: "::", KEEPALIVE_MS: "250", KILL_GRACE_MS: "100", READER_STALL_MS: "60000" };
          await using daemon = await TestDaemon.start({ env });
          const host = family === "v4" ? cable.v4 : `[${cable.v6}]`;
          const body = JSON.stringify({ runId: "r", input: { threadId: "t", userMessage: JSON.stringify(steps) } });
          const [program = "", ...args] = cable.farEnd([
            process.execPath,
            READER,
            `http://${host}:${daemon.port}`,
            daemon.token,
            body,
          ]);
          const reader = spawn(program, args, { stdio: ["ignore", "pipe", "inherit"] });
          try {
            let lines = 0;
            createInterface({ input: reader.stdout }).on("line", () => lines++);
            await eventually(() => lines > (kind === "quiet" ? 5 : 50));
            // A reader that reads is not lost, however long it is quiet.
            expect(await daemon.show("r")).toMatchObject({ state: "running", readers: 1 });
            expect(daemon.log.some(({ event }) => event === "reader lost")).toBe(false);
            const from = daemon.log.length;
            await cable.cut(end);
            const cutAt = performance.now();
            await daemon.event("reader lost", from, ({ why }) => why === "cut");
            // Two keepalives without an answer, and not the quarter of an hour that the kernel takes.
            expect(performance.now() - cutAt).toBeGreaterThan(400);
            expect(performance.now() - cutAt).toBeLessThan(10_000);
            await eventually(async () => (await daemon.show("r")).readers === 0);
            const shown = await daemon.show("r");
            expect(shown.state).toBe("running");
            expect(shown.detachedAt).toBeString();
            await daemon.cancel("r", "?wait=1");
          } finally {
            reader.kill("SIGKILL");
            if (reader.exitCode === null && reader.signalCode === null) await once(reader, "exit");
          }
        },
        20_000,
      );
    }
  }
}
