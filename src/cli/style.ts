/** Colours, where there is a terminal that wants them. */
import type { CliIo, Output } from "./io.ts";

export interface Style {
  readonly coloured: boolean;
  dim(text: string): string;
  bold(text: string): string;
  red(text: string): string;
  green(text: string): string;
  yellow(text: string): string;
}

/** For one output of a command. NO_COLOR counts when it is not empty. */
export function styleOf(output: Output, env: CliIo["env"]): Style {
  const coloured = output.isTTY && !env.NO_COLOR && env.TERM !== "dumb";
  const sgr = (open: number, close: number) => (text: string) =>
    coloured && text !== "" ? `\u001b[${open}m${text}\u001b[${close}m` : text;
  return { coloured, dim: sgr(2, 22), bold: sgr(1, 22), red: sgr(31, 39), green: sgr(32, 39), yellow: sgr(33, 39) };
}
