/** What a command reads from files that its options name; `-` is stdin. */
import type { Answer, Interrupt, Suspended, Tool } from "../client/index.ts";
import { type CliIo, readAll, UsageError } from "./io.ts";
import { resumableOf } from "./lost-waiting.ts";

export async function readText(path: string, io: CliIo): Promise<string> {
  try {
    return await readAll(path === "-" ? io.stdin : io.readFile(path));
  } catch (thrown) {
    const reason = thrown instanceof Error ? thrown.message : String(thrown);
    throw new UsageError(`${nameOf(path)} cannot be read: ${reason}`);
  }
}

export async function readObject(path: string, io: CliIo): Promise<Record<string, unknown>> {
  const value = asObject(parseJson(await readText(path, io)));
  if (value === undefined) throw new UsageError(`${nameOf(path)} is no JSON object`);
  return value;
}

/** The daemon checks them; here a file is only told from another one. */
export async function readTools(path: string, io: CliIo): Promise<readonly Tool[]> {
  const tools = parseJson(await readText(path, io));
  if (!Array.isArray(tools) || !tools.every((tool) => typeof asObject(tool)?.name === "string")) {
    throw new UsageError(`${nameOf(path)} is no JSON array of tools, each with a name`);
  }
  return tools as readonly Tool[];
}

export async function readAnswers(path: string, io: CliIo): Promise<readonly Answer[]> {
  const answers = parseJson(await readText(path, io));
  if (!Array.isArray(answers) || !answers.every(isAnswer)) {
    throw new UsageError(
      `${nameOf(path)} is no JSON array of answers: [{"interruptId": "…", "status": "resolved", "payload": …}]`,
    );
  }
  const twice = answers.find(({ interruptId }, n) => answers.findIndex((one) => one.interruptId === interruptId) < n);
  if (twice) throw new UsageError(`${nameOf(path)} answers "${twice.interruptId}" twice`);
  return answers;
}

/**
 * A suspension as one has it: what `run --json` printed, also of a run that was lost while it waited, an outcome or a
 * result out of it, or the bare text, which does not say what was asked.
 */
export async function readSuspension(path: string, io: CliIo): Promise<Suspended> {
  const text = (await readText(path, io)).trim();
  if (/^[A-Za-z0-9._-]+$/.test(text)) return { suspension: text };
  const values = [parseJson(text), ...text.split("\n").reverse().map(parseJson)];
  for (const value of values) {
    const said = asObject(value);
    const outcome = asObject(said?.outcome);
    const stored = storedIn(outcome) ?? storedIn(said) ?? resumableOf(said?.waiting);
    if (stored) return { ...stored, ...generationIn(values) };
    // It waits for nothing more, whatever it asked before.
    if (outcome?.type === "finished" || said?.waiting !== undefined) break;
  }
  throw new UsageError(`${nameOf(path)} holds no suspension: neither its text, nor frames of a run that waits`);
}

export function asObject(value: unknown): Record<string, unknown> | undefined {
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  return isObject ? (value as Record<string, unknown>) : undefined;
}

function storedIn(value: Record<string, unknown> | undefined): Suspended | undefined {
  const { interrupts, suspension } = value ?? {};
  if (!Array.isArray(interrupts) || typeof suspension !== "string") return undefined;
  return { interrupts: interrupts as Interrupt[], suspension };
}

function generationIn(values: readonly unknown[]): Pick<Suspended, "settled"> {
  for (const value of values) {
    const generation = asObject(asObject(value)?.settled)?.generation;
    if (typeof generation === "string") return { settled: { generation } };
  }
  return {};
}

function isAnswer(value: unknown): value is Answer {
  const { interruptId, status } = asObject(value) ?? {};
  return typeof interruptId === "string" && (status === "resolved" || status === "cancelled");
}

function nameOf(path: string): string {
  return path === "-" ? "stdin" : path;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // The caller says what is wrong.
  }
}
