import { expect, test } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Waits for the moment, so that all of them begin at once. */
const PROGRAM = `
  const { layOutPodFolders } = await import(process.argv[1]);
  const [dir, volume, at] = process.argv.slice(2);
  while (Date.now() < Number(at)) {}
  layOutPodFolders(dir, volume, null);
`;

test("the flights of several volumes lay out the folders at once", async () => {
  const module = join(import.meta.dir, "../../src/orgfs/skills/pod-folders.ts");
  for (let round = 0; round < 5; round++) {
    const dir = await mkdtemp(join(tmpdir(), "dispatchd-layout-"));
    try {
      const at = String(Date.now() + 300);
      const flights = ["home", "public", "team"].map((volume) =>
        Bun.spawn([process.execPath, "-e", PROGRAM, module, dir, volume, at], { stdout: "ignore", stderr: "pipe" }),
      );
      const said = await Promise.all(flights.map(({ stderr }) => new Response(stderr).text()));
      expect(said).toEqual(["", "", ""]);
      expect(await Promise.all(flights.map(({ exited }) => exited))).toEqual([0, 0, 0]);
    } finally {
      await rm(dir, { recursive: true, force: true });
    }
  }
}, 20_000);
