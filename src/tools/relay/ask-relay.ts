/**
 * The shim's side of a relay directory: a call becomes a request's file, and waits for the answer beside it. Whoever may
 * write in the directory may write answers, so one counts when its signature verifies, and until then the call waits on.
 * The pair is removed here, whatever came of the call.
 */
import { watch } from "node:fs";
import { errnoOf, messageOf } from "../../errors.ts";
import { randomHex } from "../../random-hex.ts";
import type { RelayAnswer } from "../port.ts";
import { parseAnswer } from "./answer-file.ts";
import { openFolder, type RelayFolder } from "./folder.ts";
import { createVerifier } from "./keys.ts";
import { answeredBy, answerFile, MAX_ANSWER_BYTES, MAX_REQUEST_BYTES, requestFile } from "./names.ts";
import { formatRequest, parseRequest } from "./request-file.ts";

/** An event can be missed, and nothing tells that the directory is gone. */
const POLL_MS = 1000;

export interface RelayCall {
  readonly toolName: string;
  readonly toolCallId: string;
  readonly args: unknown;
}

export type AskResult =
  | RelayAnswer
  /** Nobody was asked, or nobody can answer any more. `error` is for the model. */
  | { readonly type: "lost"; readonly error: string }
  | { readonly type: "cancelled" };

export interface Asker {
  /** Never rejects. The files of the call are gone when it resolves. */
  ask(call: RelayCall, signal: AbortSignal): Promise<AskResult>;
  /** The directory itself, for what else is to be read from it. */
  readonly folder: RelayFolder;
  /** Ends the waiting of all calls; resolves when their files are gone. */
  close(): Promise<void>;
}

export interface AskerOptions {
  readonly directory: string;
  readonly runId: string;
  readonly publicKey: string;
  /** Facts for a person, each once. */
  readonly say: (text: string) => void;
}

interface Waiting {
  readonly resolve: (result: AskResult) => void;
  /** Is the request's file there? Before, it cannot be missed. */
  published: boolean;
  /** Of the answer that was looked at last, and since when it is as it is. */
  version?: string;
  since: number;
  /** It is not looked at again. */
  ignored: boolean;
  /** One look at a time: events come in pairs. */
  looking: "no" | "yes" | "again";
}

