/** Files of a session that are closed to the daemon, with flights of the compiled worker as a user who is not root. */
import { expect, test } from "bun:test";
import { chmod, readdir } from "node:fs/promises";
import { join } from "node:path";
import type { SaveJob } from "../../src/session/save-job.ts";
import { BINARY } from "../support/daemon.ts";
import { DiskPod, Volume } from "./pod-disk.ts";

const MAIN = "projects/p/s.jsonl";
const NOBODY = { uid: 45_678, gid: 45_678 };
const isRoot = process.getuid?.() === 0;

/** Its files are that user's by then. */
async function saveAsNobody(job: SaveJob, folders: readonly string[]): Promise<unknown> {
  const { uid, gid } = NOBODY;
  if (isRoot) expect(Bun.spawnSync(["chown", "-R", `${uid}:${gid}`, ...folders]).exitCode).toBe(0);
  const order = JSON.stringify({ parent: process.pid, job: "session-save", input: job });
  const child = Bun.spawn([BINARY, "orgfs-worker"], {
    env: { PATH: "/usr/bin:/bin" },
    stdin: Buffer.from(order),
    stdout: "pipe",
    ...(isRoot ? NOBODY : {}),
  });
  const { done, failed } = JSON.parse(await new Response(child.stdout).text());
  if (failed) throw Object.assign(new Error(failed.message), { code: failed.code });
  return done;
}

const leftOutOf = ({ lines }: DiskPod): unknown[] =>
  lines.filter(({ event }) => event === "session files left out").flatMap(({ fields }) => fields.files);

test("a file or a folder that cannot be read is left out and named, and costs no save", async () => {
  await using volume = await Volume.create();
  await using pod = await DiskPod.create(volume);
  await pod.append("projects/p/s/open", "open");
  await pod.append("projects/p/s/shut", "shut");
  await pod.append("projects/p/s/shut-folder/in-it", "in it");
  await pod.append("projects/somebodys/s.jsonl", "in a folder that is closed");
  pod.jobs["session-save"] = (job: SaveJob) => saveAsNobody(job, [pod.folder, volume.home]);
  expect((await pod.turn("thread", "one\n", {}, "s")).settled).toMatchObject({ saved: true });
  const shut = ["projects/p/s/shut", "projects/p/s/shut-folder", "projects/somebodys"];
  for (const path of shut) await chmod(join(pod.configDir, path), 0);
  // What was stored of it goes: no reader has an older state of it beside the newer transcript.
  expect((await pod.turn("thread", "two\n")).settled).toMatchObject({ saved: true });
  expect(leftOutOf(pod).sort()).toEqual(shut.slice(0, 2));
  await using other = await DiskPod.create(volume);
  expect((await other.begin("thread")).found).toMatchObject({ id: "s", state: "restored" });
  expect([await other.read(MAIN), (await readdir(join(other.configDir, "projects/p/s"))).sort()]).toEqual([
    "one\ntwo\n",
    ["open"],
  ]);
  // Of what cannot be read nothing is news.
  const again = await pod.begin("thread");
  expect(await again.save({ deadlineMs: 5000 })).toMatchObject({ saved: true, bytes: 0 });
  await pod.append(MAIN, "three\n");
  await chmod(join(pod.configDir, MAIN), 0);
  const last = await pod.begin("thread");
  expect(await last.save({ deadlineMs: 5000 })).toMatchObject({ saved: false, reason: "the save failed: EACCES" });
});
