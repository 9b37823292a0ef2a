/** What somebody types at a terminal, with the usual editing. */
import { createInterface } from "node:readline";

export interface ReadTypedOptions {
  readonly input: NodeJS.ReadableStream;
  readonly output: NodeJS.WritableStream;
  readonly question: string;
  /** False: there are more lines to come. */
  readonly isWhole: (text: string) => boolean;
  /** False for terminals that know no escape sequences. */
  readonly editing: boolean;
  readonly signal: AbortSignal;
}

/** Undefined: Ctrl-C, Ctrl-D, or the signal. */
export function readTyped(options: ReadTypedOptions): Promise<string | undefined> {
  const { input, output, question, isWhole, editing, signal } = options;
  return new Promise((resolve) => {
    const reader = createInterface({ input, output, terminal: editing, historySize: 0 });
    const lines: string[] = [];
    let typed: string | undefined;
    let closed = false;
    let looking = false;
    const close = (): void => reader.close();
    const look = (): void => {
      looking = false;
      if (closed) return;
      const text = lines.join("\n");
      if (isWhole(text)) {
        typed = text;
        close();
      } else {
        reader.setPrompt("… ");
        reader.prompt();
      }
    };
    signal.addEventListener("abort", close, { once: true });
    reader.once("SIGINT", close);
    reader.on("line", (line) => {
      lines.push(line);
      // The lines of what is pasted come one after the other, and are one answer.
      if (!looking) setImmediate(look);
      looking = true;
    });
    reader.once("close", () => {
      closed = true;
      signal.removeEventListener("abort", close);
      if (typed === undefined) output.write("\n");
      resolve(typed);
    });
    reader.setPrompt(question);
    reader.prompt();
    if (signal.aborted) close();
  });
}
