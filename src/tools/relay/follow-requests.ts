/**
 * Requests of a run's relay directory, from their files to their answers, on the daemon's side.
 *
 *     seen → open → answered → gone       the shim takes the answer and removes both files
 *                 ↘ withdrawn → gone      its file vanished, or its shim died, before there was an answer
 *
 * - A request is told of once, and is what it was when it was read: what is changed in its file later changes nothing.
 * - Whoever dies leaves files; those of a dead shim are removed here, answered or not.
 * - Watching gives speed alone. Everything is found by the poll too.
 */
import type { Clock } from "../../clock/port.ts";
import { errnoOf, messageOf } from "../../errors.ts";
import type { Log } from "../../log/port.ts";
import type { Relay, RelayAnswer, RelayEvents } from "../port.ts";
import { formatAnswer } from "./answer-file.ts";
import type { RelayFolder } from "./folder.ts";
import { countIgnoredFiles, type RelayMetrics } from "./ignored-files.ts";
import type { AnswerSigner } from "./keys.ts";
import { answerFile, MAX_ANSWER_BYTES, MAX_LISTED_BYTES, requestFile, requestOf } from "./names.ts";
import { readRequests } from "./read-requests.ts";
import type { RequestContent } from "./request-file.ts";
import { startOf } from "./shim-process.ts";
import { watchFolder } from "./watch-folder.ts";

const POLL_MS = 500;
/** Requests at once. A turn that asks for more has them found as others end. */
const MAX_OPEN = 512;
/** With those whose answer nobody takes. */
const MAX_KNOWN = 2048;
/** About 100,000 names: to begin to watch takes 0.7 s of work then. */
const MAX_WATCHED_BYTES = 8 * 1024 * 1024;
/** A listing that took 10 ms is not made again for 200. */
const REST_AFTER_LISTING = 20;

export interface FollowOptions {
  /** Somebody else answers: only the files of dead shims are seen to. */
  readonly isOutside: boolean;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: RelayMetrics;
  readonly events: RelayEvents;
}

interface KnownRequest {
  readonly pid: number;
  /** When its shim started, by which that is told from another process of the same id. */
  readonly start: string;
  state: "open" | "answered";
}

