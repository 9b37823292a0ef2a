/**
 * A daemon without an inside: it speaks the protocol (the table of dispatches, frames, keepalives, refusals) over raw
 * sockets, so that a test can cut an answer at any byte, let a connection go mute, or swallow a request. Turns are
 * written by the test.
 */
import { createHmac } from "node:crypto";
import { createServer, type Socket } from "node:net";
import { HTTP_STATUS, type HttpErrorCode } from "../../src/errors.ts";
import type { Frame, Outcome, Settled } from "../../src/frames/frame.ts";

/** What happens to the next request. `cut` and `mute` count bytes of the raw answer, head included. */
export type Fault =
  /** The connection closes before the request is looked at. */
  | { readonly type: "lose" }
  /** It is carried out, and the answer ends after so many bytes. */
  | { readonly type: "cut"; readonly bytes: number }
  /** It is carried out, and after so many bytes nothing more comes, nor an end. */
  | { readonly type: "mute"; readonly bytes: number }
  /** It is carried out, and the body breaks behind the keepalive that it opens with, or comes to an orderly end there. */
  | { readonly type: "barren"; readonly orderly: boolean }
  /** Somebody else answers. */
  | {
      readonly type: "answer";
      readonly status: number;
      readonly headers?: Record<string, string>;
      readonly body?: string;
    };

export interface SeenRequest {
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Readonly<Record<string, unknown>>;
}

export interface FakeDaemonOptions {
  readonly token?: string;
  readonly bootId?: string;
  /** 0: none. */
  readonly keepaliveMs?: number;
  readonly port?: number;
  /** What a turn does, called when one starts. */
  readonly turn?: (attempt: FakeAttempt) => void;
  /** Called when a run that waits was given answers. */
  readonly answered?: (attempt: FakeAttempt, answers: readonly FakeAnswer[]) => void;
  /** Asked before a dispatch starts anything: the body of a 409 `stale`, or undefined. */
  readonly staleness?: (input: Readonly<Record<string, unknown>>) => Record<string, unknown> | undefined;
}

export interface FakeAnswer {
  readonly interruptId: string;
  readonly status: string;
  readonly payload?: unknown;
}

export class FakeAttempt {
  readonly lines: string[] = [];
  readonly readers = new Set<Answer>();
  owner: Answer | undefined;
  handedToOwner = 0;
  keepalives = 0;
  outcome: Outcome | undefined;
  settled: Settled | undefined;
  ended = false;
  /** Ids of the questions that wait for an answer. */
  readonly asked = new Set<string>();
  /** The answers that were taken, as JSON, by the question's id. */
  readonly answers = new Map<string, string>();

  constructor(
    readonly runId: string,
    readonly threadId: string,
    readonly number: number,
    readonly input: Readonly<Record<string, unknown>>,
  ) {}

  /** One frame; its seq is counted here. */
  frame(frame: Partial<Frame>): this {
    this.lines.push(`${JSON.stringify({ seq: this.lines.length + 1, chunks: [], ...frame })}\n`);
    for (const reader of this.readers) reader.flush();
    return this;
  }

  text(delta: string): this {
    return this.frame({ chunks: [{ type: "text-delta", id: "t", delta }] });
  }

  /** A `waiting` frame: these are all the questions that are open now. */
  ask(interrupts: readonly { readonly id: string }[], more: Record<string, unknown> = {}): this {
    this.asked.clear();
    for (const { id } of interrupts) this.asked.add(id);
    return this.frame({ waiting: { interrupts, suspension: "token", until: "2026-01-02T03:14:05.000Z", ...more } });
  }

  conclude(outcome: Outcome): this {
    if (this.outcome) return this;
    this.asked.clear();
    this.outcome = outcome;
    return this.frame({ outcome });
  }

  end(settled: Settled = { saved: true }): this {
    const error = this.outcome?.type === "failed" ? { error: this.outcome.error } : {};
    this.settled = settled;
    this.ended = true;
    return this.frame({ settled, ...error, done: true });
  }

