/** The compiled daemon as the benches ask it: with a harness of their own, and limits that no bench runs into. */
import { TestDaemon } from "../test/support/daemon.ts";
import { type Exchange, exchange } from "./http.ts";

/** Above what the largest bench prints. */
const NO_LIMIT_BYTES = `${4 * 2 ** 30}`;

export function startBenchDaemon(
  harness: readonly string[] | null,
  env: Readonly<Record<string, string>> = {},
): Promise<TestDaemon> {
  return TestDaemon.start({ harness, env: { RUN_MAX_BYTES: NO_LIMIT_BYTES, ...env } });
}

let dispatches = 0;

/** A turn on a thread of its own, read to its end. Throws when it did not end well. */
export async function dispatchTurn(daemon: TestDaemon, input: Record<string, unknown> = {}): Promise<Exchange> {
  const answer = await exchange(dispatchRequest(daemon, input));
  checkEnd(answer);
  return answer;
}

export function dispatchRequest({ port, token }: TestDaemon, input: Record<string, unknown> = {}) {
  const runId = `bench-${++dispatches}`;
  const body = JSON.stringify({ runId, input: { threadId: runId, userMessage: "Say hello.", ...input } });
  return { port, token, method: "POST", path: "/dispatch", body, runId };
}

export function checkEnd(answer: Exchange): void {
  const whole = answer.status === 200 && answer.tail.includes('"outcome":{"type":"finished"');
  if (!whole || !answer.tail.includes('"done":true')) {
    throw new Error(`a run did not finish: ${answer.status} ${answer.tail}`);
  }
}