export function followRequests(
  { clock, log, metrics, events, isOutside }: FollowOptions,
  folder: RelayFolder,
  signer: AnswerSigner,
): Pick<Relay, "answer" | "stop"> {
  const ignored = countIgnoredFiles(clock, log, metrics);
  const requests = new Map<string, KnownRequest>();
  const strangersAnswers = new Set<string>();
  const answering = new Set<Promise<void>>();
  /** How many of the requests are. */
  let open = 0;
  let polling: Promise<void> | undefined;
  let listAgainAt = 0;
  let isFull = false;
  let stopped = false;

  const reader = readRequests({
    folder,
    clock,
    hasRoom: () => open < MAX_OPEN && requests.size < MAX_KNOWN,
    onRequest: take,
    onFault: (name, why) => ignored.ignore(requestFile(name), why),
  });

  async function take(name: string, { pid, ...request }: RequestContent): Promise<void> {
    const start = await startOf(pid);
    if (stopped) return;
    if (start === undefined) return removePair(name).catch(tellTrouble);
    requests.set(name, { pid, start, state: "open" });
    open++;
    if (!isOutside) events.onRequest({ name, ...request });
  }

  function tellTrouble(error: unknown): void {
    log.warn("relay not readable", { reason: messageOf(error) });
  }

  function onName(file: string): void {
    const name = requestOf(file);
    if (name === undefined) return;
    if (requests.has(name)) void checkPresence(name);
    else reader.note(name);
  }

  function poll(): Promise<void> {
    polling ??= look()
      .catch(tellTrouble)
      .finally(() => {
        polling = undefined;
      });
    return polling;
  }

  async function look(): Promise<void> {
    const names = await list();
    for (const file of names ?? []) {
      const name = requestOf(file);
      if (name !== undefined && !requests.has(name)) reader.note(name);
    }
    // Mostly they are of one shim.
    const starts = new Map<number, Promise<string | undefined>>();
    for (const [name, request] of requests) {
      if (names?.has(requestFile(name)) !== true && !(await checkPresence(name))) continue;
      const { pid, start } = request;
      const startNow = starts.get(pid) ?? startOf(pid);
      starts.set(pid, startNow);
      if ((await startNow) !== start) await removeDead(name);
      else if (names?.has(answerFile(name)) && request.state === "open") tellOfStranger(name);
    }
    ignored.tellRest(false);
  }

  /** Undefined: not now. */
  async function list(): Promise<ReadonlySet<string> | undefined> {
    const before = clock.monotonic();
    if (before < listAgainAt) return undefined;
    const { bytes } = await folder.look();
    if (bytes > MAX_LISTED_BYTES !== isFull) {
      isFull = !isFull;
      if (isFull) log.warn("relay directory too full", { bytes });
    }
    if (isFull) return undefined;
    const names = new Set(await folder.names());
    listAgainAt = before + (clock.monotonic() - before) * REST_AFTER_LISTING;
    return names;
  }

  /** False when the request is gone, which withdraws one that was not answered. */
  async function checkPresence(name: string): Promise<boolean> {
    if (await folder.has(requestFile(name)).catch(() => true)) return true;
    end(name);
    return false;
  }

  async function removeDead(name: string): Promise<void> {
    end(name);
    await removePair(name);
  }

  function end(name: string): void {
    const request = requests.get(name);
    requests.delete(name);
    strangersAnswers.delete(name);
    if (request?.state !== "open") return;
    open--;
    if (!isOutside && !stopped) events.onWithdrawn(name);
  }

  async function removePair(name: string): Promise<void> {
    await folder.remove(requestFile(name));
    await folder.remove(answerFile(name));
  }

  function tellOfStranger(name: string): void {
    if (isOutside || strangersAnswers.has(name)) return;
    strangersAnswers.add(name);
    ignored.ignore(answerFile(name), "not_ours");
  }

  async function publish(name: string, request: KnownRequest, answer: RelayAnswer): Promise<void> {
    request.state = "answered";
    open--;
    try {
      await folder.publish(answerFile(name), await signedText(name, answer));
    } catch (error) {
      if (!isOfAgent(error)) {
        if (requests.get(name) === request) {
          request.state = "open";
          open++;
        }
        throw error;
      }
      log.warn("relay answer not written", { file: answerFile(name), reason: messageOf(error) });
      return;
    }
    // Withdrawn meanwhile, or answered and taken: then nobody else removes the answer.
    if (!(await folder.has(requestFile(name)))) await folder.remove(answerFile(name));
  }

  async function signedText(name: string, answer: RelayAnswer): Promise<string> {
    const text = formatAnswer(await signer.sign(name, answer));
    if (Buffer.byteLength(text) <= MAX_ANSWER_BYTES) return text;
    return formatAnswer(
      await signer.sign(name, { type: "failure", error: "The result is too large to be handed over." }),
    );
  }

  const watch = watchFolder({
    path: folder.path,
    clock,
    onName,
    isTooLarge: async () => (await folder.look()).bytes > MAX_WATCHED_BYTES,
    onGap: () => void poll(),
    onError: (error) => log.warn("relay not watched", { reason: messageOf(error) }),
  });
  const cancelPoll = clock.every(POLL_MS, () => void poll());

  return {
    async answer(name, answer) {
      const request = requests.get(name);
      if (isOutside || request?.state !== "open" || stopped) return;
      const published = publish(name, request, answer);
      const settled = published.catch(() => {}).finally(() => answering.delete(settled));
      answering.add(settled);
      await published;
    },
    async stop() {
      if (stopped) return;
      stopped = true;
      cancelPoll();
      await watch.stop();
      await Promise.all([reader.stop(), polling, ...answering]);
      ignored.tellRest(true);
      await folder.close();
    },
  };
}

/** What a process that owns the directory can bring about. */
function isOfAgent(error: unknown): boolean {
  const codes = ["ENOENT", "ENOTDIR", "EISDIR", "ENOTEMPTY", "EEXIST", "EACCES", "EPERM", "ELOOP", "EBUSY"];
  return codes.includes(errnoOf(error) ?? "");
}