  /** From preparation to last frame. */
  whole(...deltas: string[]): this {
    this.frame({ preparation: { home: "none", skills: "none", waitedMs: 0, session: "fresh" } });
    for (const delta of deltas) this.text(delta);
    return this.conclude({ type: "finished", usage: { inputTokens: 3, outputTokens: 5 } }).end();
  }

  summary(): Record<string, unknown> {
    const { runId, threadId, number, outcome, settled, ended, lines, readers } = this;
    const state = ended ? "ended" : outcome ? "settling" : "running";
    const error = outcome?.type === "failed" ? { error: outcome.error } : {};
    const facts = { runId, attempt: number, threadId, state, startedAt: "2026-01-02T03:04:05.000Z" };
    return { ...facts, lastSeq: lines.length, readers: readers.size, outcome, settled, ...error };
  }
}

/** The answer to one request, and, while it streams, a reader of an attempt. */
class Answer {
  #sent = 0;
  #closed = false;
  #next: number;
  #timer: ReturnType<typeof setInterval> | undefined;

  constructor(
    private readonly socket: Socket,
    private readonly fault: Fault | undefined,
    private readonly attempt: FakeAttempt | undefined = undefined,
    after = 0,
  ) {
    this.#next = after;
  }

  head(status: number, headers: Record<string, string>): void {
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
    this.write(`HTTP/1.1 ${status} Status\r\n${lines.join("")}Connection: close\r\n\r\n`);
  }

