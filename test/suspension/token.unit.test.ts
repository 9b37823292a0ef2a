/** What a token is made of: nobody without a key makes one, and none is read by a daemon of the other kind. */
import { describe, expect, test } from "bun:test";
import { createHmac, hkdfSync } from "node:crypto";
import { issueSuspension } from "../../src/suspension/issue.ts";
import { holdSuspensionKeys } from "../../src/suspension/key-holder.ts";
import { MAX_INPUTS_BYTES, MAX_TOKEN_BYTES, type SuspensionState } from "../../src/suspension/port.ts";
import { signToken, unsignedToken } from "../../src/suspension/token.ts";
import { ANSWERS, expectValid, INTERRUPTS, issue, KEY, keyOf, NOW, STATE, TTL_MS, verify } from "./asked.ts";

const HEADER = { alg: "HS256", typ: "dispatchd-suspension+jwt", kid: "one" };
const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

function base64url(value: unknown): string {
  return Buffer.from(typeof value === "string" ? value : JSON.stringify(value)).toString("base64url");
}

/** Written down here once more, so that it is not what the code says it is. */
function derivedKey(organization: string | undefined): Buffer {
  const info = `dispatchd suspension key\0${organization === undefined ? "" : `organization\0${organization}`}`;
  return Buffer.from(hkdfSync("sha256", Buffer.alloc(32, 1), "", info, 32));
}

function signWith(key: Uint8Array, header: unknown, payload: string, hash = "sha256"): string {
  const text = `${base64url(header)}.${payload}`;
  return `${text}.${createHmac(hash, key).update(text).digest("base64url")}`;
}

function partsOf(token: string): [header: string, payload: string, signature: string] {
  const [header = "", payload = "", signature = ""] = token.split(".");
  return [header, payload, signature];
}

function claimsIn(token: string): Record<string, unknown> {
  return JSON.parse(Buffer.from(partsOf(token)[1], "base64url").toString());
}

describe("signed", () => {
  test("it is a JWS that anybody with the key can check, under a derived key", async () => {
    const { token } = await issue();
    const [header, payload] = partsOf(token);
    expect(JSON.parse(Buffer.from(header, "base64url").toString())).toEqual(HEADER);
    expect(token).toBe(signWith(derivedKey("acme"), HEADER, payload));
    expect(claimsIn(token)).toMatchObject({
      v: 1,
      aud: "dispatchd",
      iat: 1767323045,
      exp: 1767326646,
      threadId: "thread-1",
    });
  });

  test("the listed key itself signs nothing, nor does another organization's", async () => {
    const [header, payload] = partsOf((await issue()).token);
    const forged = [Buffer.alloc(32, 1), derivedKey(undefined), derivedKey("evil"), derivedKey("")];
    for (const key of forged) {
      const result = await verify(signWith(key, JSON.parse(Buffer.from(header, "base64url").toString()), payload));
      expect(result).toMatchObject({ type: "stale", dead: true });
    }
  });

  test("what an organization's key signed is good for no other, whatever the claims say", async () => {
    const evil = { ...claimsIn((await issue()).token), organizationId: "evil" };
    const token = await signToken(JSON.stringify(evil), KEY, "acme");
    for (const organizationId of ["acme", "evil", undefined]) {
      expect(await verify(token, { organizationId })).toMatchObject({ type: "stale", dead: true });
    }
  });

  test("an empty name is an organization", async () => {
    const { token } = await issue({ ...STATE, organizationId: "" });
    expectValid(await verify(token, { organizationId: "" }));
    expect(token).toBe(signWith(derivedKey(""), HEADER, partsOf(token)[1]));
    expect((await verify(token, { organizationId: undefined })).type).toBe("stale");
  });
});

