/** A quiet response is not cut by the runtime, whose own limit for a connection without a byte ends far too early. */
import { expect, test } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "../../src/clock/system.ts";
import { Attempt, Run } from "../../src/dispatch/run.ts";
import { RunLog } from "../../src/dispatch/run-log.ts";
import { respondWithFrames } from "../../src/http/readers.ts";
import { createJsonLog } from "../../src/log/json-log.ts";
import { Redactor } from "../../src/log/redact.ts";
import { Follower } from "../support/follow.ts";

/** The least that Bun takes, in seconds; it looks every four. */
const IDLE_TIMEOUT_S = 1;
const QUIET_MS = 7000;

/** Follows a run that says something, is quiet, and ends. */
async function followQuietRun(liftsTimeout: boolean): Promise<Follower> {
  const folder = await mkdtemp(join(tmpdir(), "dispatchd-quiet-"));
  const log = RunLog.create(join(folder, "1.ndjson"), Promise.resolve(), () => {});
  const hooks = { onOutcome: () => {}, onReader: () => {} };
  const attempt = new Attempt(new Run("r", "t", folder), 1, log, systemClock, hooks);
  await using server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    idleTimeout: IDLE_TIMEOUT_S,
    fetch: (request, self) =>
      respondWithFrames(
        { request, attempt, from: { offset: 0 }, encoding: "ndjson", owner: true },
        {
          clock: systemClock,
          log: createJsonLog({ clock: systemClock, redactor: new Redactor(), level: "error", write: () => {} }),
          keepaliveMs: 60_000,
          metrics: () => undefined,
          onActivity: () => {},
          connectionOf: () => undefined,
          withoutTimeout: (asked) => {
            if (liftsTimeout) self.timeout(asked, 0);
          },
        },
      ),
  });
  attempt.prepared({ home: "none", skills: "none", waitedMs: 0, session: "fresh" });
  const follower = new Follower(await fetch(server.url));
  await follower.until(({ frameLines }) => frameLines.length === 1);
  await Promise.race([Bun.sleep(QUIET_MS), follower.ended]);
  attempt.conclude({ type: "finished" });
  await attempt.end({ saved: false });
  await follower.ended;
  await rm(folder, { recursive: true });
  return follower;
}

test.concurrent("a run that is quiet for longer than the runtime's limit is followed to its end", async () => {
  const { frames, whole } = await followQuietRun(true);
  expect(whole).toBe(true);
  expect(frames.map(({ seq }) => seq)).toEqual([1, 2, 3]);
  expect(frames[2]?.done).toBe(true);
}, 20_000);

test.concurrent("the limit is there: without that, the runtime cuts the response", async () => {
  const { frames, whole } = await followQuietRun(false);
  expect(whole).toBe(false);
  expect(frames.map(({ seq }) => seq)).toEqual([1]);
}, 20_000);