  /** Reads the attempt to its end, a chunk of the body for each frame, behind a keepalive that sends the head off. */
  stream(keepaliveMs: number): void {
    const { attempt } = this;
    if (!attempt) return;
    this.socket.once("close", () => this.leave());
    this.chunk("\n");
    if (this.fault?.type === "barren") {
      if (this.fault.orderly) this.finish();
      // Not in the same moment: then the other side's platform would drop the byte before it.
      else setTimeout(() => this.leave(), 10);
      return;
    }
    attempt.readers.add(this);
    if (keepaliveMs > 0) {
      this.#timer = setInterval(() => {
        attempt.keepalives++;
        this.chunk("\n");
      }, keepaliveMs);
    }
    this.flush();
  }

  flush(): void {
    const { attempt } = this;
    if (!attempt) return;
    while (!this.#closed && this.#next < attempt.lines.length) {
      this.chunk(attempt.lines[this.#next++] ?? "");
      if (attempt.owner === this) attempt.handedToOwner = this.#next;
    }
    if (attempt.ended) this.finish();
  }

  /** The orderly end of a body. */
  finish(): void {
    if (this.#closed) return;
    this.write("0\r\n\r\n");
    if (this.isMute()) return;
    this.#close(() => this.socket.end());
  }

  /** Nothing more comes, an end neither. */
  isMute(): boolean {
    return this.fault?.type === "mute" && this.#sent >= this.fault.bytes;
  }

  leave(): void {
    this.#close(() => this.socket.destroy());
  }

  chunk(text: string): void {
    const bytes = Buffer.from(text);
    this.write(Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from("\r\n")]));
  }

  write(data: string | Buffer): void {
    if (this.#closed) return;
    const bytes = Buffer.from(data as string);
    const limit =
      this.fault?.type === "cut" || this.fault?.type === "mute" ? this.fault.bytes : Number.POSITIVE_INFINITY;
    const part = bytes.subarray(0, Math.max(0, limit - this.#sent));
    if (part.length > 0) this.socket.write(part);
    this.#sent += bytes.length;
    if (this.#sent < limit || limit === Number.POSITIVE_INFINITY) return;
    if (this.fault?.type === "cut") this.#close(() => this.socket.end());
  }

  #close(end: () => void): void {
    if (this.#closed) return;
    this.#closed = true;
    clearInterval(this.#timer);
    this.attempt?.readers.delete(this);
    if (this.attempt?.owner === this) this.attempt.owner = undefined;
    end();
  }
}

class Refusal {
  constructor(
    readonly code: HttpErrorCode,
    readonly extra: Record<string, unknown> = {},
    readonly headers: Record<string, string> = {},
  ) {}
}

export class FakeDaemon {
  readonly requests: SeenRequest[] = [];
  /** Consumed one a request. Undefined entries let a request pass. */
  readonly faults: (Fault | undefined)[] = [];
  /** What happens to a request for which `faults` says nothing. */
  always: Fault | undefined;
  /** `runId#attempt` of every turn that started, also before a restart. */
  readonly starts: string[] = [];
  readonly runs = new Map<string, FakeAttempt>();
  readonly dropped = new Map<string, FakeAttempt>();
  readonly tombstones = new Set<string>();
  token: string;
  bootId: string;
  draining = false;
  readonly #sockets = new Set<Socket>();
  readonly #server = createServer((socket) => this.#accept(socket));
  #port = 0;

  constructor(readonly options: FakeDaemonOptions = {}) {
    this.token = options.token ?? "test-token-0123456789";
    this.bootId = options.bootId ?? "boot-1";
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  async listen(): Promise<this> {
    await new Promise<void>((resolve) => this.#server.listen(this.#port, "127.0.0.1", resolve));
    this.#port = (this.#server.address() as { port: number }).port;
    return this;
  }

  /** Closes the port and every connection. `listen` opens the same port again. */
  async stop(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    this.cutAll();
    await closed;
  }

  cutAll(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  /** The pod is another one: same address, no memory. */
  forget(bootId: string): void {
    this.runs.clear();
    this.dropped.clear();
    this.bootId = bootId;
  }

  /** Keeps of a run what is kept of dropped ones. */
  drop(runId: string): void {
    const attempt = this.runs.get(runId);
    if (!attempt) throw new Error(`no run ${runId}`);
    this.runs.delete(runId);
    this.dropped.set(runId, attempt);
  }

  /** The next attempt of a run, as somebody else's takeover starts it. */
  takeOver(runId: string): FakeAttempt {
    return this.#start(runId, this.attempt(runId).input);
  }

  attempt(runId: string): FakeAttempt {
    const attempt = this.runs.get(runId);
    if (!attempt) throw new Error(`no run ${runId}`);
    return attempt;
  }

  #accept(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on("close", () => this.#sockets.delete(socket));
    socket.on("error", () => {}); // A client that goes away in mid-write is what is tested.
    let bytes = Buffer.alloc(0);
    const onData = (piece: Buffer): void => {
      bytes = Buffer.concat([bytes, piece]);
      const end = bytes.indexOf("\r\n\r\n");
      if (end < 0) return;
      const [line = "", ...rest] = bytes.subarray(0, end).toString("latin1").split("\r\n");
      const headers = Object.fromEntries(
        rest.map((header) => {
          const colon = header.indexOf(":");
          return [header.slice(0, colon).toLowerCase(), header.slice(colon + 1).trim()];
        }),
      );
      const length = Number(headers["content-length"] ?? 0);
      if (bytes.length < end + 4 + length) return;
      socket.off("data", onData);
      const [method = "", target = "/"] = line.split(" ");
      const url = new URL(target, "http://fake");
      const body = length > 0 ? JSON.parse(bytes.subarray(end + 4).toString("utf8")) : {};
      this.#handle({ method, path: url.pathname, query: url.searchParams, headers, body }, socket);
    };
    socket.on("data", onData);
  }

  #handle(request: SeenRequest, socket: Socket): void {
    this.requests.push(request);
    const fault = this.faults.length > 0 ? this.faults.shift() : this.always;
    try {
      if (fault?.type === "lose") socket.destroy();
      else if (fault?.type === "answer") this.#answer(socket, undefined, fault.status, fault.body ?? "", fault.headers);
      else this.#route(request, socket, fault);
    } catch (thrown) {
      if (!(thrown instanceof Refusal)) throw thrown;
      const body = JSON.stringify({ error: thrown.code, ...thrown.extra });
      this.#answer(socket, fault, HTTP_STATUS[thrown.code], body, thrown.headers);
    }
  }

  #route(request: SeenRequest, socket: Socket, fault: Fault | undefined): void {
    const { method, query, headers } = request;
    const [, root = "", id, tail] = request.path.split("/").map(decodeURIComponent);
    const json = (value: unknown): void => this.#answer(socket, fault, 200, JSON.stringify(value));
    const name = `${method} /${root}${id === undefined ? "" : "/:id"}${tail === undefined ? "" : `/${tail}`}`;
    if (name !== "GET /health" && headers.authorization !== `Bearer ${this.token}`) throw new Refusal("unauthorized");
    switch (name) {
      case "GET /health":
        json(this.#health(query.get("nonce")));
        break;
      case "POST /dispatch":
        this.#dispatch(request.body, socket, fault);
        break;
      case "POST /runs/:id/answers": {
        const answers = request.body.answers as FakeAnswer[];
        const attempt = this.#find(id ?? "");
        this.#answers(attempt, answers);
        json({ accepted: answers.length });
        this.options.answered?.(attempt, answers);
        break;
      }
      case "GET /idle":
        json({ idleSince: "2026-01-02T03:04:05.000Z", idleMs: 1234 });
        break;
      case "GET /metrics":
        this.#answer(socket, fault, 200, "dispatchd_runs 1\n");
        break;
      case "POST /config":
        if (typeof request.body.token === "string") this.token = request.body.token;
        this.#answer(socket, fault, 204, "");
        break;
      case "GET /runs":
        json({ runs: [...this.runs.values()].map((run) => run.summary()) });
        break;
      case "DELETE /runs/:id":
        this.#cancel(id ?? "");
        this.#answer(socket, fault, 204, "");
        break;
      case "GET /runs/:id":
        json(this.#find(id ?? "").summary());
        break;
      case "GET /runs/:id/frames": {
        const attempt = query.get("attempt");
        const place = {
          after: Number(query.get("after") ?? 0),
          attempt: attempt === null ? undefined : Number(attempt),
        };
        this.#read(this.#find(id ?? ""), place, socket, fault, false);
        break;
      }
      default:
        throw new Refusal("not_found");
    }
  }

  #dispatch(body: Readonly<Record<string, unknown>>, socket: Socket, fault: Fault | undefined): void {
    const { runId, after, attempt: wanted } = body as { runId: string; after?: number; attempt?: number };
    const { threadId } = body.input as { threadId: string };
    if (this.tombstones.has(runId)) throw new Refusal("tombstoned");
    const known = this.runs.get(runId);
    if (known && known.threadId !== threadId) throw new Refusal("run_conflict");
    const taken = known !== undefined && after === undefined && !known.outcome && known.owner !== undefined;
    if (known && !taken) {
      const from = after ?? (known.outcome ? 0 : known.handedToOwner);
      this.#read(known, { after: from, attempt: wanted }, socket, fault, true);
      return;
    }
    if (!known && this.dropped.has(runId)) throw this.#missing(runId);
    if (!known && after) throw new Refusal("unknown_run");
    if (this.draining) throw new Refusal("draining", {}, { "Retry-After": "2" });
    const stale = this.options.staleness?.(body.input as Record<string, unknown>);
    if (stale) throw new Refusal("stale", stale);
    const attempt = this.#start(runId, body.input as Record<string, unknown>);
    this.#read(attempt, { after: 0, attempt: undefined }, socket, fault, true);
    this.options.turn?.(attempt);
  }

  /** All or nothing; the same answer again is as good as the first. */
  #answers({ asked, answers, outcome }: FakeAttempt, given: readonly FakeAnswer[]): void {
    if (outcome && outcome.type !== "interrupt") throw new Refusal("ended", { outcome });
    if (outcome) {
      const detail = "the run does not wait any more: it is answered by a new dispatch";
      throw new Refusal("stale", { detail, interruptId: given[0]?.interruptId, reason: detail, dead: false });
    }
    for (const { interruptId, ...answer } of given) {
      const before = answers.get(interruptId);
      if (before === JSON.stringify(answer) || (asked.has(interruptId) && before === undefined)) continue;
      const detail = before === undefined ? "the run asks no such question" : "it was answered otherwise";
      throw new Refusal("stale", { detail, interruptId, reason: detail, dead: true });
    }
    for (const { interruptId, ...answer } of given) {
      asked.delete(interruptId);
      answers.set(interruptId, JSON.stringify(answer));
    }
  }

  #start(runId: string, input: Readonly<Record<string, unknown>>): FakeAttempt {
    const known = this.runs.get(runId);
    known?.conclude(failed("superseded", "a newer dispatch took over")).end({ saved: false });
    const attempt = new FakeAttempt(runId, String(input.threadId), (known?.number ?? 0) + 1, input);
    this.runs.set(runId, attempt);
    this.starts.push(`${runId}#${attempt.number}`);
    return attempt;
  }

  #cancel(runId: string): void {
    this.tombstones.add(runId);
    const run = this.runs.get(runId);
    if (run && !run.outcome) run.conclude(failed("cancelled", "somebody asked for it")).end({ saved: false });
  }

  #read(
    attempt: FakeAttempt,
    place: { readonly after: number; readonly attempt: number | undefined },
    socket: Socket,
    fault: Fault | undefined,
    owner: boolean,
  ): void {
    const { number, lines, ended } = attempt;
    if (place.attempt !== undefined && place.attempt !== number) throw new Refusal("superseded", { attempt: number });
    if (place.after > lines.length && !ended) throw new Refusal("bad_after");
    if (ended && place.after >= lines.length) {
      this.#answer(socket, fault, 204, "");
      return;
    }
    const answer = new Answer(socket, fault, attempt, place.after);
    if (owner) {
      attempt.owner?.finish();
      attempt.owner = answer;
    }
    answer.head(200, {
      "Content-Type": "application/x-ndjson",
      "Transfer-Encoding": "chunked",
      "X-Run-Attempt": String(number),
      "X-Boot-Id": this.bootId,
    });
    answer.stream(this.options.keepaliveMs ?? 0);
  }

  #find(runId: string): FakeAttempt {
    const attempt = this.runs.get(runId);
    if (!attempt) throw this.#missing(runId);
    return attempt;
  }

  #missing(runId: string): Refusal {
    const dropped = this.dropped.get(runId);
    if (!dropped) return new Refusal("unknown_run");
    const { outcome, settled, lines, number } = dropped;
    return new Refusal("ended", { outcome, settled, lastSeq: lines.length, attempt: number });
  }

  #health(nonce: string | null): Record<string, unknown> {
    const { bootId, draining } = this;
    const proof = createHmac("sha256", this.token).update(`${bootId}\n${nonce}`).digest("hex");
    const health = { bootId, version: "0.0.0", draining, isolation: "none", runs: this.runs.size };
    return nonce === null ? health : { ...health, proof };
  }

  #answer(
    socket: Socket,
    fault: Fault | undefined,
    status: number,
    body: string,
    headers: Record<string, string> = {},
  ): void {
    const answer = new Answer(socket, fault);
    const length: Record<string, string> = status === 204 ? {} : { "Content-Length": String(Buffer.byteLength(body)) };
    answer.head(status, { ...length, "X-Boot-Id": this.bootId, ...headers });
    answer.write(body);
    if (!answer.isMute()) socket.end();
  }
}

export function failed(code: (Outcome & { type: "failed" })["error"]["code"], message: string): Outcome {
  return { type: "failed", error: { code, message } };
}

export function startFakeDaemon(options: FakeDaemonOptions = {}): Promise<FakeDaemon> {
  return new FakeDaemon(options).listen();
}

/** Waits for a condition, looking again and again. Fails loudly after `ms`. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  what = "the condition",
  ms = 10_000,
): Promise<void> {
  const giveUpAt = performance.now() + ms;
  while (!(await condition())) {
    if (performance.now() > giveUpAt) throw new Error(`waited ${ms} ms for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}
