/** Can a session be resumed? Found by its id, whatever the folder is called that Claude Code made of the checkout's path. */
import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";

export function hasTranscript(configDir: string, sessionId: string): boolean {
  const projects = join(configDir, "projects");
  // The id becomes part of a path and of a command line.
  if (!/^[A-Za-z0-9][A-Za-z0-9._-]*$/.test(sessionId)) return false;
  return folders(projects).some((folder) => isNonEmptyFile(join(projects, folder, `${sessionId}.jsonl`)));
}

function folders(path: string): string[] {
  try {
    return readdirSync(path);
  } catch {
    // No sessions on this pod yet.
    return [];
  }
}

function isNonEmptyFile(path: string): boolean {
  const found = statSync(path, { throwIfNoEntry: false });
  return found?.isFile() === true && found.size > 0;
}
