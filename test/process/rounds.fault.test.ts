import { afterEach, beforeEach, expect, test } from "bun:test";
import { systemClock } from "../../src/clock/system.ts";
import { exists, isAlive, openProcesses, pidIn, script, until } from "./real-processes.ts";

let opened: ReturnType<typeof openProcesses>;
/** Makes the daemon look around without being asked, as it does every 30 s. */
let startRound: () => void;
beforeEach(() => {
  const clock = {
    ...systemClock,
    every(_ms: number, fn: () => void) {
      startRound = fn;
      return () => {};
    },
  };
  opened = openProcesses({ clock });
});
afterEach(() => opened.close());

const file = (name: string) => `${opened.dir}/${name}`;

test("an orphan that ends by itself is reaped while its run goes on", async () => {
  const run = opened.processes.spawn(
    script(`(env -i PATH=/usr/bin:/bin setsid sh -c 'echo $$ > ${file("orphan")}' &); exec sleep 600`),
  );
  const orphan = await pidIn(file("orphan"));
  await until("the orphan's end", () => !isAlive(orphan));
  await until("its adoption, or its end before", () => {
    startRound();
    return !exists(orphan);
  });
  expect(isAlive(run.pid ?? 0)).toBe(true);
});

test("a process that a round saw is its run's for good, without parent and environment", async () => {
  const { processes } = opened;
  const other = processes.spawn(script("exec sleep 600", { runName: "other/1" }));
  // The stray's parent stays until it is told to go.
  const run = processes.spawn(
    script(
      `sh -c 'env -i PATH=/usr/bin:/bin setsid sh -c "echo \\$\\$ > ${file("stray")}; exec sleep 600" & echo $$ > ${file("parent")}; while [ ! -e ${file("go")} ]; do sleep 0.01; done'; exec sleep 600`,
    ),
  );
  const [stray, parent] = [await pidIn(file("stray")), await pidIn(file("parent"))];
  startRound();
  await settled();
  await Bun.write(file("go"), "");
  await until("the parent's end", () => !isAlive(parent));
  await run.end(0);
  expect([exists(stray), isAlive(other.pid ?? 0)]).toEqual([false, true]);
});

/** Resolves when a round that was started before is over: what is read now comes after it. */
async function settled(): Promise<void> {
  await opened.processes.endLeftovers(`${opened.nonce}-none`);
}
