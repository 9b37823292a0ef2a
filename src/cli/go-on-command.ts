/**
 * The command line that goes on with a run, in place of the one that began it: what it took from files and from the
 * environment is named, and no secret is repeated.
 */
import { safeText } from "./safe-text.ts";

export interface GoOn {
  /** Absent: no daemon knows the run, and its suspension goes into a file. */
  readonly runId: string | undefined;
  readonly threadId: string;
  /** Options by name, as they were given. */
  readonly options: Readonly<Record<string, string | undefined>>;
  /** `NAME`, or `NAME=VALUE`, of which the value is left out. */
  readonly env: readonly string[];
}

export function goOnCommand({ runId, threadId, options, env }: GoOn): string {
  const from = runId === undefined ? ["--suspension", "FILE"] : ["--resume", runId];
  const words = ["dispatchd", "run", ...from, "--thread", threadId];
  for (const [name, value] of Object.entries(options)) if (value !== undefined) words.push(`--${name}`, value);
  for (const item of env) words.push("--env", item.split("=")[0] ?? "");
  return words.map(quote).join(" ");
}

function quote(word: string): string {
  const safe = safeText(word);
  return /^[\w@%+=:,./-]+$/.test(safe) ? safe : `'${safe.replaceAll("'", "'\\''")}'`;
}
