/** The names of events and their fields are what dashboards and alerts are built on: they are pinned here. */
import { expect, test } from "bun:test";
import { eventually, type LogLine, TestDaemon } from "../support/daemon.ts";
import { FINISHED, OPEN } from "../support/scripted-harness.ts";

/** `event`, level and the names of its fields. */
function outline(lines: readonly LogLine[]): string[] {
  return lines.map(({ time: _time, level, event, ...fields }) => `${level} ${event}: ${Object.keys(fields).join(" ")}`);
}

const STARTED = [
  "info listening: url port version bootId appRoot isolation",
  "info ready: runs cutOff killed elapsedMs",
  "info sessions live as long as the pod: reason",
];
const STOPPED = ["info signal received: name", "info draining: runs", "info stopped: "];

test("the log of one run", async () => {
  await using daemon = await TestDaemon.start({ env: { EXIT_GRACE_MS: "100" } });
  await daemon.run({
    runId: "r",
    steps: [OPEN, { stderr: "for people" }, { line: "no frame" }, FINISHED],
    headers: { traceparent: `00-${"a".repeat(32)}-${"b".repeat(16)}-01` },
  });
  await daemon.event("dispatch done");
  await daemon.stop();
  const about = "run attempt thread";
  expect(outline(daemon.log).sort()).toEqual(
    [
      ...STARTED,
      // No keys for suspensions.
      "warn configuration: warning",
      "info dispatch received: run thread does attempt traceparent",
      `info harness started: ${about} harness pid session`,
      `info harness stderr: ${about} line`,
      `info harness printed a line that is no frame: ${about} line`,
      `info dispatch outcome: ${about} outcome`,
      `info dispatch done: ${about} outcome seq frames bytes elapsedMs`,
      ...STOPPED,
    ].sort(),
  );
  expect(daemon.noise).toEqual([]);
});

test("the log of a refusal, a configuration, a takeover, a cancel and a failure", async () => {
  await using daemon = await TestDaemon.start({
    env: { LOG_LEVEL: "debug", EXIT_GRACE_MS: "100", KILL_GRACE_MS: "100" },
  });
  await (await daemon.fetch("/nothing")).text();
  await daemon.fetch("/config", { method: "POST", body: '{"env":{"A":"1"}}' });
  const first = await daemon.dispatch({ runId: "r1", threadId: "t", steps: [OPEN, { sleepMs: 60_000 }] });
  await daemon.event("harness started", 0, ({ run }) => run === "r1");
  const second = await daemon.dispatch({ runId: "r2", threadId: "t", steps: [OPEN, { sleepMs: 60_000 }] });
  await first.text();
  await daemon.event("harness started", 0, ({ run }) => run === "r2");
  await daemon.cancel("r2", "?wait=1");
  await second.text();
  await daemon.event("dispatch done", 0, ({ run }) => run === "r2");
  await eventually(() => daemon.log.filter(({ event }) => event === "dispatch done").length === 2);
  const about = "run attempt thread";
  const failed = `info dispatch outcome: ${about} outcome code message`;
  const expected = [
    "debug request refused: path code",
    "info configuration received: token env",
    "info dispatch received: run thread does attempt",
    "info dispatch received: run thread does attempt takesOver",
    failed,
    `info takeover: ${about} from waitedMs`,
    "info cancel received: run known",
  ];
  const seen = outline(daemon.log);
  for (const line of expected) expect(seen).toContain(line);
  expect(seen.filter((line) => line === failed)).toHaveLength(2);
});
