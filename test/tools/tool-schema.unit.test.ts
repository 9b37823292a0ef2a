/** What a dispatch may say of its tools, as `POST /dispatch` checks it. */
import { expect, test } from "bun:test";
import { parseDispatch } from "../../src/dispatch/input.ts";
import { HttpError } from "../../src/errors.ts";
import { toToolSpecs } from "../../src/tools/tool-schema.ts";

type Fields = Record<string, unknown>;

const callback = { url: "https://control.example/tools", headers: { Authorization: "Bearer t" } };
const tool = (over: Fields = {}): Fields => ({
  name: "look_up",
  description: "Looks something up.",
  inputSchema: { type: "object", properties: { key: { type: "string" } } },
  kind: "client",
  ...over,
});
const dispatch = (input: Fields) =>
  parseDispatch({ runId: "r", input: { threadId: "t", userMessage: "go", ...input } }).input;

function refusal(input: Fields): string | undefined {
  try {
    dispatch(input);
    return undefined;
  } catch (error) {
    expect(error).toBeInstanceOf(HttpError);
    const { code, detail } = error as HttpError;
    expect(code).toBe("bad_input");
    return detail;
  }
}

const specsOf = (...tools: Fields[]) => toToolSpecs(dispatch({ tools, callback }).tools);

test("a tool that says little gets what is usual", () => {
  const [client, callbackTool] = specsOf(tool(), tool({ name: "send", kind: "callback", own: { kept: true } }));
  expect(client).toEqual({
    name: "look_up",
    description: "Looks something up.",
    inputSchema: { type: "object", properties: { key: { type: "string" } } },
    kind: "client",
    permission: "allow",
    readOnly: true,
    timeoutMs: 60_000,
  });
  expect(callbackTool).toMatchObject({ kind: "callback", permission: "allow", readOnly: false, timeoutMs: 60_000 });
  expect(callbackTool).not.toHaveProperty("own");
  expect(dispatch({ tools: [tool({ own: { kept: true } })] }).tools?.[0]).toMatchObject({ own: { kept: true } });
});

test("a tool that says all of it is taken at its word, but that a client tool changes something", () => {
  const all = {
    kind: "callback",
    timeoutMs: 5,
    permission: "ask",
    readOnly: true,
    render: { form: "date" },
    responseSchema: { type: "string" },
  };
  expect(specsOf(tool(all))[0]).toMatchObject(all);
  expect(specsOf(tool({ readOnly: false }))[0]?.readOnly).toBe(true);
  const nothing = { timeoutMs: null, permission: null, readOnly: null, responseSchema: null };
  expect(specsOf(tool(nothing))).toEqual(specsOf(tool()));
});

test("no tools, and lists that are null, are welcome", () => {
  expect(toToolSpecs(dispatch({}).tools)).toEqual([]);
  const none = { tools: null, callback: null, clientTools: null, relay: null, answers: null };
  expect(toToolSpecs(dispatch(none).tools)).toEqual([]);
  expect(toToolSpecs(dispatch({ tools: [] }).tools)).toEqual([]);
});

test("an input schema is one of an object; without a type it becomes one", () => {
  expect(specsOf(tool({ inputSchema: {} }))[0]?.inputSchema).toEqual({ type: "object" });
  expect(specsOf(tool({ inputSchema: { required: ["a"] } }))[0]?.inputSchema).toEqual({
    required: ["a"],
    type: "object",
  });
  for (const type of ["string", ["object", "null"], "array"]) {
    expect(refusal({ tools: [tool({ inputSchema: { type } })] })).toBe(
      'input.tools.0.inputSchema: must have type "object"',
    );
  }
});

test("what is wrong with a tool is said with its path", () => {
  const cases: [Fields, string][] = [
    [{ name: "a b" }, "input.tools.0.name: must be 1 to 64 letters, digits, _ or -"],
    [{ name: "" }, "input.tools.0.name: must be"],
    [{ name: "a".repeat(65) }, "input.tools.0.name: must be"],
    [{ name: "look_up\n" }, "input.tools.0.name: must be"],
    [{ name: undefined }, "input.tools.0.name: "],
    [{ description: 1 }, "input.tools.0.description: "],
    [{ description: "é".repeat(40_000) }, "input.tools.0.description: must be at most 65536 bytes"],
    [{ kind: "server" }, "input.tools.0.kind: "],
    [{ permission: "maybe" }, "input.tools.0.permission: "],
    [{ timeoutMs: 0 }, "input.tools.0.timeoutMs: "],
    [{ timeoutMs: 1.5 }, "input.tools.0.timeoutMs: "],
    [{ timeoutMs: 3_600_001 }, "input.tools.0.timeoutMs: "],
    [{ readOnly: "yes" }, "input.tools.0.readOnly: "],
    [{ render: "x".repeat(70_000) }, "input.tools.0.render: must be at most 65536 bytes"],
    [{ inputSchema: undefined }, "input.tools.0.inputSchema: must be a JSON Schema"],
    [{ inputSchema: [] }, "input.tools.0.inputSchema: must be a JSON Schema"],
    [{ inputSchema: true }, "input.tools.0.inputSchema: must be a JSON Schema"],
    [{ inputSchema: { $comment: "x".repeat(70_000) } }, "input.tools.0.inputSchema: must be at most 65536 bytes"],
    [
      { inputSchema: { properties: { a: { $ref: "#/$defs/b" } } } },
      "input.tools.0.inputSchema: is no JSON Schema that can be used: can't resolve reference #/$defs/b",
    ],
    [
      { responseSchema: { minimum: "1" } },
      "input.tools.0.responseSchema: is no JSON Schema that can be used: /minimum",
    ],
    // Cut within a character: no question about such a tool could be signed.
    [{ inputSchema: { description: "waves \ud83d" } }, "input.tools.0.inputSchema: has half of a surrogate pair in it"],
  ];
  for (const [over, detail] of cases) expect(refusal({ tools: [tool(over)] })).toStartWith(detail);
  expect(refusal({ tools: [tool(), 7] })).toStartWith("input.tools.1: ");
  expect(refusal({ tools: {} })).toStartWith("input.tools: ");
});

