/**
 * Two pods, three threads, and a volume that hangs, fails and loses pods at moments that nobody chose. Which turns lose
 * something is not known before; what holds of every one of them is. Real time decides as much as the numbers do, so a
 * failure cannot be replayed from them: this is a soak, started by hand (CONTRIBUTING.md), and no part of the suite.
 */
import { expect, test } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Pod } from "../support/pod.ts";
import { mountsMissing } from "../support/wedgefs/index.ts";

const needsMount = test.skipIf(mountsMissing !== undefined && process.env.CI === undefined);
const FOR_MS = 6000;
const ENV = { CHECKPOINT_MS: "80", SESSION_IO_BUDGET_MS: "600", ORG_READY_BUDGET_MS: "400" };

needsMount(
  "turns end, in their order, with lines of their own thread alone, and the conversation is there at the end",
  async () => {
    const backing = await mkdtemp(join(tmpdir(), "dispatchd-chaos-"));
    await using all = new AsyncDisposableStack();
    all.defer(() => rm(backing, { recursive: true }));
    const start = async (): Promise<Pod> =>
      all.use(await Pod.start({ env: ENV, mount: { backing, writeBackMs: 150, listingMs: 100 } }));
    const pods: [Pod, Pod] = [await start(), await start()];
    const lost: Pod[] = [];
    const any = (): Pod => pods[Math.random() < 0.5 ? 0 : 1];
    const until = performance.now() + FOR_MS;
    const goesOn = (): boolean => performance.now() < until;

    async function disturb(): Promise<void> {
      while (goesOn()) {
        const { home } = any();
        await home.fail({ errno: "EIO", skip: Math.floor(Math.random() * 10), times: 3 }).catch(() => {}); // Or lost.
        await Bun.sleep(Math.random() * 300);
        await home.heal().catch(() => {});
        await home.hold().catch(() => {});
        await Bun.sleep(Math.random() * 500);
        await home.release().catch(() => {});
        await Bun.sleep(Math.random() * 300);
      }
    }

    /** A node dies: what its mount had not written reaches the backend in part, or not at all. */
    async function replace(): Promise<void> {
      while (goesOn()) {
        await Bun.sleep(1500);
        const index = Math.random() < 0.5 ? 0 : 1;
        const gone = pods[index];
        pods[index] = await start();
        lost.push(gone);
        await gone.kill();
        await gone.home.writeBack(Math.random());
        await gone.home.unmount();
      }
    }

    let fence = 1;
    async function talk(thread: string): Promise<void> {
      for (let n = 1; goesOn(); n++) {
        const pod = any();
        const steps = [{ sleepMs: Math.floor(Math.random() * 150) }];
        const turn = await pod.turn(thread, `${thread} ${n}`, { steps, input: { fence: fence++ } }).catch((error) => {
          if (pods.includes(pod)) throw error;
          return undefined; // The pod was lost.
        });
        if (!turn) continue;
        expect(turn.outcome?.type).toBe("finished");
        const [mine, numbers] = [
          turn.heard.map((line) => line.split(" ")[0]),
          turn.heard.map((l) => Number(l.split(" ")[1])),
        ];
        expect(new Set(mine)).toEqual(new Set([thread]));
        expect(numbers).toEqual([...new Set(numbers)].sort((a, b) => a - b));
        expect(numbers.at(-1)).toBe(n);
      }
    }

    const threads = ["a", "b", "c"];
    const { home } = pods[0];
    for (const thread of threads) await pods[0].turn(thread, `${thread} 0`, { input: { fence: 0 } });
    await home.writeBack();
    await Promise.all([disturb(), replace(), ...threads.map(talk)]);
    await using last = await Pod.start({ mount: { backing }, env: { SESSION_IO_BUDGET_MS: "5000" } });
    for (const thread of threads) {
      const { heard, outcome } = await last.turn(thread, `${thread} 9999`, { input: { fence: fence++ } });
      expect(outcome?.type).toBe("finished");
      expect(heard[0]).toBe(`${thread} 0`);
      expect(heard.length).toBeGreaterThan(2);
    }
    for (const pod of [...pods, ...lost]) expect(pod.daemon.noise).toEqual([]);
  },
  60_000,
);
