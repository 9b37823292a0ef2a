/**
 * A harness that does what its prompt says: the user message is JSON, a list of steps; without one, as on a resume,
 * they are `input.steps`, or `RESUMED`. Run by Bun as a program; see `Step` for what it can do. Every turn that starts appends `runId#attempt` to the file named by HARNESS_STARTS.
 */
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { appendFileSync, existsSync, mkdirSync, readFileSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import type { TurnDocument } from "../../src/harness/port.ts";
import { announcementOf, type ScriptedCall, ScriptedCalls } from "./scripted-calls.ts";

export type Step =
  /** A frame of these chunks. */
  | { chunks: unknown[] }
  /** A text part's worth of chunks, one frame each: `count` deltas of `text`, the number in front when asked. */
  | { deltas: number; text?: string; numbered?: boolean; everyMs?: number }
  /** Any line, or any bytes (base64), as they are. */
  | { line: string }
  | { bytes: string }
  /** Any object as a line. */
  | { json: unknown }
  | { stderr: string }
  /**
   * A line more in the transcript of the session that the document names, or of a new one, whose id it says; with all of
   * the transcript in a `data-transcript` chunk: what a model would be sent.
   */
  | { say: string }
  | { sleepMs: number }
  /** Goes on when the file is there. */
  | { waitFor: string }
  /** Makes the file, with the document's JSON in it when `document` is set, or the environment's. */
  | { touch: string; document?: true; env?: true }
  /** A shell command: `wait` for its end, or leave it behind with our stdout and stderr. `$RELAY` is the directory. */
  | { sh: string; wait?: true }
  /**
   * Calls of the run's tools, all at once, through the shim. A result that ends the turn ends it, and no step follows,
   * unless the harness `goesOn` all the same.
   */
  | { calls: ScriptedCall[]; goesOn?: true }
  /** The same, announced, and parked by the harness itself: the turn ends with them. */
  | { parks: (ScriptedCall & { reason?: string; message?: string })[] }
  /** What the document has of answers to an earlier run's questions, in a `data-answers` chunk. */
  | { showAnswers: true }
  | { ignoreTerm: true }
  | { exit: number }
  | { signal: NodeJS.Signals };

/** `start`, a step and a text part named `t`: what deltas need. */
export const OPEN = {
  chunks: [{ type: "start", messageId: "m" }, { type: "start-step" }, { type: "text-start", id: "t" }],
} satisfies Step;
export const CLOSE = { chunks: [{ type: "text-end", id: "t" }, { type: "finish-step" }] } satisfies Step;
export const FINISHED = {
  json: { chunks: [], outcome: { type: "finished", usage: { outputTokens: 3 } } },
} satisfies Step;
export const RESUMED: readonly Step[] = [OPEN, { showAnswers: true }, CLOSE, FINISHED];

function write(bytes: Buffer): void {
  for (let done = 0; done < bytes.length; ) {
    try {
      done += writeSync(1, bytes, done);
    } catch (error) {
      if ((error as { code?: string }).code !== "EAGAIN") throw error;
      Bun.sleepSync(1);
    }
  }
}

const say = (value: unknown): void => write(Buffer.from(`${JSON.stringify(value)}\n`));

/** Where its sessions are, for HARNESS_CAPABILITIES. */
export const SESSION_FILES = { main: "projects/*/<id>.jsonl", side: "projects/*/<id>" };
const newSession = randomUUID();

function speak(text: string, document: { paths: { configDir: string }; session: { id?: string } }): void {
  const id = document.session.id ?? newSession;
  const folder = join(document.paths.configDir, "projects", "scripted");
  const path = join(folder, `${id}.jsonl`);
  mkdirSync(folder, { recursive: true });
  // Begins as the prompt does, which is a list of steps: so the daemon finds the user's message in it.
  appendFileSync(path, `${JSON.stringify([{ text }])}\n`);
  const lines = readFileSync(path, "utf8").split("\n").filter(Boolean);
  const data = lines.map((line) => JSON.parse(line)[0].text);
  say({ chunks: [{ type: "data-transcript", data }], session: { id } });
}

async function until(test: () => boolean): Promise<void> {
  while (!test()) await Bun.sleep(3);
}

function endTurn(outcome: object): never {
  say({ chunks: [{ type: "finish-step" }, { type: "finish", finishReason: "stop" }] });
  say({ chunks: [], outcome });
  process.exit(0);
}

async function take(step: Step, document: TurnDocument, calls: ScriptedCalls): Promise<void> {
  if ("chunks" in step) return say({ chunks: step.chunks });
  if ("deltas" in step) {
    const lines: string[] = [];
    for (let number = 0; number < step.deltas; number++) {
      const delta = `${step.numbered ? `${number} ` : ""}${step.text ?? "x"}`;
      const line = `${JSON.stringify({ chunks: [{ type: "text-delta", id: "t", delta }] })}\n`;
      if (step.everyMs === undefined) lines.push(line);
      else {
        write(Buffer.from(line));
        await Bun.sleep(step.everyMs);
      }
      if (lines.length >= 500) write(Buffer.from(lines.splice(0).join("")));
    }
    return write(Buffer.from(lines.join("")));
  }
  if ("line" in step) return write(Buffer.from(`${step.line}\n`));
  if ("bytes" in step) return write(Buffer.from(step.bytes, "base64"));
  if ("json" in step) return say(step.json);
  if ("say" in step) return speak(step.say, document);
  if ("stderr" in step) return void process.stderr.write(`${step.stderr}\n`);
  if ("sleepMs" in step) return Bun.sleep(step.sleepMs);
  if ("waitFor" in step) return until(() => existsSync(step.waitFor));
  if ("touch" in step) {
    const content = step.document ? JSON.stringify(document) : step.env ? JSON.stringify(process.env) : "";
    return writeFileSync(step.touch, content);
  }
  if ("sh" in step) {
    const args = document.shim?.args ?? [];
    const env = { ...process.env, RELAY: args[args.indexOf("--relay") + 1] ?? "" };
    const child = spawn("/bin/sh", ["-c", step.sh], { stdio: ["ignore", "inherit", "inherit"], env });
    if (step.wait) await new Promise((resolve) => child.on("exit", resolve));
    return;
  }
  if ("calls" in step) {
    if ((await calls.make(step.calls)) && !step.goesOn) endTurn({ type: "finished" });
    return;
  }
  if ("parks" in step) {
    say({ chunks: step.parks.map(announcementOf) });
    const interrupts = step.parks.map(({ id, name, input = {}, reason, message }) => ({
      ...{ toolCallId: id, toolName: name, input, reason, message },
    }));
    return endTurn({ type: "interrupt", interrupts });
  }
  if ("showAnswers" in step) return say({ chunks: [{ type: "data-answers", data: document.answers }] });
  if ("ignoreTerm" in step) return void process.on("SIGTERM", () => {});
  if ("signal" in step) {
    process.kill(process.pid, step.signal);
    return Bun.sleep(60_000);
  }
  process.exit(step.exit);
}

function stepsOf({ userMessage, steps = RESUMED }: Readonly<Record<string, unknown>>): readonly Step[] {
  if (userMessage === undefined) return steps as readonly Step[];
  const { parts, content } = userMessage as { parts?: readonly { text: string }[]; content?: string };
  return JSON.parse(parts?.[0]?.text ?? content ?? String(userMessage));
}

if (import.meta.main) {
  const document = JSON.parse(await Bun.stdin.text()) as TurnDocument;
  const starts = process.env.HARNESS_STARTS;
  if (starts) appendFileSync(starts, `${document.runId}#${document.attempt}\n`);
  const calls = new ScriptedCalls(document.shim, (chunks) => say({ chunks }));
  for (const step of stepsOf(document.input)) await take(step, document, calls);
  process.exit(0);
}
