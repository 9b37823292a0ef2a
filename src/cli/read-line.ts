/** One line from a terminal, with the usual editing. */
import { createInterface } from "node:readline";

export interface ReadLineOptions {
  readonly input: NodeJS.ReadableStream;
  readonly output: NodeJS.WritableStream;
  readonly question: string;
  /** False for terminals that know no escape sequences. */
  readonly editing: boolean;
  readonly signal: AbortSignal;
}

/** Undefined: Ctrl-C, Ctrl-D, or the signal. */
export function readLine({ input, output, question, editing, signal }: ReadLineOptions): Promise<string | undefined> {
  return new Promise((resolve) => {
    const lines = createInterface({ input, output, terminal: editing, historySize: 0 });
    let typed: string | undefined;
    const close = (): void => lines.close();
    signal.addEventListener("abort", close, { once: true });
    lines.once("SIGINT", close);
    lines.once("line", (line) => {
      typed = line;
      close();
    });
    lines.once("close", () => {
      signal.removeEventListener("abort", close);
      if (typed === undefined) output.write("\n");
      resolve(typed);
    });
    lines.setPrompt(question);
    lines.prompt();
    if (signal.aborted) close();
  });
}
