/** `sessions`: what a store of sessions holds. Reads it directly, whether a daemon runs or not. */
import { parseKeyList } from "../key-list.ts";
import { storeAt } from "../session/inspect-store.ts";
import type { SessionKeys } from "../session/sealing.ts";
import { type DiskSource, sourceIn } from "../session/store-place.ts";
import { defineCommand, type Values, wholeNumber } from "./command.ts";
import { SESSIONS_EXIT, SESSIONS_EXIT_HELP } from "./exit-codes.ts";
import { type CliIo, readAll, UsageError } from "./io.ts";
import { exportSession } from "./sessions-export.ts";
import { list, prune, show, verifyAll, verifyOne } from "./sessions-list.ts";

const OPTIONS = {
  store: { type: "string", value: "DIR", about: "the store; else APP_ROOT/org/home/dispatchd-sessions" },
  threads: {
    type: "string",
    value: "FILE",
    about: "ls, verify: ids of threads that may be sealed, one a line; - is stdin",
  },
  json: { type: "boolean", about: "one JSON object a line" },
  out: { type: "string", value: "DIR", about: "export: write all files of the session into this folder" },
  "older-than": { type: "string", value: "DAYS", about: "prune: threads that nobody wrote to for so many days" },
  "dry-run": { type: "boolean", about: "prune: only tell which" },
} as const;

export interface SessionsCall {
  readonly store: string;
  readonly keys: SessionKeys;
  /** Ids of threads, for folders that do not tell theirs. */
  readonly threads: readonly string[];
  readonly json: boolean;
  readonly io: CliIo;
}

export const { main } = defineCommand({
  usage: "sessions ls|show|verify|export|prune [THREAD] [options]",
  about: ["Looks into a store of sessions: the folder dispatchd-sessions of an org volume, or a copy of it."],
  options: OPTIONS,
  sections: {
    Actions: [
      "ls              the threads",
      "show THREAD     the saves of a thread, and what each adds",
      "verify [THREAD] reads and checks everything",
      "export THREAD   the transcript on stdout, as JSON lines; with --out every file",
      "prune           removes threads that nobody wrote to for --older-than days",
    ],
    Environment: [
      "SESSION_KEYS, SESSION_KEYS_FILE   the keys of a sealed store; its threads are found by their ids alone",
      "APP_ROOT, WORKDIR                 where org/home is; else the working directory",
    ],
    "Exit codes": SESSIONS_EXIT_HELP,
  },
  positionals: { min: 1, max: 2, name: "an action (ls, show, verify, export, prune)" },
  async run(values, [action = "", thread], io) {
    const call: SessionsCall = {
      store: values.store ?? `${io.env.APP_ROOT || io.env.WORKDIR || "."}/org/home/dispatchd-sessions`,
      keys: await readKeys(io),
      threads: values.threads === undefined ? [] : await readThreads(values.threads, io),
      json: values.json === true,
      io,
    };
    const act = actOf(values, action, thread);
    const store = await storeAt(call.store);
    if (store !== undefined) return await act({ ...call, store });
    await io.stderr.write(`dispatchd sessions: there is no store at ${call.store}\n`);
    return SESSIONS_EXIT.noStore;
  },
});

type Act = (call: SessionsCall) => Promise<number>;

function actOf(values: Values<typeof OPTIONS>, action: string, thread: string | undefined): Act {
  if (action !== "export") refuse(values, ["out"], "export");
  if (action !== "prune") refuse(values, ["older-than", "dry-run"], "prune");
  if (action !== "ls" && (action !== "verify" || thread !== undefined)) {
    refuse(values, ["threads"], "ls, and for verify of a whole store");
  }
  switch (action) {
    case "ls":
      none(thread);
      return list;
    case "show":
      return onThread(action, thread, show);
    case "verify":
      return thread === undefined ? verifyAll : onThread(action, thread, verifyOne);
    case "export":
      return onThread(action, thread, (call, source) => exportSession(call, source, values.out));
    case "prune": {
      none(thread);
      const days = wholeNumber(values["older-than"], "older-than", 1);
      if (days === undefined) throw new UsageError("--older-than is missing");
      return (call) => prune(call, days, values["dry-run"] === true);
    }
    default:
      throw new UsageError(`there is no action "${action}"`);
  }
}

function refuse(values: Values<typeof OPTIONS>, names: readonly (keyof typeof OPTIONS)[], action: string): void {
  for (const name of names) if (values[name] !== undefined) throw new UsageError(`--${name} is for ${action}`);
}

function none(thread: string | undefined): void {
  if (thread !== undefined) throw new UsageError(`too many arguments: ${thread}`);
}

function onThread(
  action: string,
  thread: string | undefined,
  work: (call: SessionsCall, source: DiskSource) => Promise<number>,
): Act {
  if (thread === undefined) throw new UsageError(`${action} needs a thread's id`);
  return async (call) => {
    const source = sourceIn(call.store, thread, call.keys);
    await using _open = source.folder;
    return await work(call, source);
  };
}

async function readKeys(io: CliIo): Promise<SessionKeys> {
  const { SESSION_KEYS: inline, SESSION_KEYS_FILE: file } = io.env;
  if (!inline && !file) return [];
  if (inline && file) throw new UsageError("SESSION_KEYS and SESSION_KEYS_FILE are both set");
  const keys = parseKeyList(inline || (await readFileOf(file ?? "", io)).trim());
  if (typeof keys === "string") throw new UsageError(`SESSION_KEYS: ${keys}`);
  return keys.map(({ key }) => Buffer.from(key.reveal(), "base64url"));
}

async function readThreads(path: string, io: CliIo): Promise<string[]> {
  try {
    const text = await readAll(path === "-" ? io.stdin : io.readFile(path));
    return text.split("\n").filter((line) => line !== "");
  } catch {
    throw new UsageError("--threads cannot be read");
  }
}

async function readFileOf(path: string, io: CliIo): Promise<string> {
  try {
    return await readAll(io.readFile(path));
  } catch {
    throw new UsageError("SESSION_KEYS_FILE cannot be read");
  }
}
