/** Is the transcript of a session there? Sessions are found by id, never by the name of the folder between. */
import type { SessionFiles } from "../harness/port.ts";
import { findPaths } from "./find-paths.ts";
import { patternOf } from "./session-paths.ts";

/** The path of the main transcript below `configDir`, when there is one that is not empty. */
export async function findTranscript(
  configDir: string,
  files: SessionFiles,
  sessionId: string,
): Promise<string | undefined> {
  const found = await findPaths(configDir, patternOf(files.main, sessionId));
  return found.find(({ facts }) => facts.isFile() && facts.size > 0)?.path;
}
