/** The process of one flight, from outside. */
import { spawn } from "node:child_process";
import { messageOf } from "../errors.ts";
import type { WorkerAnswer, WorkerOrder } from "./worker-program.ts";

/** What a job may answer. A listing of 50,000 names is 2 MB. */
const MAX_ANSWER_BYTES = 64 << 20;
const MAX_COMPLAINT_CHARS = 2048;

/**
 * Calls at a time. A mount answers many in the time of one: 200 skills at 10 ms a request are looked through in 1.5 s, and
 * with the two threads of a small pod in 16. Threads that are not used are not started.
 */
const ENVIRONMENT = { UV_THREADPOOL_SIZE: "32" };

export interface WorkerProcess {
  readonly pid: number | undefined;
  /** What it answered. Never rejects; never settles for a worker that is lost in a call. */
  readonly answer: Promise<WorkerAnswer>;
  /** Resolves when the process is reaped. */
  readonly gone: Promise<void>;
  /** SIGKILL, and our ends of its pipes are closed: they never reach their end when it cannot die. */
  abandon(): void;
}

export function startWorker([command = "", ...args]: readonly string[], order: WorkerOrder): WorkerProcess {
  // In the daemon's own session, so that it is told from what a run left behind. Nothing of our environment: no secret,
  // and nothing by which a run's could be picked up. A working directory that is on no volume.
  const child = spawn(command, args, { stdio: ["pipe", "pipe", "pipe"], env: ENVIRONMENT, cwd: "/" });
  child.unref();
  const { promise: answer, resolve: settle } = Promise.withResolvers<WorkerAnswer>();
  const { promise: gone, resolve: bury } = Promise.withResolvers<void>();
  const lose = (message: string): void => settle({ failed: { code: "worker_lost", message } });

  const chunks: Buffer[] = [];
  let bytes = 0;
  let complaint = "";
  child.stdout.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > MAX_ANSWER_BYTES) {
      lose(`an answer of more than ${MAX_ANSWER_BYTES} bytes`);
      abandon();
      return;
    }
    chunks.push(chunk);
    if (chunk.at(-1) === 0x0a) settle(parseAnswer(Buffer.concat(chunks).toString("utf8")));
  });
  child.stderr.setEncoding("utf8");
  child.stderr.on("data", (text: string) => {
    complaint = (complaint + text).slice(-MAX_COMPLAINT_CHARS);
  });
  for (const stream of [child.stdin, child.stdout, child.stderr]) stream.on("error", () => {}); // Its end says it.
  child.on("error", (error) => {
    lose(`could not be started: ${messageOf(error)}`);
    if (child.pid === undefined) bury();
  });
  child.on("exit", () => bury());
  child.on("close", (code, signal) => lose(`ended with ${signal ?? code} and no answer: ${complaint.trim()}`));
  child.stdin.end(JSON.stringify(order));

  function abandon(): void {
    child.kill("SIGKILL");
    for (const stream of [child.stdin, child.stdout, child.stderr]) stream.destroy();
  }
  return { pid: child.pid, answer, gone, abandon };
}

function parseAnswer(text: string): WorkerAnswer {
  try {
    const value = JSON.parse(text) as WorkerAnswer;
    if ("done" in value || typeof value.failed.code === "string") return value;
  } catch {
    // Said below.
  }
  return { failed: { code: "worker_lost", message: "an answer that is none" } };
}
