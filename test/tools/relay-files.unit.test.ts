/** What stands in the files of a relay directory, and what is signed. */
import { describe, expect, test } from "bun:test";
import type { RelayAnswer } from "../../src/tools/port.ts";
import { bytesToSign, formatAnswer, parseAnswer } from "../../src/tools/relay/answer-file.ts";
import { createSigner, createVerifier, isPublicKey } from "../../src/tools/relay/keys.ts";
import { answeredBy, isOfProtocol, requestOf } from "../../src/tools/relay/names.ts";
import { parseRequest } from "../../src/tools/relay/request-file.ts";
import { nameOf, requestContent } from "../support/open-relay.ts";

const NAME = nameOf("a");
const ANSWERS: readonly RelayAnswer[] = [
  { type: "success", text: 'a "text"\n\u2028 and \ud83d\ude00' },
  { type: "success", text: "" },
  { type: "failure", error: "it did not work" },
  { type: "pause" },
];

describe("an answer", () => {
  test("comes back from its file as it was", () => {
    for (const answer of ANSWERS) {
      expect(parseAnswer(formatAnswer({ answer, signature: "s" }))).toEqual({ answer, signature: "s" });
    }
  });

  test("is one of three, and nothing that is two of them", () => {
    const none: unknown[] = [
      null,
      [],
      "text",
      {},
      { ok: true },
      { ok: "true", text: "" },
      { ok: 1, text: "" },
      { ok: true, text: 1 },
      { ok: true, error: "no" },
      { ok: false, text: "no" },
      { ok: false },
      { ok: false, paused: true },
      { ok: false, error: "no", paused: true },
      { ok: true, paused: false },
      { ok: true, paused: false, text: "done" },
      { ok: true, paused: "true" },
      { ok: true, paused: true, text: "done" },
      { ok: true, paused: null, text: "done" },
    ];
    for (const value of none) {
      const withSignature = typeof value === "object" && value !== null ? { ...value, signature: "s" } : value;
      expect([value, parseAnswer(JSON.stringify(withSignature))]).toEqual([value, undefined]);
    }
    expect(parseAnswer('{"ok":true,"text":"x"}')).toBeUndefined();
    expect(parseAnswer('{"ok":true,"text":"x","signature":1}')).toBeUndefined();
    expect(parseAnswer('{"ok":true,"text":"x","signa')).toBeUndefined();
    // A key of the prototype is none of the record's.
    expect(parseAnswer('{"__proto__":{"ok":true,"paused":true},"signature":"s"}')).toBeUndefined();
  });

  test("is signed over bytes that never change", () => {
    const text = (answer: RelayAnswer): string => new TextDecoder().decode(bytesToSign("run-1", NAME, answer));
    const head = `["dispatchd-relay-1","run-1","${NAME}",`;
    expect(text({ type: "success", text: 'a "b"\nä' })).toBe(`${head}"success","a \\"b\\"\\nä"]`);
    expect(text({ type: "failure", error: "no" })).toBe(`${head}"failure","no"]`);
    expect(text({ type: "pause" })).toBe(`${head}"pause",""]`);
  });

  test("verifies for its run, its request and its kind alone", async () => {
    const signer = await createSigner("run-1");
    const verify = await createVerifier("run-1", signer.publicKey);
    for (const answer of ANSWERS) expect(await verify(NAME, await signer.sign(NAME, answer))).toBe(true);

    const signed = await signer.sign(NAME, { type: "success", text: "" });
    expect(await verify(nameOf("b"), signed)).toBe(false);
    expect(await verify(NAME, { ...signed, answer: { type: "success", text: "more" } })).toBe(false);
    expect(await verify(NAME, { ...signed, answer: { type: "failure", error: "" } })).toBe(false);
    expect(await verify(NAME, { ...signed, answer: { type: "pause" } })).toBe(false);
    expect(await verify(NAME, { ...signed, signature: "" })).toBe(false);
    expect(await verify(NAME, { ...signed, signature: signed.signature.slice(2) })).toBe(false);
    expect(await (await createVerifier("run-2", signer.publicKey))(NAME, signed)).toBe(false);
    const stranger = await createSigner("run-1");
    expect(await verify(NAME, await stranger.sign(NAME, signed.answer))).toBe(false);
  });
});

