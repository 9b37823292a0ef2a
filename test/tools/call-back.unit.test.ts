/** Against a real server on loopback. */
import { afterAll, expect, test } from "bun:test";
import { createServer, type Socket } from "node:net";
import { type CallbackRequest, callBack, MAX_REPLY_BYTES } from "../../src/tools/call-back.ts";

const TOKEN = "Bearer tok-0123456789abcdef";
const stopped: (() => unknown)[] = [];
afterAll(async () => {
  for (const stop of stopped) await stop();
});

type Handler = (request: Request) => Response | Promise<Response>;

function serve(fetch: Handler): string {
  const server = Bun.serve({ hostname: "127.0.0.1", port: 0, idleTimeout: 0, fetch });
  stopped.push(() => server.stop(true));
  return `http://127.0.0.1:${server.port}/callback`;
}

/** A server that speaks bytes. */
async function serveBytes(onData: (socket: Socket, count: number) => void): Promise<string> {
  const sockets = new Set<Socket>();
  let count = 0;
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    socket.on("close", () => sockets.delete(socket));
    socket.on("data", () => onData(socket, ++count));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  stopped.push(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as { port: number }).port}/callback`;
}

function ask(url: string, over: Partial<CallbackRequest> = {}) {
  return callBack({
    callback: { url, headers: { Authorization: TOKEN } },
    order: { runId: "run-1", threadId: "thread-1", toolCallId: "call-1", toolName: "look_up", arguments: { key: "k" } },
    idempotencyKey: "run-1:call-1",
    timeoutMs: 30_000,
    signal: new AbortController().signal,
    ...over,
  });
}

const reply = (body: ConstructorParameters<typeof Response>[0], init: ResponseInit = {}) =>
  ask(serve(() => new Response(body, init)));
const json = (value: unknown, status = 200) =>
  reply(JSON.stringify(value), { status, headers: { "content-type": "application/json" } });
const ok = (text: string) => ({ text, isError: false });
const failed = (text: string) => ({ text, isError: true });

test("one POST with the order, the callback's headers and ours, which win", async () => {
  const seen: { method: string; path: string; headers: Headers; body: unknown }[] = [];
  const url = serve(async (request) => {
    const { method, headers } = request;
    seen.push({ method, path: new URL(request.url).pathname, headers, body: await request.json() });
    return new Response("done");
  });
  const callback = {
    url,
    headers: {
      authorization: TOKEN,
      "X-Tenant": "t-1",
      "Content-Type": "text/x-other",
      "idempotency-key": "theirs",
      TraceParent: "theirs",
      "Content-Length": "3",
      "Transfer-Encoding": "chunked",
    },
  };
  const traceparent = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01";
  expect(await ask(url, { callback, traceparent })).toEqual(ok("done"));
  expect(seen).toHaveLength(1);
  const [request] = seen;
  expect(request).toMatchObject({ method: "POST", path: "/callback" });
  expect(request?.body).toEqual({
    runId: "run-1",
    threadId: "thread-1",
    toolCallId: "call-1",
    toolName: "look_up",
    arguments: { key: "k" },
  });
  const sent = Object.fromEntries(request?.headers ?? []);
  expect(sent).toMatchObject({
    authorization: TOKEN,
    "x-tenant": "t-1",
    "content-type": "application/json",
    "idempotency-key": "run-1:call-1",
    traceparent,
  });
});

test("ids that no header can hold are percent-encoded in the Idempotency-Key", async () => {
  const url = serve((request) => new Response(request.headers.get("idempotency-key")));
  expect(await ask(url, { idempotencyKey: "läuft 100%\n:\ud800" })).toEqual(ok("l%C3%A4uft%20100%25%0A:%EF%BF%BD"));
});

test("a reply is its text, its error, or itself", async () => {
  expect(await json({ text: "12 degrees" })).toEqual(ok("12 degrees"));
  expect(await json({ text: "", more: 1 })).toEqual(ok(""));
  expect(await json({ error: "no such city" })).toEqual(failed("no such city"));
  expect(await json({ error: "half of it", text: "some" })).toEqual(failed("half of it"));
  expect(await json({ error: "", text: "fine" })).toEqual(ok("fine"));
  expect(await json({ error: { code: 1 } })).toEqual(ok('{"error":{"code":1}}'));
  expect(await json([1, "two"])).toEqual(ok('[1,"two"]'));
  expect(await json("text")).toEqual(ok('"text"'));
  expect(await reply("plain <text>", { headers: { "content-type": "text/plain" } })).toEqual(ok("plain <text>"));
  expect(await reply('{"text":"x"}', { headers: { "content-type": "text/plain" } })).toEqual(ok('{"text":"x"}'));
  expect(await reply('{"text":"x"}', { headers: { "content-type": "application/problem+json" } })).toEqual(ok("x"));
  expect(await reply("not json", { headers: { "content-type": "application/json" } })).toEqual(ok("not json"));
  expect(await reply(null, { status: 204 })).toEqual(ok(""));
  expect(await reply("")).toEqual(ok(""));
  expect(await reply(new Uint8Array([0x89, 0x50, 0xff]))).toEqual(
    failed("the tool answered with something that is not text"),
  );
});

test("JSON is passed on as it was written, but for the spaces: large numbers and keys stay", async () => {
  const body = '{ "id": 12345678901234567890,\n\t"__proto__": [ "a  b", "\\" x " ] }';
  expect(await reply(body, { headers: { "content-type": "application/json" } })).toEqual(
    ok('{"id":12345678901234567890,"__proto__":["a  b","\\" x "]}'),
  );
});

test("another status is a failure, with what the reply says of it", async () => {
  expect(await json({ error: "quota used up" }, 429)).toEqual(
    failed("the tool answered with status 429: quota used up"),
  );
  expect(await json({ text: "try later" }, 503)).toEqual(failed("the tool answered with status 503: try later"));
  expect(await reply("<html>stack trace</html>", { status: 500 })).toEqual(failed("the tool answered with status 500"));
  const long = await json({ error: "é".repeat(10_000) }, 400);
  expect(Buffer.byteLength(long.text)).toBeLessThanOrEqual(2048);
});

test("a redirect is not followed", async () => {
  let followed = 0;
  const other = serve(() => {
    followed++;
    return new Response("followed");
  });
  for (const status of [301, 302, 303, 307, 308]) {
    expect(await reply(null, { status, headers: { location: other } })).toEqual(
      failed(`the tool answered with status ${status}`),
    );
  }
  expect(followed).toBe(0);
});

test("a reply that is too large is not read to its end", async () => {
  let sent = 0;
  const cancelled = Promise.withResolvers<void>();
  const url = serve(() => {
    const body = new ReadableStream({
      pull(controller) {
        sent += 64 << 10;
        controller.enqueue(new Uint8Array(64 << 10).fill(0x61));
      },
      cancel: () => cancelled.resolve(),
    });
    return new Response(body);
  });
  expect(await ask(url)).toEqual(failed(`the tool's answer is larger than ${MAX_REPLY_BYTES} bytes`));
  await cancelled.promise;
  expect(sent).toBeLessThan(64 << 20);
  const largest = "a".repeat(MAX_REPLY_BYTES);
  expect(await reply(largest)).toEqual(ok(largest));
  expect((await reply(`${largest}a`)).isError).toBe(true);
});

