/**
 * Whose turn it is to write a skill on the volume. Pods share no lock there, so each says in a file of its own that it is
 * about to write, and looks whether another has said so too:
 *
 *     skills/.dispatchd-claims/<skill>.<pod>
 *
 * - A pod writes while its claim is there and it has seen no other since it made it. Of two that claim at once at least
 *   one sees the other, so that never both write.
 * - Of those that see each other the one whose name comes first keeps its claim and waits; the others withdraw theirs.
 * - A claim that a killed pod left counts for `STALE_MS`, by the volume's own clock.
 *
 * That holds where a file is seen by all as soon as it is written. A mount with old listings shows it too late: then both
 * write, and who was overwritten sees it by the ancestors (hash-file.ts).
 */
import { join } from "node:path";
import { fileNameOf } from "../../disk.ts";
import type { VolumeFiles } from "./volume-files.ts";

/** Longer than a flight takes, and a call that its process still finishes. */
const STALE_MS = 120_000;
const FIRST_PAUSE_MS = 10;
const MAX_PAUSE_MS = 80;

export interface Claims {
  /** Does the work while nobody else writes the skill. False: others did for as long as was to be waited, and it was not done. */
  during(name: string, work: () => Promise<void>): Promise<boolean>;
}

/** `pod` is the name that this pod alone has; `root` the volume's folder of skills. */
export function claimsOn(volume: VolumeFiles, root: string, pod: string, patienceMs: number): Claims {
  const folder = join(root, ".dispatchd-claims");

  async function take(prefix: string, own: string): Promise<boolean> {
    const startedAt = performance.now();
    const elapsedMs = (): number => performance.now() - startedAt;
    const claim = (): Promise<void> => volume.write(own, Buffer.from(`${pod}\n`));
    // Throws where it is a link.
    if (!(await volume.list(folder))) await volume.makeFolder(folder);
    await claim();
    let isClaimed = true;
    // What the volume's clock said when it was made; ours may be another.
    let madeAtMs: number | undefined;
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 2, MAX_PAUSE_MS)) {
      const names = (await volume.list(folder)) ?? [];
      const others: string[] = [];
      for (const name of names.filter((name) => name.startsWith(prefix) && name !== `${prefix}${pod}`)) {
        madeAtMs ??= await madeAt(own);
        const otherMs = await madeAt(join(folder, name));
        if (otherMs === undefined) continue;
        if (madeAtMs === undefined || madeAtMs + elapsedMs() - otherMs < STALE_MS) others.push(name);
        else await volume.remove(join(folder, name));
      }
      if (others.length === 0) {
        if (isClaimed) return true;
        await claim();
        isClaimed = true;
        continue;
      }
      if (isClaimed && others.some((name) => name < `${prefix}${pod}`)) {
        await volume.remove(own);
        isClaimed = false;
      }
      if (elapsedMs() >= patienceMs) return false;
      await Bun.sleep(pauseMs);
    }
  }

  async function madeAt(path: string): Promise<number | undefined> {
    const found = await volume.look(path);
    return typeof found === "object" ? found.mtimeMs : undefined;
  }

  return {
    async during(name, work) {
      const prefix = `${fileNameOf(name)}.`;
      const own = join(folder, `${prefix}${pod}`);
      try {
        const isTaken = await take(prefix, own);
        if (isTaken) await work();
        return isTaken;
      } finally {
        // One that cannot be removed is this pod's next one, or becomes stale.
        await volume.remove(own).catch(() => {});
      }
    },
  };
}
