/** Is the transcript of a session there? Sessions are found by id, never by the name of the folder between. */
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { errnoOf } from "../errors.ts";
import type { SessionFiles } from "../harness/port.ts";

/** The path of the main transcript below `configDir`, when there is one that is not empty. */
export async function findTranscript(
  configDir: string,
  files: SessionFiles,
  sessionId: string,
): Promise<string | undefined> {
  const [before, after] = files.main.replaceAll("<id>", sessionId).split("*");
  if (before === undefined) return undefined;
  const candidates =
    after === undefined
      ? [join(configDir, before)]
      : (await entriesOf(join(configDir, before))).map((folder) => join(configDir, before, folder, after));
  for (const path of candidates) {
    // Most folders do not have it: a stat that fails means "not here", whatever the reason.
    const found = await stat(path).catch(() => undefined);
    if (found?.isFile() && found.size > 0) return path;
  }
  return undefined;
}

async function entriesOf(path: string): Promise<string[]> {
  try {
    return await readdir(path);
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return [];
    throw error;
  }
}