describe("a header of somebody else's", () => {
  const headers: Readonly<Record<string, [header: unknown, reason: RegExp]>> = {
    "alg none": [{ ...HEADER, alg: "none" }, /algorithm/],
    "alg None": [{ ...HEADER, alg: "None" }, /algorithm/],
    "alg HS512": [{ ...HEADER, alg: "HS512" }, /algorithm/],
    "alg RS256": [{ ...HEADER, alg: "RS256" }, /algorithm/],
    "no alg": [{ typ: HEADER.typ, kid: "one" }, /algorithm/],
    "another typ": [{ ...HEADER, typ: "JWT" }, /type/],
    "no typ": [{ alg: "HS256", kid: "one" }, /type/],
    "another kid": [{ ...HEADER, kid: "two" }, /not listed/],
    "no kid": [{ alg: "HS256", typ: HEADER.typ }, /not listed/],
    "a kid that every object has": [{ ...HEADER, kid: "__proto__" }, /not listed/],
    "a kid that is no text": [{ ...HEADER, kid: ["one"] }, /not listed/],
    "a key of its own": [{ ...HEADER, jwk: { kty: "oct", k: "AA" } }, /no header/],
    "crit and b64": [{ ...HEADER, b64: false, crit: ["b64"] }, /no header/],
    "a list": [[HEADER], /no header/],
    null: [null, /no header/],
    "no JSON": ["{", /no header/],
    "a kilobyte": [{ ...HEADER, kid: "k".repeat(1024) }, /no header/],
  };
  test.each(Object.entries(headers))("%s is dead, signed or not", async (_name, [header, reason]) => {
    const { token } = await issue();
    const [, payload, signature] = partsOf(token);
    const signed = signWith(derivedKey("acme"), header, payload);
    const sha512 = signWith(derivedKey("acme"), header, payload, "sha512");
    const unsigned = `${base64url(header)}.${payload}.`;
    for (const forged of [signed, sha512, unsigned, `${base64url(header)}.${payload}.${signature}`]) {
      const result = await verify(forged);
      expect(result).toMatchObject({ type: "stale", dead: true });
      if (result.type === "stale") expect(result.reason).toMatch(reason);
    }
  });
});

describe("claims that nobody of us would sign", () => {
  type Claims = Record<string, unknown>;
  const [I1] = INTERRUPTS;
  const changes: Readonly<Record<string, [change: (claims: Claims) => unknown, reason: RegExp]>> = {
    "no expiry": [({ exp: _exp, ...rest }) => rest, /has no expiry/],
    "an expiry of null": [(claims) => ({ ...claims, exp: null }), /no whole seconds/],
    "an expiry as text": [(claims) => ({ ...claims, exp: "9999999999" }), /no whole seconds/],
    "an expiry beyond all dates": [(claims) => ({ ...claims, exp: 1e15 }), /no whole seconds/],
    "no time of issue": [({ iat: _iat, ...rest }) => rest, /no whole seconds/],
    "a list of audiences": [(claims) => ({ ...claims, aud: ["dispatchd"] }), /lacks something/],
    "no thread": [({ threadId: _thread, ...rest }) => rest, /lacks something/],
    "no id": [({ jti: _jti, ...rest }) => rest, /no id of ours/],
    "an id of another kind": [(claims) => ({ ...claims, jti: "../../lock" }), /no id of ours/],
    "another version": [(claims) => ({ ...claims, v: 2 }), /another version/],
    "no interrupt": [(claims) => ({ ...claims, interrupts: [] }), /lacks something/],
    "an interrupt without input": [
      (claims) => ({ ...claims, interrupts: [{ ...I1, input: undefined }] }),
      /lacks something/,
    ],
    "an interrupt twice": [(claims) => ({ ...claims, interrupts: [I1, I1] }), /the same id/],
    "an interrupt of null": [(claims) => ({ ...claims, interrupts: [null] }), /lacks something/],
    "subagents of another kind": [(claims) => ({ ...claims, subagents: ["x"] }), /lacks something/],
    "a mode that is no text": [(claims) => ({ ...claims, mode: 1 }), /lacks something/],
    "a list": [(claims) => [claims], /no JSON object/],
    null: [() => null, /no JSON object/],
  };
  test.each(Object.entries(changes))("%s", async (_name, [change, reason]) => {
    const claims = JSON.stringify(change(claimsIn((await issue()).token)));
    const unsigned = await verify(unsignedToken(claims), {}, { keys: [] });
    for (const result of [await verify(await signToken(claims, KEY, "acme")), unsigned]) {
      expect(result).toMatchObject({ type: "stale", interruptId: "i1", dead: true });
      if (result.type === "stale") expect(result.reason).toMatch(reason);
    }
  });

  test.each([
    ["no JSON", () => "{"],
    ["nothing", () => ""],
    ["bytes that are no UTF-8", (claims: string) => Buffer.from(claims.replace('"old"', '"\u00ff"'), "latin1")],
    ["513 levels", (claims: string) => claims.replace('"old"', `${"[".repeat(509)}${"]".repeat(509)}`)],
    ["90,000 levels", (claims: string) => claims.replace('"old"', `${"[".repeat(90_000)}${"]".repeat(90_000)}`)],
    ["half a character", (claims: string) => claims.replace('"old"', '"\\ud800"')],
  ])("%s", async (_name, change) => {
    const claims = JSON.stringify(claimsIn((await issue()).token));
    const payload = Buffer.from(change(claims)).toString("base64url");
    // Without the change it is good.
    expectValid(await verify(signWith(derivedKey("acme"), HEADER, base64url(claims))));
    const [signed, unsigned] = [signWith(derivedKey("acme"), HEADER, payload), `unsigned.${payload}`];
    expect(unsigned.length).toBeLessThan(MAX_TOKEN_BYTES);
    expect(await verify(signed)).toMatchObject({ type: "stale", dead: true });
    expect(await verify(unsigned, {}, { keys: [] })).toMatchObject({ type: "stale", dead: true });
  });
});

