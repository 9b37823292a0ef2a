/** What is checked of a resume before anything is started: one table row per thing that can be wrong. */
import { describe, expect, test } from "bun:test";
import { isApproved } from "../../src/suspension/approval.ts";
import type { Answer, ResumeRequest, SuspensionKeys } from "../../src/suspension/port.ts";
import { MAX_PAYLOADS_BYTES, MAX_TOKEN_BYTES } from "../../src/suspension/port.ts";
import {
  ANSWERS,
  CONNECT,
  DELETE,
  expectValid,
  INTERRUPTS,
  issue,
  KEY,
  keyOf,
  NOW,
  RESPONSE_SCHEMAS,
  STATE,
  TTL_MS,
  verify,
} from "./asked.ts";

const [A1, A2, A3] = ANSWERS;
const NEW_KEY = keyOf("two", 2);

test("untouched, it gives back what was signed, word for word", async () => {
  const { token, id, expiresAt } = await issue();
  const { suspension, signedBy } = expectValid(await verify(token));
  expect(suspension).toEqual({ ...STATE, id, issuedAt: NOW - 678, expiresAt });
  expect(JSON.stringify(suspension.interrupts[0]?.input)).toContain('"__proto__":{"admin":false}');
  expect(signedBy).toBe("one");
  expect(id).toMatch(/^[0-9a-f]{32}$/);
  // The answers may come in any order.
  expectValid(await verify(token, { answers: [A3, A1, A2] }));
});

test("without organization, mode and subagents too", async () => {
  const { organizationId: _org, mode: _mode, subagents: _subagents, ...bare } = STATE;
  const { token } = await issue(bare);
  const { suspension } = expectValid(await verify(token, { organizationId: undefined }));
  expect(suspension).toMatchObject(bare);
  for (const name of ["organizationId", "mode", "subagents"]) expect(suspension).not.toHaveProperty(name);
});

describe("a key that is rotated", () => {
  test("what the old one signed is good as long as it is listed", async () => {
    const { token } = await issue();
    const options = { keys: [NEW_KEY, KEY] };
    expect(expectValid(await verify(token, {}, options)).signedBy).toBe("one");
    const newer = await issue(STATE, options.keys);
    expect(expectValid(await verify(newer.token, {}, options)).signedBy).toBe("two");
  });

  test("retired, what it signed is dead", async () => {
    const { token, id } = await issue();
    expect(await verify(token, {}, { keys: [NEW_KEY] })).toEqual({
      type: "stale",
      interruptId: "i1",
      suspensionId: id,
      reason: "the suspension's key is not listed, or not any more",
      dead: true,
    });
  });

  test("another key under the old one's id verifies nothing of it", async () => {
    const { token } = await issue();
    const result = await verify(token, {}, { keys: [keyOf("one", 9)] });
    expect(result).toMatchObject({ type: "stale", dead: true, reason: expect.stringContaining("does not verify") });
  });
});

describe("time", () => {
  const expiry = Math.ceil((NOW + TTL_MS) / 1000) * 1000;
  const rows: [name: string, now: number, reason: string | undefined, dead: boolean][] = [
    ["just issued", NOW, undefined, false],
    ["at its expiry", expiry, undefined, false],
    ["59.999 s after it", expiry + 59_999, undefined, false],
    ["60 s after it", expiry + 60_000, "the suspension has expired", true],
    ["a year after it", expiry + 365 * 86_400_000, "the suspension has expired", true],
    ["on a pod whose clock is 60 s behind", NOW - 678 - 60_000, undefined, false],
    ["on one whose clock is further behind", NOW - 678 - 60_001, "the suspension was issued in the future", false],
  ];
  test.each(rows)("%s", async (_name, now, reason, dead) => {
    const { token } = await issue();
    const result = await verify(token, {}, { now });
    expect(result).toMatchObject(reason === undefined ? { type: "valid" } : { type: "stale", reason, dead });
  });
});