/** Throws when there is no such directory, or the key is none. */
export async function openAsker({ directory, runId, publicKey, say }: AskerOptions): Promise<Asker> {
  const verify = await createVerifier(runId, publicKey);
  const folder = await openFolder(directory, null);
  const calls = new Map<string, Waiting>();
  const running = new Set<Promise<unknown>>();
  const closing = new AbortController();
  let ignored = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;

  async function ask(call: RelayCall, signal: AbortSignal): Promise<AskResult> {
    const text = formatRequest({ ...call, pid: process.pid });
    if (Buffer.byteLength(text) > MAX_REQUEST_BYTES) {
      return { type: "lost", error: `The arguments are too large: ${call.toolName} takes less than 1 MiB of JSON.` };
    }
    // What its reader would not take for a request would wait for ever.
    if (typeof parseRequest(text) === "string") {
      return {
        type: "lost",
        error: `The arguments of ${call.toolName} cannot be handed over: they are nested too deeply.`,
      };
    }
    const name = randomHex(16);
    const { promise, resolve } = Promise.withResolvers<AskResult>();
    const waiting: Waiting = { resolve, published: false, since: 0, ignored: false, looking: "no" };
    const cancel = (): void => resolve({ type: "cancelled" });
    const ends = AbortSignal.any([signal, closing.signal]);
    ends.addEventListener("abort", cancel, { once: true });
    if (ends.aborted) return { type: "cancelled" };
    calls.set(name, waiting);
    try {
      await folder.publish(requestFile(name), text);
      waiting.published = true;
      pollSoon();
      return await promise;
    } catch (error) {
      return { type: "lost", error: `${call.toolName} could not be asked for: ${whyNot(error)}.` };
    } finally {
      calls.delete(name);
      ends.removeEventListener("abort", cancel);
      await folder.remove(requestFile(name)).catch(() => {}); // The run's folder is removed as a whole.
      await folder.remove(answerFile(name)).catch(() => {});
    }
  }

  /** Is the answer there? */
  async function look(name: string): Promise<void> {
    const waiting = calls.get(name);
    if (!waiting) return;
    if (waiting.looking !== "no") {
      waiting.looking = "again";
      return;
    }
    do {
      waiting.looking = "yes";
      await readAnswer(name, waiting);
    } while (hasToLookAgain(waiting));
    waiting.looking = "no";
  }

  async function readAnswer(name: string, waiting: Waiting): Promise<void> {
    const read = await folder.read(answerFile(name), MAX_ANSWER_BYTES);
    if (read.type === "absent") return;
    const version = read.type === "text" ? read.version : read.why;
    if (version === waiting.version && waiting.ignored) return;
    if (version !== waiting.version) waiting.since = performance.now();
    waiting.version = version;
    const signed = read.type === "text" ? parseAnswer(read.text) : undefined;
    if (signed && (await verify(name, signed).catch(() => false))) {
      waiting.resolve(signed.answer);
      return;
    }
    // One that is no answer may be one that is being written, until it stays as it is.
    waiting.ignored = signed !== undefined || performance.now() - waiting.since >= POLL_MS;
    if (waiting.ignored && ++ignored === 1)
      say("an answer without a valid signature was ignored; more are not told of");
  }

  function pollSoon(): void {
    if (calls.size === 0) return;
    timer ??= setTimeout(async () => {
      await poll().catch((error: unknown) => say(`the relay directory is not readable: ${messageOf(error)}`));
      timer = undefined;
      if (!closing.signal.aborted) pollSoon();
    }, POLL_MS);
  }

  async function poll(): Promise<void> {
    const removed = (await folder.look()).removed;
    const names = new Set(removed ? [] : await folder.names());
    for (const [name, waiting] of calls) {
      if (names.has(answerFile(name))) await look(name);
      if (!waiting.published || names.has(requestFile(name))) continue;
      // The listing may be older than the request.
      if (!removed && (await folder.has(requestFile(name)))) continue;
      await look(name);
      if (waiting.looking === "no") waiting.resolve({ type: "lost", error: lostText(removed) });
    }
  }

  const watcher = watchNames(folder.path, (file) => {
    const name = answeredBy(file);
    if (name !== undefined && calls.has(name)) void look(name);
  });
  if (!watcher) say("the relay directory cannot be watched: answers come up to a second later");

  return {
    folder,
    ask(call, signal) {
      const asked = ask(call, signal);
      running.add(asked);
      return asked.finally(() => running.delete(asked));
    },
    async close() {
      closing.abort();
      clearTimeout(timer);
      watcher?.close();
      await Promise.all(running);
      await folder.close();
      if (ignored > 1) say(`${ignored} answers were ignored`);
    },
  };
}

/** The plain watcher: the shim starts with every turn, and has one folder to watch. Undefined: there are too many. */
function watchNames(path: string, onName: (name: string) => void): { close(): void } | undefined {
  try {
    const watcher = watch(path, (_event, name) => {
      if (name !== null) onName(name);
    });
    watcher.on("error", () => {}); // The poll finds it all the same.
    return watcher;
  } catch {
    return undefined;
  }
}

/** Somebody else may have asked for it meanwhile. */
function hasToLookAgain({ looking }: Waiting): boolean {
  return looking === "again";
}

function lostText(removed: boolean): string {
  return removed
    ? "The run that would answer this call is over: its relay directory is gone."
    : "The request of this call was taken away before it was answered.";
}

function whyNot(error: unknown): string {
  const code = errnoOf(error);
  if (code === "ENOENT") return "the relay directory is gone, so the run is over";
  return code === undefined ? messageOf(error) : `the relay directory cannot be written (${code})`;
}
