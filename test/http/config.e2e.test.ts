import { afterAll, beforeAll, expect, test } from "bun:test";
import { createHmac } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { TestDaemon } from "../support/daemon.ts";
import { OPEN } from "../support/scripted-harness.ts";

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await TestDaemon.start({ env: { RUN_ENV_ALLOW: "PATH,HOME,HARNESS_*,LAYER", LAYER: "of the pod" } });
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

const configure = (update: unknown): Promise<Response> =>
  daemon.fetch("/config", { method: "POST", body: JSON.stringify(update) });

/** The environment that a run's harness sees. */
async function environmentOf(runId: string, env: Record<string, string> = {}): Promise<Record<string, string>> {
  const file = daemon.path(`env of ${runId}`);
  await daemon.run({ runId, steps: [{ touch: file, env: true }], input: { env } });
  return JSON.parse(await readFile(file, "utf8")) as Record<string, string>;
}

test("variables are for later runs, replaced as a whole, below input.env and above the pod's", async () => {
  expect((await environmentOf("e0")).LAYER).toBe("of the pod");
  expect((await configure({ env: { LAYER: "of the control plane", ONE: "1" } })).status).toBe(204);
  expect(await environmentOf("e1")).toMatchObject({ LAYER: "of the control plane", ONE: "1" });
  expect(await environmentOf("e2", { LAYER: "of the run" })).toMatchObject({ LAYER: "of the run", ONE: "1" });
  expect((await configure({ env: { TWO: "2" } })).status).toBe(204);
  const replaced = await environmentOf("e3");
  expect(replaced).toMatchObject({ LAYER: "of the pod", TWO: "2" });
  expect(replaced.ONE).toBeUndefined();
  expect((await configure({})).status).toBe(204);
  expect((await environmentOf("e4")).TWO).toBe("2");
  expect((await configure({ env: {} })).status).toBe(204);
  expect((await environmentOf("e5")).TWO).toBeUndefined();
});

test("variables do not reach a run that has started already", async () => {
  const [go, file] = [daemon.path("go on"), daemon.path("late")];
  const running = daemon.run({ runId: "early", steps: [OPEN, { waitFor: go }, { touch: file, env: true }] });
  await daemon.event("harness started", 0, ({ run }) => run === "early");
  await configure({ env: { LATE: "1" } });
  await writeFile(go, "");
  await running;
  expect((JSON.parse(await readFile(file, "utf8")) as Record<string, string>).LATE).toBeUndefined();
});

test("names of ours reach no harness, wherever they come from", async () => {
  const names = ["BUN_OPTIONS", "BUN_BE_BUN", "DAEMON_TOKEN", "SUSPENSION_KEYS", "SESSION_KEYS"];
  const given = Object.fromEntries(names.map((name) => [name, "x"]));
  expect((await configure({ env: given })).status).toBe(204);
  const seen = await environmentOf("names", given);
  expect(names.filter((name) => name in seen)).toEqual([]);
  expect(seen).toMatchObject({ DISPATCHD_RUN_ID: "names", DISPATCHD_ATTEMPT: "1" });
  expect((await environmentOf("ours", { DISPATCHD_RUN_ID: "forged" })).DISPATCHD_RUN_ID).toBe("ours");
});

test("what cannot be set is refused as a whole, by name", async () => {
  await configure({ env: { KEPT: "1" } });
  for (const [update, detail] of [
    [{ env: { KEPT: "2", "A B": "x" } }, "env.A B: is no name"],
    [{ env: { A: "x\u0000" } }, "env.A: must not contain NUL"],
    [{ env: { A: 1 } }, "env.A: "],
    [{ env: [] }, "env: "],
    [{ token: "" }, "token: must be printable"],
    [{ token: "a b" }, "token: must be printable"],
    [{ token: "é" }, "token: must be printable"],
    [{ token: "new", env: { A: 1 } }, "env.A: "],
    [{ tokens: "new" }, "tokens"],
    [{ suspensionKeys: "" }, "suspensionKeys: has no key in it"],
    [{ suspensionKeys: "one:too-short" }, "suspensionKeys: key 1 is not kid:base64url of 32 bytes"],
    [{ token: "new", suspensionKeys: 5 }, "suspensionKeys: "],
    [null, ""],
  ] as const) {
    const response = await configure(update);
    const { error, detail: said } = (await response.json()) as { error: string; detail: string };
    expect([update, response.status, error]).toEqual([update, 400, "bad_input"]);
    expect(said).toContain(detail);
  }
  expect((await fetch(`${daemon.url}/runs`, { headers: { authorization: "Bearer new" } })).status).toBe(401);
  expect((await environmentOf("kept")).KEPT).toBe("1");
});

test("a new token counts at once, the old one for a while; a restart returns to the configured ones", async () => {
  const statusWith = async (token: string): Promise<number> =>
    (await fetch(`${daemon.url}/runs`, { headers: { authorization: `Bearer ${token}` } })).status;
  const proofOf = (token: string, bootId: string): string =>
    createHmac("sha256", token).update(`${bootId}\na nonce`).digest("hex");
  const health = async (): Promise<{ bootId: string; proof: string }> =>
    (await (await fetch(`${daemon.url}/health?nonce=a%20nonce`)).json()) as { bootId: string; proof: string };

  const before = await health();
  expect(before.proof).toBe(proofOf(daemon.token, before.bootId));
  expect((await configure({ token: "rotated", env: { AFTER: "1" } })).status).toBe(204);
  expect(await Promise.all([daemon.token, "rotated", "other"].map(statusWith))).toEqual([200, 200, 401]);
  expect((await health()).proof).toBe(proofOf("rotated", before.bootId));
  expect(JSON.stringify(daemon.log)).not.toContain("rotated");

  expect(await daemon.stop()).toBe(0);
  await daemon.launch();
  const after = await health();
  expect(after.bootId).not.toBe(before.bootId);
  expect(after.proof).toBe(proofOf(daemon.token, after.bootId));
  expect(await Promise.all([daemon.token, "rotated"].map(statusWith))).toEqual([200, 401]);
  expect((await environmentOf("restarted")).AFTER).toBeUndefined();
});

test("a nonce is at most 256 characters", async () => {
  expect((await fetch(`${daemon.url}/health?nonce=${"x".repeat(256)}`)).status).toBe(200);
  expect((await fetch(`${daemon.url}/health?nonce=${"x".repeat(257)}`)).status).toBe(400);
});