test("each name once, and neither too many tools nor too much of them", () => {
  expect(refusal({ tools: [tool(), tool({ name: "b" }), tool()] })).toBe(
    "input.tools.2.name: look_up is the name of tool 0 too",
  );
  const many = (count: number, over: Fields = {}) =>
    Array.from({ length: count }, (_, index) => tool({ name: `tool_${index}`, ...over }));
  expect(refusal({ tools: many(256) })).toBeUndefined();
  expect(refusal({ tools: many(257) })).toBe("input.tools: must be at most 256 tools");
  expect(refusal({ tools: many(20, { description: "x".repeat(60_000) }) })).toBe(
    "input.tools: must be at most 1048576 bytes together",
  );
});

test("a callback tool needs a callback; what is wrong with that is said without its value", () => {
  const tools = [tool(), tool({ name: "send", kind: "callback" })];
  expect(refusal({ tools })).toBe("input.tools.1: send is a callback tool, and there is no input.callback");
  expect(refusal({ tools, callback: null })).toBe(
    "input.tools.1: send is a callback tool, and there is no input.callback",
  );
  expect(refusal({ tools, callback: { url: callback.url } })).toBeUndefined();
  // A runner outside the pod needs none, but what was approved is carried out here.
  const relay = { publicKey: Buffer.alloc(32, 7).toString("base64url") };
  expect(refusal({ tools, relay })).toBeUndefined();
  const answers = [{ interruptId: "i", status: "resolved" }];
  expect(refusal({ tools, relay, answers })).toContain("there is no input.callback");
  for (const url of ["ftp://secret.example/", "file:///etc/passwd", "secret", "https://", 7, undefined]) {
    expect(refusal({ callback: { url } })).toMatch(/^input\.callback\.url: (?!.*secret)/);
  }
  expect(refusal({ callback: { url: "https://secret:pass@control.example" } })).toMatch(
    /^input\.callback\.url: must not/,
  );
  const headers = (value: Fields) => refusal({ callback: { ...callback, headers: value } });
  expect(headers({ "X-Own": "value\twith é" })).toBeUndefined();
  expect(headers({ "X Own": "v" })).toBe("input.callback.headers.X Own: is no name of a header");
  expect(headers({ "X-Own": "secret\nX-More: 1" })).toBe("input.callback.headers.X-Own: is no value of a header");
  expect(headers({ "X-Own": "日本" })).toBe("input.callback.headers.X-Own: is no value of a header");
  expect(headers(Object.fromEntries(Array.from({ length: 65 }, (_, at) => [`x-${at}`, "v"])))).toContain("at most 64");
  expect(headers({ "X-Own": "s".repeat(70_000) })).toContain("at most 65536 bytes");
});

test("how long a turn waits, and the key of whoever answers, are checked", () => {
  for (const holdSeconds of [0, 0.5, 86_400, null, undefined]) {
    expect(refusal({ clientTools: { holdSeconds } })).toBeUndefined();
  }
  for (const holdSeconds of [-1, 86_401, "10"]) {
    expect(refusal({ clientTools: { holdSeconds } })).toStartWith("input.clientTools.holdSeconds: ");
  }
  const key = Buffer.alloc(32, 7).toString("base64url");
  expect(refusal({ relay: { publicKey: key } })).toBeUndefined();
  for (const publicKey of [`${key}=`, key.slice(1), `${key.slice(0, -1)}d`, `${key}AA`, "", 7, undefined]) {
    expect(refusal({ relay: { publicKey } })).toStartWith("input.relay.publicKey: ");
  }
});

test("answers may stand in the place of a message, and are kept as they are", () => {
  const answers = [
    {
      interruptId: "i-1",
      status: "resolved",
      payload: { approved: true },
      metadata: { suspension: "s" },
      signature: "s",
    },
    { interruptId: "i-2", status: "cancelled" },
  ];
  const parsed = parseDispatch({ runId: "r", input: { threadId: "t", answers } });
  expect(parsed.input.answers as unknown).toEqual(answers);
  for (const none of [undefined, null, []]) {
    expect(() => parseDispatch({ runId: "r", input: { threadId: "t", answers: none } })).toThrow(
      "userMessage is required",
    );
  }
  expect(refusal({ answers: [{ interruptId: "", status: "resolved" }] })).toStartWith("input.answers.0.interruptId: ");
  expect(refusal({ answers: [{ status: "resolved" }] })).toStartWith("input.answers.0.interruptId: ");
  expect(refusal({ answers: [{ interruptId: "i", status: "denied" }] })).toStartWith("input.answers.0.status: ");
  expect(refusal({ answers: "yes" })).toStartWith("input.answers: ");
  expect(refusal({ answers: Array.from({ length: 257 }, () => 7) })).toBe("input.answers: must be at most 256 answers");
});

test("of a list that is too long nothing is looked at", () => {
  let looks = 0;
  const counted = new Proxy(tool(), {
    get: (target, key) => {
      looks++;
      return Reflect.get(target, key);
    },
  });
  expect(refusal({ tools: [counted] })).toBeUndefined();
  expect(looks).toBeGreaterThan(0);
  looks = 0;
  expect(refusal({ tools: Array.from({ length: 257 }, () => counted) })).toBe("input.tools: must be at most 256 tools");
  expect(looks).toBe(0);
});