test("a compressed reply, which could become any size, is not unpacked", async () => {
  const url = serve((request) => {
    if (request.headers.get("accept-encoding") !== "identity") return new Response("asked for packing");
    return new Response(Bun.gzipSync(new Uint8Array(64 << 20)), { headers: { "content-encoding": "gzip" } });
  });
  expect(await ask(url)).toEqual(failed("the tool's answer is compressed, which it was not asked to be"));
});

const UNSURE = "it may have been carried out all the same";

test("the limit holds for a server that says nothing, and for one that never ends", async () => {
  const silent = serve(() => new Promise<Response>(() => {}));
  expect(await ask(silent, { timeoutMs: 50 })).toEqual(failed(`the tool did not answer within 50 ms; ${UNSURE}`));
  const left = Promise.withResolvers<void>();
  const slow = serve(
    () =>
      new Response(
        new ReadableStream({
          start: (controller) => controller.enqueue("a beginning"),
          cancel: () => left.resolve(),
        }),
      ),
  );
  expect(await ask(slow, { timeoutMs: 50 })).toEqual(failed(`the tool did not answer within 50 ms; ${UNSURE}`));
  await left.promise;
});

test("a call that is cancelled ends at once, before and within the reply", async () => {
  const cancelled = failed("the call was cancelled before the tool answered");
  let asked = 0;
  const controller = new AbortController();
  const left = Promise.withResolvers<void>();
  const url = serve((request) => {
    asked++;
    request.signal.addEventListener("abort", () => left.resolve());
    controller.abort();
    return new Promise<Response>(() => {});
  });
  expect(await ask(url, { signal: controller.signal })).toEqual(cancelled);
  await left.promise;
  expect(await ask(url, { signal: controller.signal })).toEqual(cancelled);
  expect(asked).toBe(1);
});