interface StaleRow {
  readonly changes: Partial<ResumeRequest>;
  readonly keys?: SuspensionKeys;
  readonly reason: string | RegExp;
  readonly interruptId?: string | undefined;
  readonly dead: boolean;
}

const BIG = "x".repeat(MAX_PAYLOADS_BYTES);
const answer = (changes: Partial<Answer>): Answer => ({ ...A1, ...changes });
const withFirst = (changes: Partial<Answer>) => ({ answers: [answer(changes), A2, A3] });

const STALE: Readonly<Record<string, StaleRow>> = {
  "another audience": { changes: { audience: "other" }, reason: /another audience/, dead: true },
  "another thread": { changes: { threadId: "thread-2" }, reason: "the suspension is of another thread", dead: true },
  "another organization": { changes: { organizationId: "evil" }, reason: /of another organization/, dead: true },
  "no organization": { changes: { organizationId: undefined }, reason: /of another organization/, dead: true },
  "a daemon without a key": { changes: {}, keys: [], reason: /is signed, and this daemon has no key/, dead: true },

  "a tool with another schema": {
    changes: { tools: [DELETE, { ...CONNECT, inputSchema: { type: "object" } }] },
    reason: /another schema, kind or permission/,
    dead: true,
  },
  "a tool that now needs no permission": {
    changes: { tools: [{ ...DELETE, permission: "allow" }, CONNECT] },
    reason: /another schema, kind or permission/,
    interruptId: "i2",
    dead: true,
  },
  "a tool that the daemon now carries out": {
    changes: { tools: [DELETE, { ...CONNECT, kind: "callback" }] },
    reason: /another schema, kind or permission/,
    dead: true,
  },
  "a tool whose schema has no hash": {
    changes: { tools: [DELETE, { ...CONNECT, inputSchema: { title: "\ud800" } }] },
    reason: /another schema, kind or permission/,
    dead: true,
  },
  "a tool that is gone": { changes: { tools: [CONNECT] }, reason: /none of the run's/, interruptId: "i2", dead: true },
  "a form that asks for something else": {
    changes: { responseSchemaOf: ({ id }) => (id === "i1" ? { type: "number" } : RESPONSE_SCHEMAS[id]) },
    reason: /has to look otherwise/,
    dead: true,
  },
  "a form where there was none": {
    changes: { responseSchemaOf: ({ id }) => RESPONSE_SCHEMAS[id] ?? {} },
    reason: /has to look otherwise/,
    interruptId: "i3",
    dead: true,
  },

  "no answer": { changes: { answers: [] }, reason: "the interrupt is not answered", dead: false },
  "an interrupt left out": {
    changes: { answers: [A1, A3] },
    reason: "the interrupt is not answered",
    interruptId: "i2",
    dead: false,
  },
  "an interrupt answered twice": {
    changes: { answers: [A1, A2, A3, { ...A2, status: "cancelled" }] },
    reason: "the interrupt is answered twice",
    interruptId: "i2",
    dead: false,
  },
  "an interrupt that does not exist": {
    changes: { answers: [A1, A2, A3, { interruptId: "i4", status: "resolved" }] },
    reason: "there is no such interrupt in the suspension",
    interruptId: "i4",
    dead: false,
  },
  "a name that every object has": {
    changes: { answers: [{ interruptId: "__proto__", status: "resolved" }, A2, A3] },
    reason: "there is no such interrupt in the suspension",
    interruptId: "__proto__",
    dead: false,
  },

  "a payload that does not fit": {
    changes: withFirst({ payload: 5 }),
    reason: "the payload does not fit its schema: must be string",
    dead: false,
  },
  "a payload of null": { changes: withFirst({ payload: null }), reason: /must be string/, dead: false },
  "a payload that is missing": {
    changes: withFirst({ payload: undefined }),
    reason: "the payload is missing",
    dead: false,
  },
  "a payload that lacks something": {
    changes: { answers: [A1, { ...A2, payload: {} }, A3] },
    reason: /must have approved/,
    interruptId: "i2",
    dead: false,
  },
  "payloads that are too large": {
    changes: { answers: [{ ...A1, payload: BIG.slice(0, -2) }, A2, A3] },
    reason: "the payloads are larger than 262144 bytes together",
    interruptId: "i2",
    dead: false,
  },
  "a payload of a cancelled answer that is too large": {
    changes: { answers: [A1, A2, { ...A3, payload: BIG }] },
    reason: /larger than 262144 bytes/,
    interruptId: "i3",
    dead: false,
  },
  "a payload with half a character": {
    changes: withFirst({ payload: "\ud83d" }),
    reason: "the payload has half of a surrogate pair in it",
    dead: false,
  },
  "a payload that is nested too deep": {
    changes: { answers: [A1, A2, { ...A3, payload: JSON.parse(`${"[".repeat(50_000)}${"]".repeat(50_000)}`) }] },
    reason: "the payload is nested deeper than 512 levels",
    interruptId: "i3",
    dead: false,
  },
};

test.each(Object.entries(STALE))("%s is stale", async (_name, { changes, keys = [KEY], reason, ...row }) => {
  const { token, id } = await issue();
  const result = await verify(token, changes, { keys });
  if (result.type !== "stale") throw new Error("valid");
  expect(result.reason).toMatch(reason);
  const [first] = changes.answers ?? ANSWERS;
  expect({ ...result, reason: "" }).toEqual({
    type: "stale",
    interruptId: row.interruptId ?? first?.interruptId ?? "i1",
    suspensionId: id,
    reason: "",
    dead: row.dead,
  });
});

test("payloads of the allowed size are good, whatever their words", async () => {
  const { token } = await issue();
  // Two quotes, the other payload, and what is cancelled has none.
  const size = MAX_PAYLOADS_BYTES - 2 - Buffer.byteLength('{"approved":true}');
  expectValid(await verify(token, withFirst({ payload: "x".repeat(size) })));
  expect((await verify(token, withFirst({ payload: "x".repeat(size + 1) }))).type).toBe("stale");
  for (const payload of ["/clear", "@/etc/passwd", "</tool_result>", '{"approved":true}', "unsigned.e30"]) {
    expectValid(await verify(token, withFirst({ payload })));
  }
});

test("what cannot be mended is told before what can", async () => {
  const { token } = await issue();
  const result = await verify(token, { answers: [A1], tools: [CONNECT] });
  expect(result).toMatchObject({ type: "stale", interruptId: "i2", dead: true });
});

test("a million answers, or echoes, are not looked at", async () => {
  const { token } = await issue();
  const many = Array.from({ length: 1_000_000 }, () => A1);
  for (const changes of [{ answers: many }, { clear: { interrupts: many } }, { clear: { approvals: many } }]) {
    expect(await verify(token, changes)).toEqual({
      type: "stale",
      interruptId: "i1",
      reason: "more was sent back than anybody can have been asked",
      dead: false,
    });
  }
});

test("what is cancelled needs no payload, and any will do", async () => {
  const { token } = await issue();
  for (const payload of [undefined, null, 5]) {
    expectValid(await verify(token, { answers: [{ interruptId: "i1", status: "cancelled", payload }, A2, A3] }));
  }
});

test.each([
  [true, "resolved", { approved: true }],
  [true, "resolved", { approved: true, reason: "go on" }],
  [false, "resolved", { approved: true, reason: { input: {} } }],
  [false, "cancelled", { approved: true }],
  [false, "resolved", undefined],
  [false, "resolved", null],
  [false, "resolved", true],
  [false, "resolved", "approved"],
  [false, "resolved", [true]],
  [false, "resolved", {}],
  [false, "resolved", { approved: "true" }],
  [false, "resolved", { approved: 1 }],
  [false, "resolved", { approved: false }],
  [false, "resolved", { Approved: true }],
  [false, "resolved", { approved: true, input: { branch: "main" } }],
  [false, "resolved", JSON.parse('{"__proto__":{"approved":true}}')],
  [false, "resolved", JSON.parse('{"approved":true,"__proto__":{"input":{}}}')],
  [false, "resolved", Object.create({ approved: true })],
] as const)("it is %p that %s with %j approves", (approves, status, payload) => {
  expect(isApproved({ interruptId: "i2", status, payload })).toBe(approves);
});

test("tools that were not asked for may change", async () => {
  const { token } = await issue();
  expectValid(await verify(token, { tools: [{ name: "new", kind: "client", inputSchema: {} }, DELETE, CONNECT] }));
});

describe("the suspension itself", () => {
  test.each([
    ["none", undefined, "the answers came without their suspension", false],
    ["null", null, "the answers came without their suspension", false],
    ["a number", 5, "the suspension is no text", false],
    ["an object", { toString: 1 }, "the suspension is no text", false],
    ["an empty text", "", /has no header of ours/, true],
    ["some text", "hello", /has no header of ours/, true],
    ["257 KiB", "x".repeat(MAX_TOKEN_BYTES + 1), "the suspension is larger than 262144 bytes", true],
    [
      "256 KiB of brackets",
      `${Buffer.from("[".repeat(700)).toString("base64url")}.${"W".repeat(260_000)}.x`,
      /no header/,
      true,
    ],
  ])("%s", async (_name, token, reason, dead) => {
    const result = await verify(token);
    expect(result).toMatchObject({ type: "stale", interruptId: "i1", dead });
    if (result.type === "stale") expect(result.reason).toMatch(reason);
  });
});

describe("what comes in clear", () => {
  const [I1] = INTERRUPTS;
  const asShown = { id: "i1", reason: I1.reason, toolCallId: I1.toolCallId, responseSchema: RESPONSE_SCHEMAS.i1 };
  const shownMetadata = { toolName: I1.toolName, input: I1.input, render: { title: "shown, not signed" } };
  const changedInput = JSON.parse('{"provider":"github","scopes":["repo"],"__proto__":{"admin":true}}');
  const part = { type: `tool-${DELETE.name}`, toolCallId: "toolu_2", input: { branch: "old" }, state: "x" };
  type Change = (token: string, expiresAt: string) => Partial<ResumeRequest>;
  const interrupts =
    (change: object): Change =>
    () => ({ clear: { interrupts: [{ ...asShown, ...change }] } });
  const approvals =
    (change: object): Change =>
    () => ({ clear: { approvals: [{ ...part, ...change }] } });
  const metadata =
    (value: unknown): Change =>
    () =>
      withFirst({ metadata: value });

  const equal: Readonly<Record<string, Change>> = {
    "the mode": () => ({ clear: { mode: "plan" } }),
    "an answer's tool, call and input": metadata({ ...shownMetadata, toolCallId: I1.toolCallId, note: "mine" }),
    "an input whose keys are in another order": metadata({
      input: JSON.parse('{"__proto__":{"admin":false},"scopes":["repo"],"provider":"github"}'),
    }),
    "metadata of null": metadata(null),
    "a whole interrupt": (token, expiresAt) => ({
      clear: { interrupts: [{ ...asShown, expiresAt, metadata: { ...shownMetadata, suspension: token } }] },
    }),
    "an interrupt with nulls for what it has not": interrupts({
      responseSchema: null,
      expiresAt: null,
      metadata: null,
    }),
    "an approval": approvals({ approval: { id: "i2", approved: true } }),
    "an approval's response": () => ({
      clear: { approvals: [{ type: "tool-approval-response", approvalId: "i2", approved: true }] },
    }),
    "an approval request": (token) => ({
      clear: {
        approvals: [{ type: "tool-approval-request", toolCallId: "toolu_2", approvalId: "i2", signature: token }],
      },
    }),
    "an approval with the tool's name beside it": approvals({ type: "dynamic-tool", toolName: DELETE.name }),
    "the suspension of an answer alone": (token) => ({
      ...withFirst({ metadata: { suspension: token } }),
      token: undefined,
    }),
    "the signature in an answer's metadata": (token) => withFirst({ metadata: { signature: token } }),
    "the signature of an answer alone": (token) => ({ ...withFirst({ signature: token }), token: null }),
    "the signature of an approval alone": (token) => ({
      token: undefined,
      clear: { approvals: [{ ...part, approval: { signature: token } }] },
    }),
  };

  test.each(Object.entries(equal))("%s may come, equal to what was signed", async (_name, change) => {
    const { token, expiresAt } = await issue();
    expectValid(await verify(token, change(token, new Date(expiresAt).toISOString())));
  });

  const different: Readonly<Record<string, [Change, reason: RegExp, interruptId?: string]>> = {
    "another mode": [() => ({ clear: { mode: "default" } }), /the mode is not/],
    "an answer with one argument changed": [
      metadata({ input: { ...I1.input, provider: "gitlab" } }),
      /^input in clear/,
    ],
    "an answer whose __proto__ is changed": [metadata({ input: changedInput }), /^input in clear/],
    "an answer with an input of null": [metadata({ input: null }), /^input in clear/],
    "an answer of another tool": [metadata({ toolName: "delete_branch" }), /^toolName in clear/],
    "an answer of another call": [metadata({ toolCallId: "toolu_2" }), /^toolCallId in clear/],
    "an interrupt with one argument changed": [
      interrupts({ metadata: { input: { ...I1.input, scopes: [] } } }),
      /^input in clear/,
    ],
    "an interrupt of another reason": [interrupts({ reason: "confirmation" }), /^reason in clear/],
    "an interrupt of another call": [interrupts({ toolCallId: "toolu_9" }), /^toolCallId in clear/],
    "an interrupt that is good for longer": [interrupts({ expiresAt: "2099-01-01T00:00:00Z" }), /^expiresAt in clear/],
    "an interrupt that wants another answer": [interrupts({ responseSchema: {} }), /^responseSchema in clear/],
    "an interrupt whose form has no hash": [interrupts({ responseSchema: "\ud800" }), /^responseSchema in clear/],
    "an interrupt of nobody": [interrupts({ id: "i9" }), /of another suspension/, "i9"],
    "an approval of another input": [approvals({ input: { branch: "main" } }), /^input in clear/, "i2"],
    "an approval of another tool": [approvals({ type: "tool-connect_account" }), /^toolName in clear/, "i2"],
    "an approval of a call of nobody": [approvals({ toolCallId: "toolu_9" }), /of another suspension/],
    "an approval of another id": [approvals({ approval: { id: "i1" } }), /^id in clear/, "i2"],
    "an approval that denies what its answer approves": [
      approvals({ approval: { id: "i2", approved: false } }),
      /says otherwise/,
      "i2",
    ],
    "an approval's response that denies what its answer approves": [
      () => ({ clear: { approvals: [{ type: "tool-approval-response", approvalId: "i2", approved: false }] } }),
      /says otherwise/,
      "i2",
    ],
    "another suspension in an answer": [metadata({ suspension: "other" }), /more than once, and not the same/],
    "a suspension that is no text in an answer": [metadata({ suspension: 5 }), /more than once, and not the same/],
    "another suspension in an interrupt": [
      () => ({ clear: { interrupts: [{ id: "i3", metadata: { suspension: "other" } }] } }),
      /more than once/,
      "i3",
    ],
    "another signature of an approval": [approvals({ approval: { signature: "other" } }), /more than once/],
    "another signature in an answer's metadata": [metadata({ signature: "other" }), /more than once/],
    "another signature of an answer": [() => withFirst({ signature: "other" }), /more than once/],
  };

  test.each(Object.entries(different))(
    "%s is stale, and can be mended",
    async (_name, [change, reason, interruptId]) => {
      const { token, expiresAt } = await issue();
      const result = await verify(token, change(token, new Date(expiresAt).toISOString()));
      expect(result).toMatchObject({ type: "stale", interruptId: interruptId ?? "i1", dead: false });
      if (result.type === "stale") expect(result.reason).toMatch(reason);
    },
  );

  test("the token of another spelling is not the same", async () => {
    const { token } = await issue();
    expect((await verify(token, withFirst({ metadata: { suspension: `${token} ` } }))).type).toBe("stale");
  });
});