test("a public key is base64url of 32 bytes", async () => {
  const { publicKey } = await createSigner("run-1");
  expect(isPublicKey(publicKey)).toBe(true);
  for (const text of ["", "abc", `${publicKey}A`, publicKey.slice(1), `${publicKey}=`, `${publicKey}\n`]) {
    expect(isPublicKey(text)).toBe(false);
    await expect(createVerifier("run-1", text)).rejects.toThrow("base64url");
  }
});

describe("a request", () => {
  const read = (overrides: object) => parseRequest(JSON.stringify(requestContent(overrides)));

  test("has a tool, an id, arguments and a process", () => {
    expect(read({ unknown: 1 })).toEqual(requestContent() as never);
    expect(read({ args: null })).toEqual(requestContent({ args: null }) as never);
    const misshapen = [
      ...[{ toolName: 1 }, { toolName: "x".repeat(1025) }, { toolCallId: undefined }, { toolCallId: null }],
      ...[
        { args: undefined },
        { pid: 0 },
        { pid: -1 },
        { pid: 1.5 },
        { pid: "1" },
        { pid: 2 ** 31 },
        { pid: undefined },
      ],
    ];
    for (const overrides of misshapen) expect([overrides, read(overrides)]).toEqual([overrides, "misshapen"]);
    for (const text of ["null", "[]", "1", '"{}"']) expect(parseRequest(text)).toBe("misshapen");
  });

  test("that is no JSON may not be all there yet", () => {
    const text = JSON.stringify(requestContent());
    for (let end = 0; end < text.length; end++) expect(parseRequest(text.slice(0, end))).toBe("unfinished");
  });

  test("keeps a key like __proto__ as any other", () => {
    const text = '{"toolName":"t","toolCallId":"c","pid":1,"args":{"__proto__":{"x":1}}}';
    const request = parseRequest(text);
    if (typeof request === "string") throw new Error(request);
    expect(JSON.stringify(request.args)).toBe('{"__proto__":{"x":1}}');
    expect(({} as { x?: unknown }).x).toBeUndefined();
    expect(parseRequest('{"__proto__":{"toolName":"t","toolCallId":"c","pid":1,"args":{}}}')).toBe("misshapen");
  });

  test("is not deep, so that nobody who goes through it falls off", () => {
    const nested = (depth: number): unknown => JSON.parse(`${"[".repeat(depth)}${"]".repeat(depth)}`);
    expect(read({ args: nested(150) })).not.toBe("misshapen");
    expect(read({ args: nested(250) })).toBe("misshapen");
    expect(read({ args: '[{"'.repeat(300) })).not.toBe("misshapen");
    expect(parseRequest("[".repeat(500_000))).toBe("misshapen");
  });
});

test("names of the protocol", () => {
  expect(requestOf(`${NAME}.req.json`)).toBe(NAME);
  expect(answeredBy(`${NAME}.res.json`)).toBe(NAME);
  for (const file of [
    `${NAME}.res.json`,
    `${NAME}.req.jsonx`,
    `x${NAME}.req.json`,
    `${NAME}.req.json\n`,
    "A.req.json",
  ]) {
    expect(requestOf(file)).toBeUndefined();
  }
  for (const file of [`${NAME}.req.json`, `${NAME}.res.json`, ".x.tmp", "tools.json"])
    expect(isOfProtocol(file)).toBe(true);
  for (const file of ["notes.txt", "x.tmp", `${NAME}.json`]) expect(isOfProtocol(file)).toBe(false);
});
