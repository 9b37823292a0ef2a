/** `suspension inspect`: what a token holds, and whether it verifies. */
import { type NamedKey, parseKeyList } from "../key-list.ts";
import { readClaims } from "../suspension/claims.ts";
import type { Suspension, SuspensionKeys } from "../suspension/port.ts";
import { openToken, readUnverified, type UnverifiedToken } from "../suspension/token.ts";
import { checkTimes } from "../suspension/verify.ts";
import { defineCommand } from "./command.ts";
import { type CliIo, readAll, UsageError } from "./io.ts";
import { safeLine } from "./safe-text.ts";
import { reportAsJson, reportAsText, type Verdict } from "./suspension-report.ts";

const OPTIONS = {
  file: { type: "string", value: "FILE", about: "read the token from a file" },
  "keys-file": { type: "string", value: "FILE", about: "read the keys from a file, in place of the environment" },
  json: { type: "boolean", about: "one JSON object" },
} as const;

/** Of a script's interest: whether it is good, and not only whether it could be read. */
const VERIFIES = 0;
const DOES_NOT_VERIFY = 1;
const NOT_VERIFIED = 3;

export const { main } = defineCommand({
  usage: "suspension inspect [TOKEN | -] [options]",
  about: [
    "Shows what a suspension holds: which run asks a person for what. With keys it tells whether the suspension",
    "verifies; without them anybody may have written it. Without TOKEN, or with -, it is read from stdin.",
  ],
  options: OPTIONS,
  sections: {
    Environment: ["SUSPENSION_KEYS, SUSPENSION_KEYS_FILE   the keys; the one that the token names is used"],
    "Exit codes": [
      "0    verifies, and is in its time",
      "1    does not verify, is unsigned, has expired, or is no suspension",
      "2    usage",
      "3    could be read, and not verified: there are no keys",
    ],
  },
  positionals: { min: 1, max: 2, name: "an action (inspect)" },
  async run(values, [action = "", argument], io) {
    if (action !== "inspect") throw new UsageError(`there is no action "${safeLine(action, 40)}"`);
    if (values.file !== undefined && argument !== undefined) throw new UsageError("both a TOKEN and --file are given");
    const keys = await readKeys(values["keys-file"], io);
    const token = (await readToken(argument, values.file, io)).trim();
    const unverified = readUnverified(token);
    const suspension = unverified && readClaims(unverified.claims);
    if (!unverified || suspension === undefined || typeof suspension === "string") {
      await io.stderr.write(`dispatchd suspension: ${suspension ?? "this is no suspension"}\n`);
      return DOES_NOT_VERIFY;
    }
    const now = io.clock.now();
    const verdict = await judge(token, unverified, suspension, keys, now);
    const report = { verdict, form: unverified.form, keyId: unverified.keyId, bytes: token.length, suspension };
    await io.stdout.write(values.json ? reportAsJson(report) : reportAsText(report, now));
    if (verdict.type === "good") return VERIFIES;
    return verdict.type === "bad" ? DOES_NOT_VERIFY : NOT_VERIFIED;
  },
});

async function judge(
  token: string,
  { form }: UnverifiedToken,
  suspension: Suspension,
  keys: SuspensionKeys,
  now: number,
): Promise<Verdict> {
  if (keys.length === 0) {
    const reason = form === "unsigned" ? "it is not signed" : "there are no keys to verify it with";
    return checkTimesOnly(suspension, now) ?? { type: "unknown", reason };
  }
  const opened = await openToken(token, keys, suspension.organizationId);
  if (opened.type === "closed" || opened.signedBy === null) {
    return { type: "bad", reason: opened.type === "closed" ? opened.reason : "it is not signed" };
  }
  const untimely = checkTimesOnly(suspension, now);
  return untimely ? { ...untimely, key: opened.signedBy } : { type: "good", key: opened.signedBy };
}

function checkTimesOnly(suspension: Suspension, now: number): Extract<Verdict, { type: "bad" }> | undefined {
  const problem = checkTimes(suspension, now);
  return problem && { type: "bad", reason: problem.reason };
}

async function readToken(argument: string | undefined, file: string | undefined, io: CliIo): Promise<string> {
  if (file !== undefined) return await readFileOf(file, "--file", io);
  return argument === undefined || argument === "-" ? await readAll(io.stdin) : argument;
}

async function readKeys(keysFile: string | undefined, io: CliIo): Promise<readonly NamedKey[]> {
  const { SUSPENSION_KEYS: inline, SUSPENSION_KEYS_FILE: file } = io.env;
  if (keysFile !== undefined) return parseKeys(await readFileOf(keysFile, "--keys-file", io), "--keys-file");
  if (inline && file) throw new UsageError("SUSPENSION_KEYS and SUSPENSION_KEYS_FILE are both set");
  if (inline) return parseKeys(inline, "SUSPENSION_KEYS");
  if (file) return parseKeys(await readFileOf(file, "SUSPENSION_KEYS_FILE", io), "SUSPENSION_KEYS_FILE");
  return [];
}

function parseKeys(text: string, name: string): readonly NamedKey[] {
  const keys = parseKeyList(text);
  if (typeof keys === "string") throw new UsageError(`${name}: ${keys}`);
  return keys;
}

async function readFileOf(path: string, name: string, io: CliIo): Promise<string> {
  try {
    return await readAll(io.readFile(path));
  } catch {
    throw new UsageError(`${name} cannot be read`);
  }
}
