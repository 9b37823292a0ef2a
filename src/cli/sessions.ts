/** `sessions`: what a store of sessions holds. Reads it directly, whether a daemon runs or not. */
import { parseKeyList } from "../key-list.ts";
import type { SessionKeys } from "../session/sealing.ts";
import { type DiskSource, sourceIn } from "../session/store-place.ts";
import { defineCommand, type Values, wholeNumber } from "./command.ts";
import { type CliIo, readAll, UsageError } from "./io.ts";
import { exportSession } from "./sessions-export.ts";
import { list, prune, show, verify } from "./sessions-list.ts";

const OPTIONS = {
  store: { type: "string", value: "DIR", about: "the store; else APP_ROOT/org/home/dispatchd-sessions" },
  json: { type: "boolean", about: "one JSON object a line" },
  out: { type: "string", value: "DIR", about: "export: write all files of the session into this folder" },
  "older-than": { type: "string", value: "DAYS", about: "prune: threads that nobody wrote to for so many days" },
  "dry-run": { type: "boolean", about: "prune: only tell which" },
} as const;

export interface SessionsCall {
  readonly store: string;
  readonly keys: SessionKeys;
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
    "Exit codes": ["0    done", "1    something is damaged, or there is no such thread", "2    usage"],
  },
  positionals: { min: 1, max: 2, name: "an action (ls, show, verify, export, prune)" },
  async run(values, [action = "", thread], io) {
    const call: SessionsCall = {
      store: values.store ?? `${io.env.APP_ROOT || io.env.WORKDIR || "."}/org/home/dispatchd-sessions`,
      keys: await readKeys(io),
      json: values.json === true,
      io,
    };
    if (values.out !== undefined && action !== "export") throw new UsageError("--out is for export");
    if (action !== "prune") refuse(values, ["older-than", "dry-run"], "prune");
    switch (action) {
      case "ls":
        none(thread);
        return list(call);
      case "show":
        return await on(sourceOf(call, thread, action), (source) => show(call, source));
      case "verify":
        if (thread === undefined) return verify(call, undefined);
        return await on(sourceOf(call, thread, action), (source) => verify(call, source));
      case "export":
        return await on(sourceOf(call, thread, action), (source) => exportSession(call, source, values.out));
      case "prune": {
        none(thread);
        const days = wholeNumber(values["older-than"], "older-than", 1);
        if (days === undefined) throw new UsageError("--older-than is missing");
        return prune(call, days, values["dry-run"] === true);
      }
      default:
        throw new UsageError(`there is no action "${action}"`);
    }
  },
});

function refuse(values: Values<typeof OPTIONS>, names: readonly (keyof typeof OPTIONS)[], action: string): void {
  for (const name of names) if (values[name] !== undefined) throw new UsageError(`--${name} is for ${action}`);
}

function none(thread: string | undefined): void {
  if (thread !== undefined) throw new UsageError(`too many arguments: ${thread}`);
}

function sourceOf({ store, keys }: SessionsCall, thread: string | undefined, action: string): DiskSource {
  if (thread === undefined) throw new UsageError(`${action} needs a thread's id`);
  return sourceIn(store, thread, keys);
}

async function on<T>(source: DiskSource, work: (source: DiskSource) => Promise<T>): Promise<T> {
  await using _open = source.folder;
  return await work(source);
}

async function readKeys(io: CliIo): Promise<SessionKeys> {
  const { SESSION_KEYS: inline, SESSION_KEYS_FILE: file } = io.env;
  if (!inline && !file) return [];
  if (inline && file) throw new UsageError("SESSION_KEYS and SESSION_KEYS_FILE are both set");
  const keys = parseKeyList(inline || (await readFileOf(file ?? "", io)).trim());
  if (typeof keys === "string") throw new UsageError(`SESSION_KEYS: ${keys}`);
  return keys.map(({ key }) => Buffer.from(key.reveal(), "base64url"));
}

async function readFileOf(path: string, io: CliIo): Promise<string> {
  try {
    return await readAll(io.readFile(path));
  } catch {
    throw new UsageError("SESSION_KEYS_FILE cannot be read");
  }
}