test("a server that is not there, closes, or speaks something else is a failure in words", async () => {
  const gone = Bun.serve({ hostname: "127.0.0.1", port: 0, fetch: () => new Response() });
  await gone.stop(true);
  expect(await ask(`http://127.0.0.1:${gone.port}/callback`)).toEqual(
    failed("the tool could not be reached (ECONNREFUSED)"),
  );
  const closing = await serveBytes((socket) => socket.destroy());
  expect(await ask(closing)).toEqual(failed(`the connection broke off; ${UNSURE} (ECONNRESET)`));
  const garbage = await serveBytes((socket) => socket.end("220 mail.example ESMTP\r\n"));
  expect((await ask(garbage)).text).toStartWith(`the connection broke off; ${UNSURE}`);
  const short = await serveBytes((socket) => {
    socket.write("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf", () => socket.destroy());
  });
  expect((await ask(short)).text).toStartWith(`the tool's answer broke off; ${UNSURE}`);
  for (const url of ["no url", "ftp://127.0.0.1/x", "file:///etc/passwd"]) {
    expect(await ask(url)).toEqual(failed("the tool could not be called: its callback is no http URL"));
  }
});

test("a call is sent once, and not on a connection that the other side has given up", async () => {
  // Keeps the first request's connection open, and drops it at the second one.
  const seen = new Map<Socket, number>();
  let requests = 0;
  const url = await serveBytes((socket) => {
    requests++;
    seen.set(socket, (seen.get(socket) ?? 0) + 1);
    if (seen.get(socket) === 1) socket.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    else socket.destroy();
  });
  for (let call = 0; call < 5; call++) expect(await ask(url)).toEqual(ok("ok"));
  expect(requests).toBe(5);
});

test("url and headers do not come back, whatever the server and the network say", async () => {
  const seen = (request: Request) => JSON.stringify({ url: request.url, headers: Object.fromEntries(request.headers) });
  const secret = "s3cr3t-0123456789";
  const headers = { Authorization: TOKEN, "X-Api-Key": 'quoted "key" value', Accept: "application/json" };
  const echoes: Handler[] = [
    (request) => new Response(seen(request)),
    (request) => Response.json({ text: seen(request) }),
    (request) => Response.json({ error: seen(request) }, { status: 500 }),
    (request) => Response.json({ deep: { all: seen(request) } }),
    (request) => Response.json({ error: "x".repeat(2030) + request.headers.get("authorization") }),
  ];
  for (const echo of echoes) {
    const url = `${serve(echo)}/cap-0123456789abcdef?token=${secret}`;
    const { text } = await ask(url, { callback: { url, headers } });
    for (const hidden of [TOKEN, "tok-0123", secret, "quoted", "cap-0123", new URL(url).host]) {
      expect(text).not.toContain(hidden);
    }
  }
  const gone = Bun.serve({ hostname: "127.0.0.1", port: 0, fetch: () => new Response() });
  await gone.stop(true);
  const url = `http://127.0.0.1:${gone.port}/callback?token=${secret}`;
  expect((await ask(url)).text).not.toContain("127.0.0.1");
  const broken = await ask(url, { callback: { url, headers: { "X-Bad": `line\n${secret}` } } });
  expect(broken).toEqual(failed("the tool could not be called: its callback's headers cannot be sent"));
  // What every client says of itself is no secret: an answer may speak of it.
  const plain = serve(() => new Response("send application/json"));
  expect(await ask(plain, { callback: { url: plain, headers } })).toEqual(ok("send application/json"));
});

test("the proxy of the daemon's environment carries a callback, but where NO_PROXY says otherwise", async () => {
  const url = serve(() => new Response("direct"));
  const proxy = new URL(serve(() => new Response("by proxy"))).origin;
  const program = `
    import { callBack } from "${import.meta.dir}/../../src/tools/call-back.ts";
    const signal = new AbortController().signal;
    const result = await callBack({ callback: { url: "${url}", headers: {} }, order: {}, idempotencyKey: "k", timeoutMs: 30000, signal });
    console.log(result.text);`;
  const answer = async (env: Record<string, string>): Promise<string> => {
    const child = Bun.spawn([process.execPath, "-e", program], { env: { PATH: process.env.PATH ?? "", ...env } });
    return (await child.stdout.text()).trim();
  };
  expect(await answer({ HTTP_PROXY: proxy })).toBe("by proxy");
  expect(await answer({ HTTP_PROXY: proxy, NO_PROXY: "127.0.0.1" })).toBe("direct");
});