describe("no downgrade", () => {
  test("a daemon with a key reads no unsigned suspension, whatever it says", async () => {
    const { token, id } = await issue(STATE, []);
    expect(token).toStartWith("unsigned.");
    expect(await verify(token)).toEqual({
      type: "stale",
      interruptId: "i1",
      suspensionId: id,
      reason: "the suspension is not signed, and this daemon has keys",
      dead: true,
    });
  });

  test("a daemon without a key reads its own form and no other", async () => {
    const { token } = await issue(STATE, []);
    expect(expectValid(await verify(token, {}, { keys: [] }))).toMatchObject({ signedBy: null, suspension: STATE });
    const signed = (await issue()).token;
    const [, payload] = partsOf(signed);
    const none = `${base64url({ alg: "none" })}.${payload}.`;
    for (const other of [signed, none, `${none}x`, payload, `Unsigned.${payload}`]) {
      expect(await verify(other, {}, { keys: [] })).toMatchObject({ type: "stale", dead: true });
    }
  });

  test("without a key everything but the signature is checked all the same", async () => {
    const { token } = await issue(STATE, []);
    const changes = [
      { threadId: "other" },
      { organizationId: "evil" },
      { audience: "other" },
      { tools: [] },
      { answers: [] },
    ];
    for (const change of changes) expect((await verify(token, change, { keys: [] })).type).toBe("stale");
    expect((await verify(token, {}, { keys: [], now: NOW + TTL_MS + 62_000 })).type).toBe("stale");
  });
});

describe("changed anywhere", () => {
  test("every character, to each of three others: never valid with other content", async () => {
    const { token } = await issue();
    const original = expectValid(await verify(token)).suspension;
    const spellings = new Set<string>();
    for (let at = 0; at < token.length; at++) {
      const here = ALPHABET.indexOf(token[at] ?? "");
      // The lowest bit of what it stands for, the highest, and something that is no base64url.
      for (const char of [ALPHABET[here ^ 1], ALPHABET[here ^ 32], "."]) {
        const changed = `${token.slice(0, at)}${char}${token.slice(at + 1)}`;
        if (changed === token) continue;
        const result = await verify(changed);
        if (result.type === "stale") expect(result.dead).toBe(true);
        else {
          spellings.add(changed);
          expect(result.suspension).toEqual(original);
        }
      }
    }
    // The last character of the signature has bits that stand for nothing; nothing else may be spelled otherwise.
    expect([...spellings].map((each) => each.slice(0, -1))).toEqual([...spellings].map(() => token.slice(0, -1)));
  });

  test("cut anywhere, or longer", async () => {
    const { token } = await issue();
    for (let length = 0; length < token.length; length++) {
      expect([length, await verify(token.slice(0, length))]).toMatchObject([length, { type: "stale", dead: true }]);
    }
    for (const more of ["A", ".", ".A", "AAAA"]) expect((await verify(token + more)).type).toBe("stale");
  });

  test("the parts of two tokens do not fit together", async () => {
    const [one, two] = [
      partsOf((await issue()).token),
      partsOf((await issue({ ...STATE, threadId: "thread-2" })).token),
    ];
    for (const mixed of [
      [one[0], two[1], one[2]],
      [two[0], one[1], two[2]],
    ]) {
      expect(await verify(mixed.join("."))).toMatchObject({ type: "stale", dead: true });
    }
  });
});

