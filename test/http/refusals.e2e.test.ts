import { afterAll, beforeAll, expect, test } from "bun:test";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually, TestDaemon } from "../support/daemon.ts";
import { FINISHED, OPEN } from "../support/scripted-harness.ts";
import { exchange } from "./raw-exchange.ts";

const MIB = 1 << 20;
const BODY_BYTES = 33 * MIB;
const ROUTES = [
  ["POST", "/dispatch"],
  ["GET", "/runs"],
  ["GET", "/runs/r"],
  ["GET", "/runs/r/frames"],
  ["DELETE", "/runs/r"],
  ["POST", "/config"],
  ["GET", "/idle"],
  ["GET", "/metrics"],
  ["GET", "/openapi.json"],
] as const;
const UNKNOWN_PATHS = ["/", "/nope", "/runs/", "/runs/r/nope", "/runs/r/frames/", "/healthz", "/_sandbox"];

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await TestDaemon.start({ env: { LOG_LEVEL: "debug", MAX_RUNS: "1" } });
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

async function refused(response: Response): Promise<{ status: number; error: unknown; detail: string }> {
  const { error, detail } = (await response.json()) as { error: unknown; detail?: string };
  expect(response.headers.get("x-boot-id")).toMatch(/^[0-9a-f]{32}$/);
  return { status: response.status, error, detail: detail ?? "" };
}

const post = (body: unknown): Promise<Response> =>
  daemon.fetch("/dispatch", { method: "POST", body: typeof body === "string" ? body : JSON.stringify(body) });

test("without a token that counts, every path answers the same: 401", async () => {
  const wrong = [
    "",
    "Bearer",
    "Bearer ",
    "Bearer wrong",
    `Bearer ${daemon.token}x`,
    `Bearer ${daemon.token.slice(0, -1)}`,
    `Basic ${daemon.token}`,
    daemon.token,
  ];
  const asked = [...ROUTES, ...UNKNOWN_PATHS.map((path) => ["GET", path] as const)];
  for (const [method, path] of asked.flatMap(([method, path]) => [
    [method, path] as const,
    [method, `/_sandbox${path}`] as const,
  ])) {
    const response = await fetch(`${daemon.url}${path}`, { method, headers: { authorization: "Bearer wrong" } });
    expect(await refused(response)).toEqual({ status: 401, error: "unauthorized", detail: "" });
    expect(response.headers.get("www-authenticate")).toBe("Bearer");
  }
  for (const authorization of wrong) {
    const response = await fetch(`${daemon.url}/runs`, authorization === "" ? {} : { headers: { authorization } });
    expect(response.status).toBe(401);
  }
  const otherCase = await fetch(`${daemon.url}/runs`, { headers: { authorization: `bearer  ${daemon.token}` } });
  expect(otherCase.status).toBe(200);
});

test("every path answers below /_sandbox as well, and no other prefix", async () => {
  for (const [method, path] of ROUTES) {
    const statuses = [path, `/_sandbox${path}`].map(async (at) => (await daemon.fetch(at, { method })).status);
    const [plain, prefixed] = await Promise.all(statuses);
    expect([path, prefixed]).toEqual([path, plain]);
    expect((await daemon.fetch(`/sandbox${path}`, { method })).status).toBe(404);
    expect((await daemon.fetch(`/_sandboxes${path}`, { method })).status).toBe(404);
  }
  for (const path of UNKNOWN_PATHS) {
    expect([path, (await daemon.fetch(path)).status]).toEqual([path, 404]);
  }
  expect(await refused(await daemon.fetch("/runs/", { method: "DELETE" }))).toMatchObject({ error: "not_found" });
  expect((await fetch(`${daemon.url}/_sandbox/health`)).status).toBe(200);
});

test("a path that is known with another method: 405 that names the right ones", async () => {
  for (const [method, path, allow] of [
    ["GET", "/dispatch", "POST"],
    ["DELETE", "/runs", "GET"],
    ["POST", "/runs/r", "GET, DELETE"],
    ["PUT", "/runs/r/frames", "GET"],
    ["GET", "/config", "POST"],
    ["POST", "/health", "GET, HEAD"],
  ] as const) {
    const response = await daemon.fetch(path, { method });
    expect(await refused(response)).toMatchObject({ status: 405, error: "method_not_allowed" });
    expect(response.headers.get("allow")).toBe(allow);
  }
});

