/** What lies on the volume: sealed, of any thread id, tampered with, full, read-only; and skills on their way over it. */
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { randomBytes } from "node:crypto";
import { cp, mkdtemp, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { BINARY, eventually } from "../support/daemon.ts";
import { Pod, type Turn, turnOf } from "../support/pod.ts";
import type { Step } from "../support/scripted-harness.ts";
import { Sidecar } from "../support/sidecar.ts";
import { mountsMissing } from "../support/wedgefs/index.ts";

setDefaultTimeout(20_000);
const needsMount = test.skipIf(mountsMissing !== undefined && process.env.CI === undefined);

let sidecar: Sidecar;
let home: string;
beforeAll(async () => {
  sidecar = await Sidecar.start();
  home = await sidecar.provide("home");
});
afterAll(() => sidecar[Symbol.asyncDispose]());

const NO_CHECKPOINTS = { CHECKPOINT_MS: "60000" };
/** The product's own: where nothing hangs, nothing is to be given up because the machine is busy. */
const LONG_BUDGETS = { SESSION_IO_BUDGET_MS: undefined, ORG_READY_BUDGET_MS: undefined };
const key = (): string => randomBytes(32).toString("base64url");

async function filesBelow(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  return entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
}

/** A volume of its own, in a folder. */
async function volume(): Promise<{ sidecar: Sidecar; store: string } & AsyncDisposable> {
  const own = await Sidecar.start();
  const store = join(await own.provide("home"), "dispatchd-sessions");
  return { sidecar: own, store, [Symbol.asyncDispose]: () => own[Symbol.asyncDispose]() };
}

/** A new pod's turn in the thread. */
async function elsewhere(
  own: { sidecar: Sidecar },
  thread: string,
  env: Record<string, string> = {},
  input: Record<string, unknown> = {},
): Promise<Turn & { rejected: unknown }> {
  await using pod = await Pod.start({ sidecar: own.sidecar, env: { ...NO_CHECKPOINTS, ...env } });
  const turn = await pod.turn(thread, "elsewhere", { input });
  return { ...turn, rejected: pod.daemon.log.find(({ event }) => event === "saves not taken")?.saves };
}

test("thread ids of every kind: saved, found again, never mixed up, never outside the store", async () => {
  const long = "x".repeat(299);
  const ids = [
    ...["thrd_X", "thrd_x", "a.b", "a b", "a_b", "a-b", "a/b", "a//b", "/a/b", "a\\b", "a%2Fb", "A/B"],
    ...[".", "..", "../../etc/passwd", "../home", "dispatchd-sessions", "-rf", "~", "$HOME", "*", "con", "a\u0000b"],
    ...["\u00fc", "u\u0308", "線程", "🧵", "🧵🧵", " ", "a ", " a", "a\n", `${long}1`, `${long}2`],
  ];
  await using pod = await Pod.start({ sidecar, env: { ...NO_CHECKPOINTS, MAX_RUNS: "100" } });
  const said = async (id: string): Promise<Turn | undefined> => {
    const response = await pod.begin(id, `of ${JSON.stringify(id)}`);
    // An id that is refused is refused, and not saved as another.
    if (response.status === 400) return undefined;
    return turnOf(response);
  };
  const taken: string[] = [];
  for (let from = 0; from < ids.length; from += 6) {
    const some = ids.slice(from, from + 6);
    for (const [index, turn] of (await Promise.all(some.map(said))).entries()) {
      if (!turn) continue;
      expect(turn.settled?.saved).toBe(true);
      taken.push(some[index] ?? "");
    }
  }
  expect(taken.length).toBeGreaterThanOrEqual(ids.length - 2);
  await using next = await Pod.start({ sidecar, env: NO_CHECKPOINTS });
  for (let from = 0; from < taken.length; from += 6) {
    const some = taken.slice(from, from + 6);
    const turns = await Promise.all(some.map((id) => next.turn(id, "again")));
    expect(turns.map(({ heard }) => heard)).toEqual(some.map((id) => [`of ${JSON.stringify(id)}`, "again"]));
  }
  expect((await readdir(home)).filter((name) => name !== "skills")).toEqual(["dispatchd-sessions"]);
  const store = join(home, "dispatchd-sessions");
  const command = (...args: string[]) => Bun.spawnSync([BINARY, "sessions", ...args, "--store", store, "--json"]);
  const listed = command("ls").stdout.toString().trim().split("\n");
  expect(listed.map((line) => JSON.parse(line).thread).sort()).toEqual([...taken].sort());
  expect(command("verify").exitCode).toBe(0);
  const shape = /^[0-9a-f]{2}\/[0-9a-f]{2}\/[0-9a-f]{40}\/[0-9a-z-]+$/;
  for (const path of await filesBelow(store)) expect(path.slice(store.length + 1)).toMatch(shape);
}, 30_000);

test("with keys nothing can be read in the store, and the next pod with the keys reads it all", async () => {
  await using own = await volume();
  const secret = randomBytes(24).toString("hex");
  const keys = { SESSION_KEYS: `k1:${key()}` };
  const tell = async (env: Record<string, string>, thread: string): Promise<string> => {
    await using pod = await Pod.start({ sidecar: own.sidecar, env: { ...NO_CHECKPOINTS, ...env } });
    await pod.turn(thread, secret);
    const contents = await Promise.all((await filesBelow(own.store)).map((path) => readFile(path, "latin1")));
    return contents.join("\n") + (await readdir(own.store, { recursive: true })).join("\n");
  };
  const sealed = await tell(keys, "the thread's name");
  expect(sealed).not.toContain(secret);
  expect(sealed).not.toContain("the thread's name");
  expect(sealed).not.toContain(".jsonl");
  expect(sealed).not.toContain(new Bun.CryptoHasher("sha256").update("the thread's name").digest("hex").slice(0, 40));
  expect((await elsewhere(own, "the thread's name", keys)).heard).toEqual([secret, "elsewhere"]);
  // A new key in front: what the old one sealed is read, and goes on.
  const rotated = { SESSION_KEYS: `k2:${key()},${keys.SESSION_KEYS}` };
  expect((await elsewhere(own, "the thread's name", rotated)).heard).toEqual([secret, "elsewhere", "elsewhere"]);
  expect((await elsewhere(own, "the thread's name", rotated)).heard.length).toBe(4);
  // Without the keys there is no such thread.
  expect((await elsewhere(own, "the thread's name")).heard).toEqual(["elsewhere"]);
  // The test can fail: unsealed, all of it is there.
  expect(await tell({}, "another name")).toContain("another name");
}, 20_000);

test("what an agent puts into the store is not believed, and said", async () => {
  await using own = await volume();
  const keys = { SESSION_KEYS: `k1:${key()}` };
  const spare = await mkdtemp(join(tmpdir(), "spare-"));
  const before = new Set<string>();
  /** A turn in a pod of its own; the files that it made. */
  const turn = async (thread: string, line: string): Promise<{ made: string[]; generation: string | undefined }> => {
    await using pod = await Pod.start({ sidecar: own.sidecar, env: { ...NO_CHECKPOINTS, ...keys } });
    const { settled } = await pod.turn(thread, line);
    const made = (await filesBelow(own.store)).filter((path) => !before.has(path));
    for (const path of made) before.add(path);
    return { made, generation: settled?.generation };
  };
  const [older] = (await turn("mine", "one")).made;
  const [newer] = (await turn("mine", "two")).made;
  const [foreign] = (await turn("foreign", "of another thread")).made;
  if (!older || !newer || !foreign) throw new Error("no saves");
  const folder = dirname(newer);
  const raised = (name: string): string => name.replace(/^\d{16}-\d{8}/, "0000000000000000-00000077");

  // Another thread's save, put in this one's place under a name above all; a save of its own under another name; what
  // somebody made up; a name alone.
  const made77 = raised(basename(newer));
  for (const [content, reason] of [
    [await readFile(foreign), "sealed for another place or with another key"],
    [await readFile(newer), "sealed for another place or with another key"],
    [Buffer.from('{"v":1}\nmade up'), "no save"],
    [Buffer.alloc(0), "no save"],
  ] as const) {
    await cp(own.store, join(spare, "store"), { recursive: true });
    await writeFile(join(folder, made77), content);
    const found = await elsewhere(own, "mine", keys);
    expect(found.heard).toEqual(["one", "two", "elsewhere"]);
    expect(found.preparation).toMatchObject({ session: "stale-session", reason: expect.stringContaining("not whole") });
    expect(found.rejected).toContainEqual({ name: made77, reason });
    // The thread has got past it.
    const after = await elsewhere(own, "mine", keys);
    expect(after.heard).toEqual(["one", "two", "elsewhere", "elsewhere"]);
    expect(after.preparation).toMatchObject({ session: "restored" });
    await rm(own.store, { recursive: true });
    await rename(join(spare, "store"), own.store);
  }

  // In the very place of the newest one.
  await writeFile(newer, await readFile(foreign));
  const replaced = await elsewhere(own, "mine", keys);
  expect(replaced.heard).toEqual(["one", "elsewhere"]);
  expect(replaced.preparation?.session).toBe("stale-session");
  await rm(folder, { recursive: true });

  // An older state put back: only who knows of the newer one can tell.
  await turn("rolled back", "one");
  const third = await turn("rolled back", "two");
  for (const path of third.made) await rm(path);
  const rolled = await elsewhere(own, "rolled back", keys, { sessionGeneration: third.generation });
  expect(rolled.heard).toEqual(["one", "elsewhere"]);
  expect(rolled.preparation).toMatchObject({ session: "stale-session", reason: expect.any(String) });
  await rm(spare, { recursive: true });
}, 40_000);

test("a name above all names, made up: runs go on from what is whole, and the thread is saved again", async () => {
  await using own = await volume();
  await elsewhere(own, "t");
  const [save] = await filesBelow(own.store);
  if (!save) throw new Error("no save");
  const lines = ["elsewhere"];
  for (const name of [
    "9999999999999999-99999999-zzzzzzzzzzzzzzzz-999999-s",
    "9999999999999999-99999999-zzzzzzzzzzzzzzzz-999999-b",
    "9007199254740991-00000001-zzzzzzzzzzzzzzzz-999999-s",
  ]) {
    await writeFile(join(dirname(save), name), "made up");
    for (let runs = 0; runs < 2; runs++) {
      lines.push("elsewhere");
      const turn = await elsewhere(own, "t");
      expect(turn.heard).toEqual(lines);
      expect(turn.settled?.saved).toBe(true);
    }
    await rm(join(dirname(save), name));
  }
}, 20_000);

for (const [what, errno] of [
  ["read-only", "EROFS"],
  ["full", "ENOSPC"],
] as const) {
  needsMount(`a store that is ${what} is read, and costs the save alone, with its reason`, async () => {
    await using pod = await Pod.start();
    {
      await using other = await Pod.start({ mount: { backing: pod.home.backing } });
      await other.turn("t", "one");
    }
    const writing = { ops: ["create", "write", "mkdir", "unlink", "rename"], errno } as const;
    if (errno === "ENOSPC") await pod.home.space(0);
    else await pod.home.fail({ ...writing, ops: [...writing.ops] });
    const turn = await pod.turn("t", "two");
    expect(turn.preparation).toMatchObject({ home: "ready", session: "restored" });
    expect(turn.outcome?.type).toBe("finished");
    expect(turn.settled).toMatchObject({ saved: false, reason: expect.stringContaining(errno) });
    await pod.home.heal();
    await pod.home.space(null);
    const next = await pod.turn("t", "three");
    expect(next.heard).toEqual(["one", "two", "three"]);
    expect(next.preparation).toMatchObject({ session: "local" });
    expect(next.settled?.saved).toBe(true);
    await using last = await Pod.start({ mount: { backing: pod.home.backing } });
    expect((await last.turn("t", "four")).heard).toEqual(["one", "two", "three", "four"]);
  });
}

test("a skill goes from the agent of one pod to that of another, also when it changes; both versions are kept", async () => {
  await using own = await volume();
  await using one = await Pod.start({ sidecar: own.sidecar, env: LONG_BUDGETS });
  await using other = await Pod.start({ sidecar: own.sidecar, env: LONG_BUDGETS });
  const skill = "$HOME/.claude/skills/weaving";
  const write = (text: string): Step => ({ sh: `mkdir -p ${skill}; echo '${text}' > ${skill}/SKILL.md`, wait: true });
  const seen = async (pod: Pod): Promise<Record<string, string>> => {
    const out = join(pod.daemon.folder, "seen");
    await pod.turn("looks", "look", { steps: [{ sh: `cp -rL $HOME/.claude/skills ${out}`, wait: true }] });
    const texts: Record<string, string> = {};
    for (const path of await filesBelow(out)) {
      if (basename(path) === "SKILL.md") texts[basename(dirname(path))] = (await readFile(path, "utf8")).trim();
    }
    await rm(out, { recursive: true });
    return texts;
  };
  await one.turn("t", "writes", { steps: [write("first")] });
  expect(await seen(other)).toEqual({ weaving: "first" });
  await other.turn("t2", "changes", { steps: [write("second, and longer")] });
  expect(await seen(one)).toEqual({ weaving: "second, and longer" });
  // Both change it before either knows of the other.
  const go = join(own.sidecar.appRoot, "go");
  const both = [one, other].map((pod, index) =>
    pod.turn(`both ${index}`, "changes", { steps: [write(`of pod ${index}`), { waitFor: go }] }),
  );
  const written = async (pod: Pod): Promise<boolean> =>
    (await readFile(join(pod.daemon.folder, ".claude/skills/weaving/SKILL.md"), "utf8")).startsWith("of pod");
  await eventually(async () => (await written(one)) && (await written(other)));
  await writeFile(go, "");
  await Promise.all(both);
  const texts = Object.values(await seen(other));
  expect(texts.sort()).toEqual(["of pod 0", "of pod 1"]);
  const told = [one, other].flatMap((pod) => pod.daemon.log).filter(({ event }) => event.includes("both sides"));
  expect(told.length).toBeGreaterThan(0);
  expect(Object.values(await seen(one)).sort()).toEqual(["of pod 0", "of pod 1"]);
}, 30_000);
