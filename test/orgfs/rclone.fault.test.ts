/** The same with what deployments have: rclone's mount of a WebDAV server that stops answering. */
import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { eventually } from "../support/daemon.ts";
import { RcloneVolume, rcloneMissing } from "../support/rclone.ts";
import { startOrg } from "./start-org.ts";

const forever = new AbortController().signal;

const needsRclone = test.skipIf(rcloneMissing !== undefined && process.env.CI === undefined);

needsRclone(
  "a backend that stops answering costs the wait, and is used again when it goes on",
  async () => {
    await using own = await startOrg({ budgetMs: 1500 });
    const { sidecar, org, orgFs } = own;
    await using home = await RcloneVolume.mount(sidecar.path("home"));
    await using outputs = await RcloneVolume.mount(sidecar.path(".outputs"));
    await writeFile(join(home.backing, "file"), "text");
    await sidecar.report("home", ".outputs");
    await eventually(() => org.mounted("home"));
    expect(await org.ready(forever, own.log)).toMatchObject({ home: "ready" });
    expect(await org.linkRun("thread", own.log)).toEqual(["output"]);
    await eventually(() => existsSync(join(outputs.backing, "thread")));

    home.stopBackend();
    // What the mount has listed it knows for a while.
    await eventually(async () => (await org.ready(forever, own.log)).home === "timeout");
    const startedAt = performance.now();
    expect((await org.ready(forever, own.log)).home).toBe("timeout");
    expect(performance.now() - startedAt).toBeLessThan(600);
    expect(await org.linkRun("another", own.log)).toEqual(["output"]);

    home.continueBackend();
    await eventually(async () => (await org.ready(forever, own.log)).home === "ready");
    await eventually(() => orgFs.state().home?.stuck === 0);
  },
  60_000,
);

test("on continuous integration there is rclone", () => {
  if (process.env.CI !== undefined) expect(rcloneMissing).toBeUndefined();
});