test("a refusal that needs no body does not wait for one", async () => {
  const bearer = `Authorization: Bearer ${daemon.token}`;
  for (const [status, ...head] of [
    [401, "POST /dispatch HTTP/1.1", "Host: x", "Content-Length: 100"],
    [401, "POST /config HTTP/1.1", "Host: x", "Transfer-Encoding: chunked"],
    [401, "GET //health HTTP/1.1", "Host: x"],
    [401, "GET //health/ HTTP/1.1", "Host: "],
    [404, "POST /nope HTTP/1.1", "Host: x", bearer, "Content-Length: 100"],
    [405, "PUT /dispatch HTTP/1.1", "Host: x", bearer, "Content-Length: 100"],
    [413, "POST /dispatch HTTP/1.1", "Host: x", bearer, `Content-Length: ${BODY_BYTES}`],
    [413, "POST /config HTTP/1.1", "Host: x", bearer, `Content-Length: ${BODY_BYTES}`],
  ] as const) {
    const answer = await exchange({ port: daemon.port, head });
    expect([head[0], answer.status]).toEqual([head[0], status]);
    expect(answer.headers.get("x-boot-id")).toBeDefined();
  }
});

test("a body that was refused unread is not taken for the next request of its connection", async () => {
  const bearer = `Authorization: Bearer ${daemon.token}`;
  const hidden = `DELETE /runs/hidden HTTP/1.1\r\nHost: x\r\n${bearer}\r\n\r\n`;
  const socket = connect(daemon.port, "127.0.0.1");
  try {
    let text = "";
    socket.on("data", (bytes) => {
      text += bytes;
    });
    socket.write(`POST /dispatch HTTP/1.1\r\nHost: x\r\nContent-Length: ${hidden.length}\r\n\r\n${hidden}`);
    socket.write(`GET /idle HTTP/1.1\r\nHost: x\r\n${bearer}\r\n\r\n`);
    await eventually(() => text.includes("idleSince"));
    expect(text.match(/HTTP\/1\.1 \d+/g)).toEqual(["HTTP/1.1 401", "HTTP/1.1 200"]);
  } finally {
    socket.destroy();
  }
});

test("a body of 33 MiB: 413 body_too_large, announced, in chunks, or asked for with 100-continue", async () => {
  const file = daemon.path("large.json");
  await writeFile(file, Buffer.alloc(BODY_BYTES, " "));
  for (const header of ["Expect:", "Transfer-Encoding: chunked", "Expect: 100-continue"]) {
    const curl = spawn("curl", [
      ...["--silent", "--show-error", "--max-time", "20", "--write-out", "\n%{http_code}", "--header", header],
      ...["--header", `Authorization: Bearer ${daemon.token}`, "--data-binary", `@${file}`, `${daemon.url}/dispatch`],
    ]);
    let output = "";
    curl.stdout.on("data", (bytes) => {
      output += bytes;
    });
    await once(curl, "close");
    expect([header, output]).toEqual([header, expect.stringMatching(/^\{"error":"body_too_large".*\}\n413$/)]);
  }
});

test("chunks without an end are read up to the limit and no further", async () => {
  const chunk = Buffer.concat([Buffer.from("100000\r\n"), Buffer.alloc(MIB, " "), Buffer.from("\r\n")]);
  const head = [
    "POST /dispatch HTTP/1.1",
    "Host: x",
    `Authorization: Bearer ${daemon.token}`,
    "Transfer-Encoding: chunked",
  ];
  const answer = await exchange({ port: daemon.port, head, body: Array.from({ length: 40 }, () => chunk) });
  expect(answer.status).toBe(413);
  expect(JSON.parse(answer.body)).toMatchObject({ error: "body_too_large" });
});

test("a body of 31 MiB is read", async () => {
  const response = await post({ runId: "large", input: { threadId: "large", ballast: "x".repeat(31 * MIB) } });
  expect(await refused(response)).toMatchObject({ error: "bad_input", detail: "input.userMessage is required" });
});

