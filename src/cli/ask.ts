/** Puts one question to whoever sits at the terminal: shows all of what is asked, and reads an answer that fits. */
import { type Answer, answer, approve, cancel, deny, type Interrupt, type JsonSchema } from "../client/index.ts";
import { askChoices, choicesOf } from "./ask-choices.ts";
import { describeName } from "./describe-tool.ts";
import type { CliIo } from "./io.ts";
import { columnsOf } from "./run-printer.ts";
import { safeLine } from "./safe-text.ts";
import { styleOf } from "./style.ts";
import { marked, visible, visibleJson } from "./visible-text.ts";

export type Asked =
  | { readonly type: "answered"; readonly answer: Answer }
  /** The signal aborted. */
  | { readonly type: "withdrawn" }
  /** Ctrl-C, or the end of the input. */
  | { readonly type: "left" };

/** What is typed behind a prompt, a line if nothing else is said. Throws Gone when nothing will be. */
export type Read = (question: string, isWhole?: (text: string) => boolean) => Promise<string>;

class Gone extends Error {}

/** Answered by yes or no. */
const APPROVALS: ReadonlySet<string> = new Set<Interrupt["reason"]>(["tool_call", "confirmation"]);

export async function ask(interrupt: Interrupt, io: CliIo, signal: AbortSignal): Promise<Asked> {
  const { person } = io;
  if (!person) throw new Error("there is nobody to ask");
  const read: Read = async (question, isWhole = () => true) => {
    const typed = await person.read(question, isWhole, signal);
    if (typed === undefined) throw new Gone();
    return typed.trim();
  };
  const say = (text: string): Promise<void> => io.stderr.write(text);
  try {
    await say(describe(interrupt, io));
    // A "y" that was meant for something else approves nothing that nobody has seen.
    if (APPROVALS.has(interrupt.reason)) person.forgetTyped();
    return { type: "answered", answer: await readAnswer(interrupt, read, say, columnsOf(io)) };
  } catch (thrown) {
    if (!(thrown instanceof Gone)) throw thrown;
    return { type: signal.aborted ? "withdrawn" : "left" };
  }
}

function describe({ reason, message, metadata }: Interrupt, io: CliIo): string {
  const { toolName, input } = metadata;
  const columns = columnsOf(io);
  const style = styleOf(io.stderr, io.env);
  const said = message === undefined ? "" : ` ${safeLine(message, 1000)}`;
  const heading = `${style.bold(style.yellow(`? ${describeName(toolName)}`))}${said}\n`;
  if (reason === "confirmation") return heading + describePlan(input, columns);
  if (reason === "input_required" && choicesOf(input)) return heading;
  return heading + marked(visibleJson(input), columns);
}

function readAnswer(
  interrupt: Interrupt,
  read: Read,
  say: (text: string) => Promise<void>,
  columns: number,
): Promise<Answer> {
  switch (interrupt.reason) {
    case "tool_call":
      return readYesOrNo(interrupt, read, "Allow this call? [y/n] ", "Why not? (Enter: no reason) ");
    case "confirmation":
      return readYesOrNo(interrupt, read, "Agree to this plan? [y/n] ", "What should be different? (Enter: nothing) ");
    case "input_required": {
      const choices = choicesOf(interrupt.metadata.input);
      return choices ? askChoices(interrupt, choices, read, say, columns) : readPayload(interrupt, read, say);
    }
    default:
      return readPayload(interrupt, read, say);
  }
}

async function readYesOrNo(interrupt: Interrupt, read: Read, question: string, why: string): Promise<Answer> {
  if (await isYes(read, question)) return approve(interrupt);
  const reason = await read(why);
  return deny(interrupt, reason === "" ? undefined : reason);
}

async function isYes(read: Read, question: string): Promise<boolean> {
  for (;;) {
    const line = (await read(question)).toLowerCase();
    if (line === "y" || line === "yes") return true;
    if (line === "n" || line === "no") return false;
  }
}

async function readPayload(interrupt: Interrupt, read: Read, say: (text: string) => Promise<void>): Promise<Answer> {
  const { responseSchema: schema } = interrupt;
  if (schema) await say(`  an answer has to fit ${safeLine(JSON.stringify(schema), 500)}\n`);
  for (;;) {
    const text = await read("Your answer, JSON or text (Enter: none) ", isWholePayload);
    if (text === "") {
      if (await isYes(read, "Leave it unanswered? [y/n] ")) return cancel(interrupt);
      continue;
    }
    const payload = payloadOf(text, schema);
    if (payload !== undefined) return answer(interrupt, payload);
    await say("  this has to be JSON, and is none (a text that begins with { or [ is written in quotes)\n");
  }
}

/** JSON may be pasted, or typed, over several lines; an empty one ends it in any case. */
export function isWholePayload(text: string): boolean {
  return !BEGINS_AS_JSON.test(text) || parseJson(text) !== undefined || /\n\s*$/.test(text);
}

/** What was typed: JSON where it is some, unless a text is wanted. Undefined: it has to be JSON, and is none. */
export function payloadOf(text: string, schema: JsonSchema | undefined): unknown {
  const type = schema?.type;
  const wanted = typeof type === "string" ? [type] : Array.isArray(type) ? type : undefined;
  const value = parseJson(text);
  if (wanted?.length === 1 && wanted[0] === "string") return typeof value === "string" ? value : text;
  const mayBeText = wanted === undefined || wanted.includes("string");
  // An account number of twenty digits, or a version 1.10, would go on as another one.
  if (typeof value === "number" && mayBeText && String(value) !== text) return text;
  if (value !== undefined) return value;
  return mayBeText && !BEGINS_AS_JSON.test(text) ? text : undefined;
}

const BEGINS_AS_JSON = /^\s*[{[]/;

/** The plan as the text that it is, and whatever is to be agreed to beside it. */
function describePlan(input: unknown, columns: number): string {
  const { plan, ...rest } = (typeof input === "object" && input !== null ? input : {}) as { plan?: unknown };
  if (typeof plan !== "string") return marked(visibleJson(input), columns);
  const more = Object.keys(rest).length === 0 ? "" : marked(visibleJson(rest), columns);
  return marked(visible(plan), columns) + more;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // Then it is a text.
  }
}
