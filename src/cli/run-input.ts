/** The input of a dispatch, out of the options of `run`. */
import type { DispatchInput } from "../client/index.ts";
import { type Options, type Values, wholeNumber } from "./command.ts";
import { type CliIo, readAll, UsageError } from "./io.ts";
import { asObject, readObject, readTools } from "./read-files.ts";

export const INPUT = {
  thread: { type: "string", value: "ID", about: "the conversation to go on with; a new one by default" },
  model: { type: "string", value: "NAME", about: "the model" },
  mode: { type: "string", value: "MODE", about: "for example plan" },
  cwd: { type: "string", value: "/repo|null", about: "where the turn works; null is an empty folder of the thread" },
  env: { type: "string", multiple: true, value: "NAME[=VALUE]", about: "for the turn; without = from your own" },
  tools: { type: "string", value: "FILE", about: "JSON array of the turn's tools" },
  hold: {
    type: "string",
    value: "SECONDS",
    about: "how long the turn waits for an answer before it ends; 0 by default",
  },
  callback: { type: "string", value: "URL", about: "who carries out callback tools; its headers come with --input" },
  input: { type: "string", value: "FILE", about: "JSON to take the rest of the input from; - is stdin" },
} as const satisfies Options;

/** `threadId` may be missing. */
export async function readInput(
  values: Values<typeof INPUT>,
  words: readonly string[],
  io: CliIo,
): Promise<Partial<DispatchInput>> {
  const base = values.input === undefined ? {} : await readObject(values.input, io);
  const tools = values.tools === undefined ? undefined : await readTools(values.tools, io);
  const prompt = await readPrompt(words, io);
  const env = readEnv(values.env ?? [], io);
  const holdSeconds = wholeNumber(values.hold, "hold");
  const { thread, model, mode, cwd, callback } = values;
  const threadId = thread ?? (typeof base.threadId === "string" ? base.threadId : undefined);
  const { threadId: _, ...rest } = base;
  return {
    ...rest,
    ...(threadId === undefined ? {} : { threadId }),
    ...(prompt === undefined ? {} : { userMessage: { parts: [{ type: "text", text: prompt }] } }),
    ...(model === undefined ? {} : { models: model }),
    ...(mode === undefined ? {} : { mode }),
    ...(cwd === undefined ? {} : { workspace: { ...asObject(base.workspace), cwd: readCwd(cwd) } }),
    ...(env === undefined ? {} : { env: { ...asObject(base.env), ...env } as Record<string, string> }),
    ...(tools === undefined ? {} : { tools }),
    ...(holdSeconds === undefined ? {} : { clientTools: { ...asObject(base.clientTools), holdSeconds } }),
    ...(callback === undefined ? {} : { callback: { ...asObject(base.callback), url: readUrl(callback) } }),
  };
}

async function readPrompt(words: readonly string[], io: CliIo): Promise<string | undefined> {
  if (words.length === 0) return undefined;
  if (words.length > 1 || words[0] !== "-") return words.join(" ");
  const text = (await readAll(io.stdin)).trim();
  if (text === "") throw new UsageError("there is no prompt on stdin");
  return text;
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

function readUrl(text: string): string {
  if (URL.canParse(text) && /^https?:$/.test(new URL(text).protocol)) return text;
  throw new UsageError(`--callback must begin with http:// or https://, not "${text}"`);
}