test("what is wrong in a body is named", async () => {
  const many = Object.fromEntries(Array.from({ length: 5000 }, (_, index) => [`V${index}`, "x"]));
  const keys = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, index) => [`k${index}`, ""]));
  const deep = (levels: number): string =>
    JSON.stringify({ runId: "r", input }).replace(/}}$/, `,"more":${"[".repeat(levels)}${"]".repeat(levels)}}}`);
  const input = { threadId: "t", userMessage: "[]" };
  for (const [body, error, detail] of [
    ["", "bad_json", "the body is empty"],
    ["{", "bad_json", ""],
    ["nonsense", "bad_json", ""],
    ['{"runId":"r"}}', "bad_json", ""],
    ["[".repeat(200_000), "bad_input", "0.0.0.0.0.0.0.0: has more than 600 levels"],
    ["null", "bad_input", "the body must be a JSON object"],
    ["[]", "bad_input", "the body must be a JSON object"],
    ["7", "bad_input", "the body must be a JSON object"],
    [{}, "missing_run_id", ""],
    [{ input }, "missing_run_id", ""],
    [{ runId: "", input }, "missing_run_id", ""],
    [{ runId: null, input: {} }, "missing_run_id", ""],
    [{ runId: 7, input }, "bad_input", "runId: "],
    [{ runId: "x".repeat(257), input }, "bad_input", "runId: "],
    [{ runId: "x".repeat(10_000), input }, "bad_input", "runId: "],
    [{ runId: "a\nb", input }, "bad_input", "runId: must not contain control characters"],
    [{ runId: "a\u0000b", input }, "bad_input", "runId: must not contain control characters"],
    [{ runId: "a\u007fb", input }, "bad_input", "runId: must not contain control characters"],
    ['{"runId":"\\ud800","input":{}}', "bad_input", "runId: must be well-formed Unicode"],
    [{ runId: "..", input }, "bad_input", "runId: must not be a dot segment"],
    [{ runId: "r" }, "bad_input", "input: "],
    [{ runId: "r", input: null }, "bad_input", "input: "],
    [{ runId: "r", input: {} }, "bad_input", "input.threadId: "],
    [{ runId: "r", input: { ...input, threadId: "" } }, "bad_input", "input.threadId: "],
    [{ runId: "r", input: { ...input, threadId: "x".repeat(1025) } }, "bad_input", "input.threadId: "],
    [{ runId: "r", input: { threadId: "t" } }, "bad_input", "input.userMessage is required"],
    [{ runId: "r", input: { ...input, fence: -1 } }, "bad_input", "input.fence: "],
    [{ runId: "r", input: { ...input, fence: "7" } }, "bad_input", "input.fence: "],
    [{ runId: "r", input: { ...input, sessionGeneration: 7 } }, "bad_input", "input.sessionGeneration: "],
    [{ runId: "r", input: { ...input, userMessage: " " } }, "bad_input", "input.userMessage: must contain text"],
    [{ runId: "r", input: { ...input, userMessage: { parts: [] } } }, "bad_input", "input.userMessage: "],
    [
      { runId: "r", input: { ...input, userMessage: { parts: [{ type: "text", text: 5 }] } } },
      "bad_input",
      "input.userMessage",
    ],
    [{ runId: "r", input: { ...input, userMessage: { parts: [{ type: "text" }] } } }, "bad_input", "input.userMessage"],
    [{ runId: "r", input: { ...input, userMessage: { parts: [null] } } }, "bad_input", "input.userMessage"],
    [{ runId: "r", input: { ...input, userMessage: { content: null } } }, "bad_input", "input.userMessage"],
    [{ runId: "r", input: { ...input, userMessage: 7 } }, "bad_input", "input.userMessage"],
    [{ runId: "r", input: { ...input, env: many } }, "bad_input", "input.env: must be an object of at most 4096"],
    [
      { runId: "r", input: { ...input, env: { A: "x".repeat(130 * 1024) } } },
      "bad_input",
      "input.env.A: must be at most",
    ],
    [{ runId: "r", input: { ...input, workspace: { cwd: "/etc" } } }, "bad_input", "input.workspace.cwd: "],
    [{ runId: "r", input: { ...input, mcp: { url: "file:///etc/passwd" } } }, "bad_input", "input.mcp.url: "],
    [{ runId: "r", input: { ...input, env: { "A=B": "c" } } }, "bad_input", "input.env.A=B: "],
    [{ runId: "r", input: { ...input, env: { A: "b\u0000c" } } }, "bad_input", "input.env.A: must not contain NUL"],
    [{ runId: "r", input: { ...input, env: { A: 7 } } }, "bad_input", "input.env.A: "],
    [
      { runId: "r", input: { ...input, mcp: { url: "http://127.0.0.1:1/", headers: keys(257) } } },
      "bad_input",
      "input.mcp.headers: must be an object of at most 256 headers",
    ],
    [
      { runId: "r", input: { ...input, agent: { disallowedTools: Array(4097).fill("Bash") } } },
      "bad_input",
      "input.agent.disallowedTools: must be a list of at most 4096 tools",
    ],
    // Small bodies and large ones, which are read by another thread.
    [{ runId: "r", input: { ...input, more: keys(10_001) } }, "bad_input", "input.more: has more than 10000 keys"],
    [{ runId: "r", input: { ...input, ...keys(100_000) } }, "bad_input", "input: has more than 10000 keys"],
    [
      { runId: "r", input: { ...input, more: Array(1_000_000).fill(0) } },
      "bad_input",
      "body: has more than 1000000 keys",
    ],
    [deep(50_000), "bad_input", "input.more.0.0.0.0.0.0: has more than 600 levels"],
    [deep(200_000), "bad_input", "input.more.0.0.0.0.0.0: has more than 600 levels"],
    [{ runId: "r", after: -1, input }, "bad_input", "after: "],
    [{ runId: "r", after: 1.5, input }, "bad_input", "after: "],
    [{ runId: "r", after: "0", input }, "bad_input", "after: "],
    [{ runId: "r", attempt: 0, input }, "bad_input", "attempt: "],
  ] as const) {
    const answer = await refused(await post(body));
    expect([body, answer]).toEqual([body, { status: 400, error, detail: expect.stringContaining(detail) }]);
  }
  const latin1 = Buffer.from('{"runId":"\xe9"}', "latin1");
  expect(await refused(await daemon.fetch("/dispatch", { method: "POST", body: latin1 }))).toEqual({
    status: 400,
    error: "bad_json",
    detail: "the body is not UTF-8",
  });
  expect((await (await daemon.fetch("/runs")).json()) as unknown).toEqual({ runs: [] });
  expect(await daemon.starts()).toEqual([]);
});

