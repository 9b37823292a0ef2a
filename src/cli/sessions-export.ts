/** `sessions export`: the session that a run would go on from, as plain files. */
import { mkdir, open } from "node:fs/promises";
import { dirname, join } from "node:path";
import { errnoOf, messageOf } from "../errors.ts";
import { type ExportedFile, exportThread, hasSaves } from "../session/inspect-store.ts";
import type { SaveSource } from "../session/read-save.ts";
import { SESSIONS_EXIT } from "./exit-codes.ts";
import type { CliIo } from "./io.ts";
import type { SessionsCall } from "./sessions.ts";
import { noThread } from "./sessions-list.ts";

export async function exportSession(
  { io, json }: SessionsCall,
  source: SaveSource,
  out: string | undefined,
): Promise<number> {
  const found = await exportThread(source);
  const [main] = found?.files ?? [];
  if (!found || !main) {
    if (!(await hasSaves(source))) return noThread(io);
    await io.stderr.write("dispatchd sessions: the store has no whole save of this thread\n");
    return SESSIONS_EXIT.damaged;
  }
  if (out === undefined) return printFile(main, io);
  let failed = false;
  for (const file of found.files) {
    const written = await writeFile(file, out);
    if (typeof written === "string") failed = true;
    const record =
      typeof written === "string" ? { path: file.path, error: written } : { path: file.path, bytes: written };
    if (json) await io.stdout.write(`${JSON.stringify(record)}\n`);
    else await io.stdout.write(`${file.path}  ${written}\n`);
  }
  return failed ? SESSIONS_EXIT.damaged : SESSIONS_EXIT.ok;
}

async function printFile(file: ExportedFile, io: CliIo): Promise<number> {
  // As bytes: not all of them need be text, and a transcript may begin with a mark of its encoding.
  for await (const piece of file.pieces) await io.stdout.write(piece);
  return SESSIONS_EXIT.ok;
}

/** How many bytes; a text says what went wrong. Nothing that is there is overwritten. */
async function writeFile({ path, pieces }: ExportedFile, out: string): Promise<number | string> {
  if (path.startsWith("/") || path.split("/").includes("..")) return "its path leads out of the folder";
  const target = join(out, path);
  let bytes = 0;
  try {
    await mkdir(dirname(target), { recursive: true });
    await using file = await open(target, "wx", 0o600);
    for await (const piece of pieces) {
      await file.writeFile(piece);
      bytes += piece.length;
    }
    return bytes;
  } catch (error) {
    return reasonOf(error);
  }
}

function reasonOf(error: unknown): string {
  const code = errnoOf(error);
  if (code === "EEXIST" || code === "ENOTDIR") return "something is there already, and is left as it is";
  return code === undefined ? messageOf(error) : `it cannot be written: ${code}`;
}
