/** The routes that do not stream. */
import { afterEach, describe, expect, test } from "bun:test";
import { createHmac } from "node:crypto";
import {
  createClient,
  ProofError,
  ProtocolError,
  RefusedError,
  UnreachableError,
  verifyHealthProof,
} from "../../src/client/index.ts";
import { type FakeDaemon, startFakeDaemon, until } from "../support/fake-daemon.ts";

const open: FakeDaemon[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((daemon) => daemon.stop()));
});

async function start(token = "a-token-of-this-test") {
  const daemon = await startFakeDaemon({ token, turn: (attempt) => attempt.whole("a") });
  open.push(daemon);
  return { daemon, client: createClient({ url: daemon.url, token }) };
}

const input = { threadId: "thread", userMessage: "hello" };

describe("health", () => {
  test("with a nonce is believed when it is signed with the token", async () => {
    const { client } = await start();
    expect(await client.health({ nonce: "n & m" })).toMatchObject({ bootId: "boot-1", draining: false });
  });

  test("of a stranger on the port is not, and the stranger is not given the token", async () => {
    const { daemon } = await start("the token of somebody else");
    const client = createClient({ url: daemon.url, token: "ours" });
    await expect(client.health({ nonce: "n" })).rejects.toBeInstanceOf(ProofError);
    expect(daemon.requests[0]?.headers.authorization).toBeUndefined();
    daemon.faults.push({ type: "answer", status: 200, body: '{"bootId":"b"}' });
    await expect(client.health({ nonce: "n" })).rejects.toBeInstanceOf(ProofError);
  });

  test("verifies what it should and nothing else", async () => {
    const proof = createHmac("sha256", "token").update("boot\nnonce").digest("hex");
    const good = { token: "token", bootId: "boot", nonce: "nonce", proof };
    expect(await verifyHealthProof(good)).toBe(true);
    expect(await verifyHealthProof({ ...good, proof: proof.toUpperCase() })).toBe(true);
    for (const bad of [{ token: "tokeN" }, { bootId: "boo" }, { nonce: "" }, { proof: "" }, { proof: `${proof}00` }]) {
      expect(await verifyHealthProof({ ...good, ...bad })).toBe(false);
    }
    expect(await verifyHealthProof({ ...good, proof: proof.replace(/.$/, (c) => (c === "0" ? "1" : "0")) })).toBe(
      false,
    );
  });
});

describe("runs", () => {
  test("are listed, looked at and cancelled, under any id", async () => {
    const { daemon, client } = await start();
    const runId = "a/b?c#d%2e é";
    await client.dispatch({ runId, input }).result();
    expect(await client.runs()).toMatchObject([{ runId, state: "ended", attempt: 1, lastSeq: 4 }]);
    expect(await client.run(runId)).toMatchObject({ runId, outcome: { type: "finished" } });
    const frames = [];
    for await (const frame of client.attach(runId).frames()) frames.push(frame.seq);
    expect(frames).toEqual([1, 2, 3, 4]);
    await client.cancel(runId, { wait: true });
    expect(daemon.requests.at(-1)).toMatchObject({ method: "DELETE" });
    expect(daemon.requests.at(-1)?.query.get("wait")).toBe("1");
    expect([...daemon.tombstones]).toEqual([runId]);
  });

  test("of an id that no URL can name are refused here", async () => {
    const { daemon, client } = await start();
    for (const runId of ["", ".", ".."]) {
      expect(() => client.dispatch({ runId, input })).toThrow(TypeError);
      expect(() => client.attach(runId)).toThrow(TypeError);
      await expect(client.cancel(runId)).rejects.toBeInstanceOf(TypeError);
      await expect(client.run(runId)).rejects.toBeInstanceOf(TypeError);
    }
    expect(daemon.requests).toEqual([]);
  });

  test("that are unknown are a RefusedError", async () => {
    const { client } = await start();
    await expect(client.run("r")).rejects.toMatchObject({ name: "RefusedError", status: 404, code: "unknown_run" });
  });
});

describe("the rest", () => {
  test("idle and metrics", async () => {
    const { client } = await start();
    expect(await client.idle()).toEqual({ idleSince: "2026-01-02T03:04:05.000Z", idleMs: 1234 });
    expect(await client.metrics()).toBe("dispatchd_runs 1\n");
  });

  test("a new token is used from then on", async () => {
    const { client } = await start();
    await client.setConfig({ token: "another-token", env: { A: "b" } });
    expect(await client.runs()).toEqual([]);
  });

  test("a token that is a function is asked for every request", async () => {
    const { daemon } = await start();
    const tokens = ["wrong", daemon.token];
    const client = createClient({ url: daemon.url, token: async () => tokens.shift() ?? "" });
    await expect(client.runs()).rejects.toBeInstanceOf(RefusedError);
    expect(await client.runs()).toEqual([]);
  });

  test("a url with a path keeps it, with and without a slash", async () => {
    const { daemon } = await start();
    for (const path of ["/_sandbox", "/_sandbox/"]) {
      await expect(createClient({ url: `${daemon.url}${path}`, token: daemon.token }).idle()).rejects.toThrow(
        "not_found",
      );
      expect(daemon.requests.at(-1)?.path).toBe("/_sandbox/idle");
    }
  });

  test("headers of the caller go along", async () => {
    const { daemon, client } = await start();
    const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    await client.dispatch({ input, headers: { traceparent } }).result();
    expect(daemon.requests[0]?.headers).toMatchObject({ traceparent, "content-type": "application/json" });
  });

  test("no answer in time and nobody there are an UnreachableError that does not name the token", async () => {
    const { daemon } = await start();
    const client = createClient({ url: daemon.url, token: daemon.token, requestMs: 50 });
    daemon.faults.push({ type: "mute", bytes: 20 });
    await expect(client.runs()).rejects.toThrow("no answer within 50 ms");
    await until(() => daemon.requests.length === 1);
    await daemon.stop();
    const error = await client.runs().catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(UnreachableError);
    expect(Bun.inspect(error)).not.toContain(daemon.token);
    await daemon.listen();
  });

  test("a token with a newline at its end is the same token, one within it is not shown", async () => {
    const { daemon } = await start();
    const client = createClient({ url: daemon.url, token: `${daemon.token}\n` });
    expect(await client.runs()).toEqual([]);
    expect(await client.health({ nonce: "n" })).toMatchObject({ bootId: "boot-1" });
    const broken = createClient({ url: daemon.url, token: "half-a\nsecret", connectForMs: 0 });
    const error = await broken.runs().catch((thrown: unknown) => thrown);
    const result = await broken.dispatch({ input }).result();
    for (const shown of [Bun.inspect(error), Bun.inspect(result)]) expect(shown).not.toMatch(/half-a|secret/);
  });

  test("an answer that is none is a ProtocolError", async () => {
    const { daemon, client } = await start();
    daemon.faults.push({ type: "answer", status: 200, body: "<html>" }, { type: "answer", status: 200, body: "{}" });
    await expect(client.idle()).rejects.toBeInstanceOf(ProtocolError);
    await expect(client.runs()).rejects.toBeInstanceOf(ProtocolError);
  });
});
