/** What the agent leaves in its own folders leads the daemon nowhere: not onto a volume that hangs, not into a failure. */
import { expect, setDefaultTimeout, test } from "bun:test";
import { Pod } from "../support/pod.ts";
import type { Step } from "../support/scripted-harness.ts";
import { mountsMissing } from "../support/wedgefs/index.ts";

setDefaultTimeout(30_000);
const needsMount = test.skipIf(mountsMissing !== undefined && process.env.CI === undefined);
const sh = (script: string): Step => ({ sh: script, wait: true });

needsMount(
  "links to a volume that hangs, among a session's folders, hold up no run and no end of the daemon",
  async () => {
    await using pod = await Pod.start();
    const config = `${pod.daemon.path()}/.claude`;
    const org = pod.sidecar.path("home");
    const links = `for n in $(seq 30); do ln -s ${org} ${config}/projects/link$n; done`;
    await pod.turn("a", "one", { steps: [sh(links)] });
    await pod.home.hold();
    for (const thread of ["a", "b", "c", "d"]) {
      const { outcome } = await pod.turn(thread, "two");
      expect([thread, outcome?.type]).toEqual([thread, "finished"]);
    }
    expect(await pod.daemon.stop()).toBe(0);
  },
);

for (const [what, script] of [
  ["a file", "rm -rf projects; touch projects"],
  ["a FIFO", "rm -rf projects; mkfifo projects"],
  ["a link to itself", "rm -rf projects; ln -s projects projects"],
] as const) {
  test(`${what} in place of the folder of sessions fails no thread`, async () => {
    await using pod = await Pod.start();
    await pod.turn("a", "one");
    await pod.turn("b", "one", { steps: [sh(`cd ${pod.daemon.path()}/.claude && ${script}`)] });
    for (const thread of ["a", "b", "c"]) {
      const response = await pod.begin(thread, "two");
      // What the harness makes of it is its own; the daemon starts it.
      expect([thread, await response.text()]).toEqual([thread, expect.not.stringContaining("storage_failed")]);
    }
  });
}
