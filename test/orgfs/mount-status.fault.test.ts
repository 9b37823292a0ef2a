/** What the daemon believes of the sidecar's status file, however that is written, and when it comes. */
import { expect, test } from "bun:test";
import { mkdir, mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { Clock } from "../../src/clock/port.ts";
import { systemClock } from "../../src/clock/system.ts";
import { type MountStatus, watchMountStatus } from "../../src/orgfs/mount-status.ts";
import { eventually } from "../support/daemon.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { recordingLog } from "../support/silent.ts";

interface Watched extends AsyncDisposable {
  readonly status: MountStatus;
  readonly path: string;
  readonly log: ReturnType<typeof recordingLog>;
  write(text: string): Promise<void>;
}

const mounts = (...volumes: unknown[]): string =>
  JSON.stringify({ mounts: volumes.map((volume) => ({ volume, mountPath: `/app/org/${volume}` })) });

interface WatchSetup {
  readonly clock?: Clock;
  /** A folder that is not there yet. */
  readonly below?: string;
  /** What is in the file at the start. */
  readonly text?: string;
}

async function watched({ clock = systemClock, below = "", text }: WatchSetup = {}): Promise<Watched> {
  const folder = await mkdtemp(join(tmpdir(), "status-"));
  const path = join(folder, below, "status.json");
  if (text !== undefined) await writeFile(path, text);
  const log = recordingLog();
  const status = watchMountStatus({ path, clock, log });
  await status.known;
  return {
    status,
    path,
    log,
    write: (later) => writeFile(path, later),
    async [Symbol.asyncDispose]() {
      status.stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

test("without the file nothing is mounted; it is seen when it comes, is replaced, and goes", async () => {
  await using own = await watched();
  const { status, path } = own;
  expect(status.volumes()).toEqual([]);
  let changes = 0;
  status.changed().then(() => changes++);
  await own.write(mounts("home"));
  await eventually(() => status.mounted("home"));
  expect(changes).toBe(1);
  await writeFile(`${path}.new`, mounts(".outputs", "home"));
  await rename(`${path}.new`, path);
  await eventually(() => status.mounted(".outputs"));
  await rm(path);
  await eventually(() => status.volumes().length === 0);
});

test("what is half written, or no status, is believed in nothing, and said", async () => {
  const texts = ['{"mounts":[{"vol', "null", "", '{"mounts":{}}', mounts("../etc"), mounts(7), mounts("home", "a/b")];
  for (const text of texts) {
    await using own = await watched({ text });
    expect([text, own.status.volumes(), own.log.said.map(({ event }) => event)]).toEqual([
      text,
      [],
      ["mount status unreadable"],
    ]);
  }
});

test("a status that breaks changes nothing, and is said once", async () => {
  await using own = await watched({ text: mounts("home") });
  expect(own.status.volumes()).toEqual(["home"]);
  for (const text of ['{"mounts":[{"vol', "null"]) await own.write(text);
  await eventually(() => own.log.said.some(({ event }) => event === "mount status unreadable"));
  expect(own.status.volumes()).toEqual(["home"]);
  await own.write(mounts("public"));
  await eventually(() => own.status.mounted("public"));
  expect(own.log.said.filter(({ event }) => event === "mount status unreadable").length).toBe(1);
});

test("a file whose folder comes later is found by reading again", async () => {
  const clock = new ManualClock();
  await using own = await watched({ clock, below: "later" });
  await mkdir(dirname(own.path));
  await own.write(mounts("home"));
  await clock.advance(5000);
  await eventually(() => own.status.mounted("home"));
});
