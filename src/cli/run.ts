/** `run`: a turn from the shell. */
import { randomUUID } from "node:crypto";
import type { DispatchInput } from "../client/index.ts";
import { defineCommand } from "./command.ts";
import { CONNECTION, CONNECTION_HELP, connect } from "./connect.ts";
import { EXIT_HELP } from "./exit-codes.ts";
import { type CliIo, readAll, UsageError } from "./io.ts";
import { watchRun } from "./watch-run.ts";

export const { main } = defineCommand({
  usage: "run [options] PROMPT…",
  about: [
    "Dispatches a turn and shows it as it goes: the agent's words on stdout, the rest on stderr.",
    "PROMPT is one text or several words; - reads it from stdin.",
    "Ctrl-C cancels the run, a second one leaves at once.",
  ],
  options: {
    thread: { type: "string", value: "ID", about: "the conversation to go on with; a new one by default" },
    "run-id": { type: "string", value: "ID", about: "made up by default; the same id again never runs twice" },
    model: { type: "string", value: "NAME", about: "the model" },
    mode: { type: "string", value: "MODE", about: "for example plan" },
    cwd: { type: "string", value: "/repo|null", about: "where the turn works; null is an empty folder of the thread" },
    env: { type: "string", multiple: true, value: "NAME[=VALUE]", about: "for the turn; without = from your own" },
    input: { type: "string", value: "FILE", about: "JSON to take the rest of the input from; - is stdin" },
    json: { type: "boolean", about: "frames as they are, one JSON object a line" },
    ...CONNECTION,
  },
  sections: { ...CONNECTION_HELP, "Exit codes": EXIT_HELP },
  positionals: { min: 0, max: Number.POSITIVE_INFINITY, name: "PROMPT" },
  async run(values, words, io) {
    const base = values.input === undefined ? {} : await readInput(values.input, io);
    const prompt = await readPrompt(words, values.input === "-", io);
    const env = readEnv(values.env ?? [], io);
    const input: DispatchInput = {
      ...base,
      threadId: values.thread ?? (typeof base.threadId === "string" ? base.threadId : `cli-${randomUUID()}`),
      ...(prompt === undefined ? {} : { userMessage: { parts: [{ type: "text", text: prompt }] } }),
      ...(values.model === undefined ? {} : { models: values.model }),
      ...(values.mode === undefined ? {} : { mode: values.mode }),
      ...(values.cwd === undefined ? {} : { workspace: { ...asObject(base.workspace), cwd: readCwd(values.cwd) } }),
      ...(env === undefined ? {} : { env: { ...asObject(base.env), ...env } as Record<string, string> }),
    };
    if (input.userMessage === undefined && input.answers === undefined) throw new UsageError("PROMPT is missing");
    const client = await connect(values, io);
    const run = dispatch(() => client.dispatch({ input, ...(values["run-id"] ? { runId: values["run-id"] } : {}) }));
    return watchRun(run, io, { json: values.json ?? false, threadId: input.threadId, onInterrupt: "cancel" });
  },
});

function dispatch<T>(start: () => T): T {
  try {
    return start();
  } catch (thrown) {
    // The client refuses run ids that no URL can name.
    throw thrown instanceof TypeError ? new UsageError(thrown.message) : thrown;
  }
}

async function readPrompt(words: readonly string[], stdinTaken: boolean, io: CliIo): Promise<string | undefined> {
  if (words.length === 0) return undefined;
  if (words.length > 1 || words[0] !== "-") return words.join(" ");
  if (stdinTaken) throw new UsageError("stdin cannot be both the prompt and --input");
  const text = (await readAll(io.stdin)).trim();
  if (text === "") throw new UsageError("there is no prompt on stdin");
  return text;
}

async function readInput(path: string, io: CliIo): Promise<Record<string, unknown>> {
  const name = path === "-" ? "stdin" : path;
  let text: string;
  try {
    text = await readAll(path === "-" ? io.stdin : io.readFile(path));
  } catch (thrown) {
    throw new UsageError(`${name} cannot be read: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
  }
  const input = asObject(parseJson(text));
  if (input === undefined) throw new UsageError(`${name} is no JSON object`);
  return input;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // The caller says what is wrong.
  }
}

/** `NAME=VALUE`, or `NAME` from the own environment: a secret need not stand in the command line. */
function readEnv(items: readonly string[], io: CliIo): Record<string, string> | undefined {
  if (items.length === 0) return undefined;
  const env: Record<string, string> = {};
  for (const item of items) {
    const at = item.indexOf("=");
    const name = at < 0 ? item : item.slice(0, at);
    const value = at < 0 ? io.env[name] : item.slice(at + 1);
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) throw new UsageError(`--env: "${name}" is no name of a variable`);
    if (value === undefined) throw new UsageError(`--env ${name}: it is not set here, and no value was given`);
    env[name] = value;
  }
  return env;
}

function readCwd(text: string): "/repo" | null {
  if (text === "null") return null;
  if (text === "/repo") return text;
  throw new UsageError(`--cwd must be /repo or null, not "${text}"`);
}

function asObject(value: unknown): Record<string, unknown> | undefined {
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  return isObject ? (value as Record<string, unknown>) : undefined;
}
