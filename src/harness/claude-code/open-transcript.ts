/**
 * The transcript of a session, found by its id, whatever the folder is called that Claude Code made of the checkout's path.
 * The agent can have put anything in its place, and the reader may be another user: links are not followed, FIFOs not
 * waited for, and what was opened is a file below the configuration folder.
 */
import { constants } from "node:fs";
import { type FileHandle, lstat, open, readdir, readlink, realpath } from "node:fs/promises";
import { join } from "node:path";
import { errnoOf } from "../../errors.ts";

const READ = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
/** What stands in the way of a path means that nothing is there. */
const NOT_HERE: ReadonlySet<string | undefined> = new Set(["ENOENT", "ENOTDIR", "ELOOP", "EACCES", "ENXIO"]);

export interface Transcript extends AsyncDisposable {
  readonly path: string;
  readonly file: FileHandle;
  /** At the time of opening: what is written later is not read. */
  readonly bytes: number;
}

/** Of two with the same id, the one that was written last. Undefined when there is none that is not empty. */
export async function openTranscript(configDir: string, sessionId: string): Promise<Transcript | undefined> {
  // The id becomes part of a path.
  if (!/^[A-Za-z0-9][A-Za-z0-9._-]*$/.test(sessionId)) return undefined;
  const projects = join(configDir, "projects");
  const found: { readonly path: string; readonly writtenMs: number }[] = [];
  for (const folder of (await ifThere(() => readdir(projects, { withFileTypes: true }))) ?? []) {
    if (!folder.isDirectory()) continue;
    const path = join(projects, folder.name, `${sessionId}.jsonl`);
    const facts = await ifThere(() => lstat(path));
    if (facts?.isFile() && facts.size > 0) found.push({ path, writtenMs: facts.mtimeMs });
  }
  const [newest] = found.sort((a, b) => b.writtenMs - a.writtenMs);
  return newest && ifThere(() => openBelow(configDir, newest.path));
}

async function openBelow(configDir: string, path: string): Promise<Transcript> {
  const file = await open(path, READ);
  try {
    const facts = await file.stat();
    const expected = join(await realpath(configDir), path.slice(configDir.length));
    const isBelow = (await readlink(`/proc/self/fd/${file.fd}`)) === expected;
    if (!isBelow || !facts.isFile()) throw Object.assign(new Error("no file of the session"), { code: "ELOOP" });
    return { path, file, bytes: facts.size, [Symbol.asyncDispose]: () => file.close() };
  } catch (error) {
    await file.close();
    throw error;
  }
}

async function ifThere<T>(look: () => Promise<T>): Promise<T | undefined> {
  try {
    return await look();
  } catch (error) {
    if (NOT_HERE.has(errnoOf(error))) return undefined;
    throw error;
  }
}
