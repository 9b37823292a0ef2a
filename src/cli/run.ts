/** `run`: a turn from the shell, and the answers to what it asks. */
import { randomUUID } from "node:crypto";
import type { Client, DispatchInput } from "../client/index.ts";
import { type Conversation, carryOn, type Resumed } from "./carry-on.ts";
import { defineCommand, type Values } from "./command.ts";
import { CONNECTION, CONNECTION_HELP, connect } from "./connect.ts";
import { EXIT_HELP } from "./exit-codes.ts";
import { findRun, resumeFound, resumeStored } from "./find-parked.ts";
import { goOnCommand } from "./go-on-command.ts";
import { UsageError } from "./io.ts";
import { readAnswers, readSuspension } from "./read-files.ts";
import { INPUT, readInput } from "./run-input.ts";

const OPTIONS = {
  ...INPUT,
  "run-id": { type: "string", value: "ID", about: "made up by default; the same id again never runs twice" },
  resume: { type: "string", value: "RUN_ID", about: "go on with a run that waits, as this daemon knows it" },
  suspension: { type: "string", value: "FILE", about: "go on with a suspension: its text, or what --json printed" },
  answers: { type: "string", value: "FILE", about: "JSON array of answers; what they leave open is asked" },
  json: { type: "boolean", about: "frames as they are, one JSON object a line; nothing is asked" },
  ...CONNECTION,
} as const;

export const { main } = defineCommand({
  usage: "run [options] PROMPT…",
  about: [
    "Dispatches a turn and shows it as it goes: the agent's words on stdout, the rest on stderr.",
    "PROMPT is one text or several words; - reads it from stdin.",
    "What the turn asks is asked on the terminal, and the conversation goes on with the answer: in the same turn while it",
    "waits, else in the next one. Without a terminal the questions are printed, and answered by a later call.",
    "Ctrl-C cancels the run, a second one leaves at once; at a question it leaves the turn waiting.",
  ],
  options: OPTIONS,
  sections: { ...CONNECTION_HELP, "Exit codes": EXIT_HELP },
  positionals: { min: 0, max: Number.POSITIVE_INFINITY, name: "PROMPT" },
  async run(values, words, io) {
    const stdinTaken = isStdinTaken(values, words);
    const given = values.answers === undefined ? [] : await readAnswers(values.answers, io);
    const stored = values.suspension === undefined ? undefined : await readSuspension(values.suspension, io);
    const base = await readInput(values, words, io);
    checkResume(values, base);

    const client = await connect(values, io);
    const found = values.resume === undefined ? undefined : await findRun(client, values.resume);
    const threadId = base.threadId ?? (found ? found.threadId : `cli-${randomUUID()}`);
    if (threadId === undefined)
      throw new UsageError(`the daemon has dropped run ${values.resume}: --thread is missing`);
    const input: DispatchInput = { ...base, threadId };
    const conversation: Conversation = {
      io,
      json: values.json ?? false,
      asks: io.person !== undefined && !stdinTaken && !values.json,
      threadId,
      answers: new Map(given.map((answer) => [answer.interruptId, answer])),
      resume: resumer(client, input, values),
      commandFor: (runId) => commandFor(runId, threadId, values),
    };
    if (found) return finish(resumeFound(client, found, conversation), conversation);
    if (stored) return finish(resumeStored(stored, conversation), conversation);
    const runId = values["run-id"];
    const run = startRun(() => client.dispatch({ input, ...(runId === undefined ? {} : { runId }) }));
    return carryOn({ run }, conversation);
  },
});

async function finish(first: Promise<Resumed | number>, conversation: Conversation): Promise<number> {
  const resumed = await first;
  return typeof resumed === "number" ? resumed : carryOn(resumed, conversation);
}

function checkResume({ resume, suspension, answers }: Values<typeof OPTIONS>, base: Partial<DispatchInput>): void {
  if (resume !== undefined && suspension !== undefined) {
    throw new UsageError("--resume and --suspension exclude each other");
  }
  const isResumed = resume !== undefined || suspension !== undefined;
  if (answers !== undefined && !isResumed) {
    throw new UsageError("--answers needs the run that asked: --resume or --suspension");
  }
  if (suspension !== undefined && base.threadId === undefined) {
    throw new UsageError("--suspension needs the conversation that it is of: --thread");
  }
  if (base.userMessage === undefined && base.answers === undefined && !isResumed) {
    throw new UsageError("PROMPT is missing");
  }
}

/** Dispatches what follows. The prompt and the run's id are for the first run of the call, whichever way it begins. */
function resumer(client: Client, input: DispatchInput, values: Values<typeof OPTIONS>): Conversation["resume"] {
  const begins = values.resume !== undefined || values.suspension !== undefined;
  let first: { readonly userMessage?: DispatchInput["userMessage"]; readonly runId?: string | undefined } = begins
    ? { userMessage: input.userMessage, runId: values["run-id"] }
    : {};
  return (suspended, answers) => {
    const { userMessage, runId } = first;
    first = {};
    const said = userMessage === undefined ? {} : { userMessage };
    const named = runId === undefined ? {} : { runId };
    return startRun(() => client.resume(suspended, answers, { input, ...said, ...named }));
  };
}

function commandFor(runId: string | undefined, threadId: string, values: Values<typeof OPTIONS>): string {
  const { model, mode, cwd, tools, hold, callback, input, url, env = [], "token-file": tokenFile } = values;
  const options = { model, mode, cwd, tools, hold, callback, input, url, "token-file": tokenFile };
  return goOnCommand({ runId, threadId, options, env });
}

/** Nobody can type an answer where stdin is read as a file. */
function isStdinTaken(values: Values<typeof OPTIONS>, words: readonly string[]): boolean {
  const paths = [values.input, values.tools, values.answers, values.suspension, words.length === 1 ? words[0] : ""];
  const count = paths.filter((path) => path === "-").length;
  if (count > 1) throw new UsageError("stdin cannot be two things at once");
  return count > 0;
}

function startRun<T>(start: () => T): T {
  try {
    return start();
  } catch (thrown) {
    // The client refuses run ids that no URL can name.
    throw thrown instanceof TypeError ? new UsageError(thrown.message) : thrown;
  }
}