test("of several refusals the first of the order is given", async () => {
  const large = Buffer.alloc(BODY_BYTES, "{");
  const wrong = { authorization: "Bearer wrong" };
  const codeOf = async (response: Promise<Response>): Promise<unknown> => (await refused(await response)).error;
  expect(await codeOf(daemon.fetch("/nope", { method: "POST", body: large, headers: wrong }))).toBe("unauthorized");
  expect(await codeOf(daemon.fetch("/nope", { method: "POST", body: large }))).toBe("not_found");
  expect(await codeOf(daemon.fetch("/dispatch", { method: "PUT", body: large }))).toBe("method_not_allowed");
  expect(await codeOf(daemon.fetch("/dispatch", { method: "POST", body: large }))).toBe("body_too_large");
  expect(await codeOf(post({ input: {} }))).toBe("missing_run_id");

  expect((await daemon.cancel("gone")).status).toBe(204);
  const input = { threadId: "order", userMessage: "[]" };
  expect(await codeOf(post({ runId: "gone", input: {} }))).toBe("bad_input");
  expect(await codeOf(post({ runId: "gone", after: 7, input }))).toBe("tombstoned");

  const go = daemon.path("go");
  const running = daemon.run({ runId: "busy", threadId: "order", steps: [OPEN, { waitFor: go }, FINISHED] });
  await daemon.event("harness started", 0, ({ run }) => run === "busy");
  const other = { threadId: "another", userMessage: "[]" };
  // A known run is looked at first, then what would start.
  expect(
    await codeOf(post({ runId: "busy", input: { ...other, answers: [{ interruptId: "i", status: "cancelled" }] } })),
  ).toBe("run_conflict");
  expect(
    await codeOf(post({ runId: "new", input: { ...other, answers: [{ interruptId: "i", status: "cancelled" }] } })),
  ).toBe("stale");
  expect(
    await codeOf(
      post({ runId: "new", after: 1, input: { ...other, answers: [{ interruptId: "i", status: "cancelled" }] } }),
    ),
  ).toBe("unknown_run");
  expect(await codeOf(post({ runId: "new", input: other }))).toBe("too_many_runs");
  // The operator looks for it too.
  const said = await daemon.event("dispatch refused", 0, ({ code }) => code === "too_many_runs");
  expect(said).toMatchObject({ level: "info", run: "new", thread: "another" });
  await writeFile(go, "");
  expect((await running).at(-2)).toMatchObject({ outcome: { type: "finished" } });
});

