/** The agent's own questions, which come with options: a number is one of them, and anything else is the answer itself. */
import { type Answer, answer, type Interrupt } from "../client/index.ts";
import type { Read } from "./ask.ts";
import { marked, visible } from "./visible-text.ts";

export interface Choice {
  readonly question: string;
  readonly options: readonly { readonly label: string; readonly description?: string }[];
  readonly several: boolean;
}

/** Undefined for an input of another shape. */
export function choicesOf(input: unknown): readonly Choice[] | undefined {
  const { questions } = fieldsOf(input);
  if (!Array.isArray(questions) || questions.length === 0) return undefined;
  const choices = questions.map(choiceOf);
  return choices.every((choice) => choice !== undefined) ? choices : undefined;
}

export async function askChoices(
  interrupt: Interrupt,
  choices: readonly Choice[],
  read: Read,
  say: (text: string) => Promise<void>,
  columns: number,
): Promise<Answer> {
  const answers: [question: string, chosen: Chosen][] = [];
  for (const choice of choices) {
    const { question, options, several } = choice;
    const lines = options.map(({ label, description }, index) => {
      return `${index + 1}. ${label}${description === undefined ? "" : `: ${description}`}`;
    });
    await say(marked(visible([question, ...lines].join("\n")), columns));
    const hint = several ? "Numbers with commas, or your own words: " : "A number, or your own words: ";
    let chosen: Chosen = "";
    while (chosen === "") chosen = chosenBy(await read(hint), choice);
    answers.push([question, chosen]);
  }
  return answer(interrupt, { answers: Object.fromEntries(answers) });
}

/** Several labels are a list: a label may have a comma. */
type Chosen = string | readonly string[];

/** Empty for a line that chooses nothing. */
function chosenBy(line: string, { options, several }: Choice): Chosen {
  const numbers = several ? line.split(",") : [line];
  const labels = numbers.map((number) => {
    return /^\s*\d+\s*$/.test(number) ? options[Number(number) - 1]?.label : undefined;
  });
  if (!labels.every((label) => label !== undefined)) return line;
  return several ? [...new Set(labels)] : (labels[0] ?? line);
}

function choiceOf(value: unknown): Choice | undefined {
  const { question, options, multiSelect } = fieldsOf(value);
  if (typeof question !== "string" || !Array.isArray(options)) return undefined;
  const read = options.map((option) => {
    const { label, description } = fieldsOf(option);
    if (typeof label !== "string") return undefined;
    return { label, ...(typeof description === "string" ? { description } : {}) };
  });
  if (!read.every((option) => option !== undefined)) return undefined;
  return { question, options: read, several: multiSelect === true };
}

function fieldsOf(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}