test("one token has many spellings that verify, all of one id: used once means the id", async () => {
  const { token, id } = await issue();
  const last = ALPHABET.indexOf(token.at(-1) ?? "");
  const spellings = [0, 1, 2, 3].map((bits) => token.slice(0, -1) + ALPHABET[(last & ~3) | bits]);
  expect(new Set(spellings).size).toBe(4);
  const results = await Promise.all(spellings.map((spelling) => verify(spelling)));
  expect(results.map((result) => expectValid(result).suspension.id)).toEqual([id, id, id, id]);
});

test("two suspensions of the same questions have two ids", async () => {
  const ids = await Promise.all(Array.from({ length: 100 }, async () => (await issue()).id));
  expect(new Set(ids).size).toBe(100);
});

describe("what can be asked", () => {
  const withInput = (input: unknown): SuspensionState => ({ ...STATE, interrupts: [{ ...INTERRUPTS[2], input }] });
  const asked = (state: SuspensionState) => issueSuspension(state, [KEY], NOW, TTL_MS);
  const [A3] = ANSWERS.slice(2);

  test("inputs of 64 KiB together, those of subagents too, and not a byte more", async () => {
    const size = MAX_INPUTS_BYTES - Buffer.byteLength('""{"prompt":"look around"}');
    const issued = await asked(withInput("ä".repeat(size / 2)));
    if (issued.type !== "issued") throw new Error(issued.reason);
    expect(issued.token.length).toBeLessThan(MAX_TOKEN_BYTES);
    expectValid(await verify(issued.token, { answers: A3 ? [A3] : [] }));
    expect(await asked(withInput(`${"ä".repeat(size / 2)}x`))).toEqual({
      type: "refused",
      code: "inputs_too_large",
      reason: "what is to be asked is larger than 65536 bytes",
    });
  });

  test("a token of 256 KiB and no more", async () => {
    const [interrupt] = INTERRUPTS;
    expect(await asked({ ...STATE, interrupts: [{ ...interrupt, toolCallId: "x".repeat(200_000) }] })).toMatchObject({
      type: "refused",
      code: "token_too_large",
    });
  });

  test.each([
    ["half a character", "\ud800"],
    ["half a character in a key", { "\udfff": 1 }],
    ["513 levels", JSON.parse(`${"[".repeat(513)}${"]".repeat(513)}`)],
  ])("%s is refused with words for it", async (_name, input) => {
    const result = await asked(withInput(input));
    expect(result).toMatchObject({ type: "refused", code: "not_json" });
    if (result.type === "refused") expect(result.reason).toMatch(/^what is to be asked (has half|is nested)/);
  });

  test("what nobody could resume is a fault", async () => {
    expect(asked({ ...STATE, interrupts: [] })).rejects.toThrow("an id of its own");
    expect(asked({ ...STATE, interrupts: [INTERRUPTS[0], INTERRUPTS[0]] })).rejects.toThrow("an id of its own");
  });
});

function listOf(id: string, byte: number): string {
  return `${id}:${keyOf(id, byte).key.reveal()}`;
}

test("keys that are sent are used from then on, and the old ones no more", async () => {
  const holder = holdSuspensionKeys([KEY]);
  const { token } = await issue(STATE, holder.current());
  holder.replace(listOf("two", 2));
  expect((await verify(token, {}, { keys: holder.current() })).type).toBe("stale");
  const newer = await issue(STATE, holder.current());
  expect(expectValid(await verify(newer.token, {}, { keys: holder.current() })).signedBy).toBe("two");
  holder.replace(`${listOf("three", 3)},${listOf("one", 1)}`);
  expectValid(await verify(token, {}, { keys: holder.current() }));
  // Never back to none.
  for (const list of ["", " , ", "one"]) expect(() => holder.replace(list)).toThrow("suspension keys: ");
  expect(holder.current()).toHaveLength(2);
});