test("a Host header that is missing or broken is no reason to fail", async () => {
  for (const head of [
    ["GET /health HTTP/1.0"],
    ["GET /health HTTP/1.1", "Host: "],
    ["GET /health HTTP/1.1", "Host: a b"],
    ["GET /health HTTP/1.1", "Host: [::1"],
    ["GET /health HTTP/1.1", "Host: a:99999"],
    ["GET http://elsewhere/health HTTP/1.1", "Host: x"],
  ]) {
    const answer = await exchange({ port: daemon.port, head });
    expect([head, answer.status]).toEqual([head, 200]);
    expect(answer.headers.get("x-boot-id")).toBeDefined();
  }
  expect(daemon.noise).toEqual([]);
});

test("a caller that leaves within its body is no failure of the daemon", async () => {
  const from = daemon.log.length;
  const socket = connect(daemon.port, "127.0.0.1");
  const head = ["POST /dispatch HTTP/1.1", "Host: x", `Authorization: Bearer ${daemon.token}`, "Content-Length: 100"];
  socket.end(`${head.join("\r\n")}\r\n\r\n{"runId":`);
  await daemon.event("request refused", from, ({ detail }) => detail === "the connection closed within the body");
  socket.destroy();
  expect(daemon.log.slice(from).filter(({ level }) => level === "error")).toEqual([]);
});

test("an odd thread id or run id is a name and no path", async () => {
  const root = await mkdtemp(join(tmpdir(), "dispatchd-odd-"));
  const appRoot = join(root, "a/b/c/app");
  await mkdir(appRoot, { recursive: true });
  const home = join(appRoot, ".dispatchd/home");
  await using app = await TestDaemon.start({
    env: { APP_ROOT: appRoot, STATE_DIR: join(appRoot, ".dispatchd"), HOME: home },
  });
  const outside = async (): Promise<string[]> => {
    const all = await readdir(root, { recursive: true });
    return all.filter((path) => !path.startsWith("a/b/c/app/.dispatchd/")).sort();
  };
  const before = await outside();
  const ids = ["../../etc", "../..", "/etc/passwd", "a/b", "..", ".", "~", "$(id)", "a b?c#d%2F", "é\u2028\u{1f600}"];
  for (const threadId of [...ids, "a\u0000b", "line\nbreak", "x".repeat(1024), "__proto__"]) {
    const frames = await app.run({ runId: `run of ${ids.indexOf(threadId)} ${threadId.length}`, threadId });
    expect([threadId, frames.at(-1)?.done, frames.at(-2)?.outcome?.type]).toEqual([threadId, true, "finished"]);
  }
  for (const runId of [...ids.filter((id) => !/^\.\.?$/.test(id)), "x".repeat(256), "__proto__", "constructor"]) {
    const frames = await app.run({ runId, threadId: `thread of ${runId}` });
    expect([runId, frames.at(-1)?.done]).toEqual([runId, true]);
    expect(await app.show(runId)).toMatchObject({ runId, state: "ended", outcome: { type: "finished" } });
    const replay = await app.fetch(`/_sandbox/runs/${encodeURIComponent(runId)}/frames`);
    expect((await replay.text()).trim().split("\n").length).toBe(frames.length);
    expect((await app.cancel(runId)).status).toBe(204);
  }
  expect(await outside()).toEqual(before);
  await rm(root, { recursive: true });
});
