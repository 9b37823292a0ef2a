/** The daemon's side of the org volume at mounts that hang, fail and go away. */
import { expect, test } from "bun:test";
import { lstat, mkdir, readdir, readlink, stat, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { HttpError } from "../../src/errors.ts";
import { eventually } from "../support/daemon.ts";
import { needsRoot } from "../support/needs-root.ts";
import { mountsMissing } from "../support/wedgefs/index.ts";
import { startOrg } from "./start-org.ts";

const forever = new AbortController().signal;

async function targetOf(path: string): Promise<string | undefined> {
  return readlink(path).catch(() => undefined);
}

const needsMount = test.skipIf(mountsMissing !== undefined && process.env.CI === undefined);

test("without a sidecar a run waits for nothing, and nothing is linked or relayed", async () => {
  await using own = await startOrg({ sidecar: false });
  expect(await own.org.ready(forever, own.log)).toEqual({ home: "none", skills: "none", waitedMs: 0 });
  expect(own.org.state()).toBe("none");
  expect(await own.org.linkRun("thread", own.log)).toEqual([]);
  expect(await readdir(join(own.sidecar.appRoot, "org"))).toEqual([]);
  expect(await own.org.relayMountRequest({ mounts: [] })).toEqual({ written: false });
});

needsMount("a home that is mounted late is ready as soon as it answers", async () => {
  await using own = await startOrg({ budgetMs: 20_000 });
  const ready = own.org.ready(forever, own.log);
  await own.sidecar.mount(".outputs");
  await eventually(() => own.org.mounted(".outputs"));
  expect(own.org.state()).toEqual({ home: "unmounted", stuck: 0 });
  await own.sidecar.mount("home");
  expect(await ready).toMatchObject({ home: "ready", skills: "none" });
  expect(own.org.state()).toEqual({ home: "mounted", stuck: 0 });
});

needsMount("a home that hangs in the probe costs the budget once, and is used again when it answers", async () => {
  await using own = await startOrg({ budgetMs: 1000 });
  const home = await own.sidecar.mount("home");
  await home.hold();
  const first = await own.org.ready(forever, own.log);
  expect(first).toMatchObject({ home: "timeout", skills: "timeout", reason: "the volume home does not answer" });
  expect(first.waitedMs).toBeGreaterThanOrEqual(999);
  expect(first.waitedMs).toBeLessThan(1500);
  const second = await own.org.ready(forever, own.log);
  expect(second.home).toBe("timeout");
  expect(second.waitedMs).toBeLessThan(50);
  await home.release();
  await eventually(async () => (await own.org.ready(forever, own.log)).home === "ready");
});

needsMount("a home that went away, or that cannot be read, is called failed, with the error", async () => {
  await using own = await startOrg({ budgetMs: 500 });
  const home = await own.sidecar.mount("home");
  await home.fail({ errno: "EIO" });
  expect(await own.org.ready(forever, own.log)).toMatchObject({
    home: "failed",
    reason: "the volume home cannot be read: EIO",
  });
  await home.vanish();
  await eventually(
    async () => (await own.org.ready(forever, own.log)).reason === "the volume home cannot be read: ENOTCONN",
  );
});

needsMount("who-touches: every call on a volume is a worker's", async () => {
  await using own = await startOrg();
  const mounts = [await own.sidecar.mount("home"), await own.sidecar.mount(".outputs")];
  await eventually(() => own.org.mounted(".outputs"));
  for (const mount of mounts) await mount.trace();
  expect((await own.org.ready(forever, own.log)).home).toBe("ready");
  expect(await own.org.linkRun("thread", own.log)).toEqual(["output"]);
  const callers = (await Promise.all(mounts.map((mount) => mount.traced()))).flat();
  expect(callers.length).toBeGreaterThan(3);
  expect(callers.filter(({ pid, caller }) => pid === process.pid || !caller.includes("real-worker.ts"))).toEqual([]);
});

test("links lead to the thread's folders, relative, and follow the last run", async () => {
  await using own = await startOrg();
  const { sidecar, org } = own;
  await sidecar.provide(".outputs");
  await eventually(() => org.mounted(".outputs"));
  const output = join(sidecar.appRoot, "org", "output");
  const upload = join(sidecar.appRoot, "org", "upload");
  expect(await org.linkRun("thrd_X", own.log)).toEqual(["output"]);
  expect([await targetOf(output), await targetOf(upload)]).toEqual([".outputs/thrd_X", undefined]);
  expect((await stat(output)).isDirectory()).toBe(true);
  await sidecar.provide(".uploads");
  await eventually(() => org.mounted(".uploads"));
  expect(await org.linkRun("zwei drei.ü", own.log)).toEqual(["output", "upload"]);
  expect([await targetOf(output), await targetOf(upload)]).toEqual([".outputs/zwei drei.ü", ".uploads/zwei drei.ü"]);
  // No run sees another thread's folder by a link that was left.
  await sidecar.withdraw(".uploads");
  await eventually(() => !org.mounted(".uploads"));
  for (const id of ["../../etc", "a/b", "..", ".", "nul\0", "x".repeat(256), "half \ud800"]) {
    expect(await org.linkRun("thrd_X", own.log)).toEqual(["output"]);
    expect(await org.linkRun(id, own.log)).toEqual([]);
    expect([await targetOf(output), await targetOf(upload)]).toEqual([undefined, undefined]);
  }
  expect((await readdir(join(sidecar.appRoot, "org"))).sort()).toEqual([".outputs", ".uploads"]);
  expect((await readdir(sidecar.path(".outputs"))).sort()).toEqual(["thrd_X", "zwei drei.ü"]);
});

test("what is no link stays, and a link elsewhere is replaced", async () => {
  await using own = await startOrg();
  const { sidecar, org } = own;
  await sidecar.provide(".outputs");
  await sidecar.provide(".uploads");
  await eventually(() => org.mounted(".uploads"));
  const output = join(sidecar.appRoot, "org", "output");
  const upload = join(sidecar.appRoot, "org", "upload");
  await mkdir(output);
  await writeFile(join(output, "of a person"), "text");
  await symlink("/etc", upload);
  expect(await org.linkRun("thread", own.log)).toEqual(["upload"]);
  expect((await lstat(output)).isDirectory()).toBe(true);
  expect(await targetOf(upload)).toBe(".uploads/thread");
  expect(own.log.said.some(({ event }) => event === "run not linked")).toBe(true);
});

needsRoot("the folders belong to the agent, where a volume has owners", async () => {
  await using own = await startOrg({ agentUser: { uid: 1234, gid: 5678 } });
  const { sidecar, org } = own;
  await sidecar.provide(".outputs");
  await eventually(() => org.mounted(".outputs"));
  expect(await org.linkRun("thread", own.log)).toEqual(["output"]);
  expect(await stat(sidecar.path(".outputs", "thread"))).toMatchObject({ uid: 1234, gid: 5678 });
  // What somebody else has made stays theirs.
  await mkdir(sidecar.path(".outputs", "older"));
  expect(await org.linkRun("older", own.log)).toEqual(["output"]);
  expect((await stat(sidecar.path(".outputs", "older"))).uid).toBe(0);
});

needsMount("a volume that hangs keeps no link from being set, and no run for long", async () => {
  await using own = await startOrg();
  const { sidecar, org } = own;
  const outputs = await sidecar.mount(".outputs");
  await sidecar.mount(".uploads");
  await eventually(() => org.mounted(".uploads"));
  expect(await org.linkRun("one", own.log)).toEqual(["output", "upload"]);
  await outputs.hold();
  const startedAt = performance.now();
  expect(await org.linkRun("two", own.log)).toEqual(["upload"]);
  expect(performance.now() - startedAt).toBeLessThan(2500);
  expect(await targetOf(join(sidecar.appRoot, "org", "output"))).toBe(".outputs/two");
  await outputs.release();
});

test("a mount request reaches the sidecar as a whole, with what only the sidecar knows", async () => {
  await using own = await startOrg();
  const request = { mounts: [{ volume: "home", url: "https://files.test/", headers: { a: "b" } }], version: 7 };
  expect(await own.org.relayMountRequest(request)).toEqual({ written: true });
  expect(await own.sidecar.request()).toEqual(request);
  expect((await stat(own.sidecar.configPath)).mode & 0o777).toBe(0o600);
  // The one that came last stays, whatever came between.
  await Promise.all(Array.from({ length: 20 }, (_, version) => own.org.relayMountRequest({ version })));
  expect(await own.sidecar.request()).toEqual({ version: 19 });
  expect((await readdir(join(own.sidecar.configPath, ".."))).filter((name) => name.endsWith(".tmp"))).toEqual([]);
  expect(JSON.stringify(own.log.said)).not.toContain("files.test");
});

test("a mount request that is none is refused with its place, and nothing is written", async () => {
  await using own = await startOrg();
  const codeOf = (request: unknown) =>
    own.org.relayMountRequest(request).then(
      () => "written",
      (error: unknown) => (error instanceof HttpError ? `${error.code} ${error.detail?.split(":")[0]}` : String(error)),
    );
  expect(await codeOf([])).toBe("bad_input body");
  expect(await codeOf("text")).toBe("bad_input body");
  expect(await codeOf({ mounts: {} })).toBe("bad_input mounts");
  expect(await codeOf({ mounts: [{ volume: "home" }, {}] })).toBe("bad_input mounts.1.volume");
  expect(await codeOf({ mounts: [{ volume: "../x" }] })).toBe("bad_input mounts.0.volume");
  expect(await codeOf({ padding: "x".repeat(1 << 20) })).toBe("bad_input body");
  expect(await readdir(join(own.sidecar.configPath, ".."))).toEqual([]);
});
