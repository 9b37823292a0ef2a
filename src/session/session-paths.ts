/** Which paths below a configuration folder are a session's. A path from a store is believed only when it is one. */
import type { SessionFiles } from "../harness/port.ts";

const SESSION_ID = /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$/;
/** Long enough for what programs write there, and short enough for any file system. */
const MAX_PATH_BYTES = 1024;
const MAX_SEGMENT_BYTES = 255;

/** Files beside a transcript at most. What comes after so many is no work of a turn. */
export const MAX_SIDE_FILES = 10_000;

/** Part of paths and of command lines. */
export function isSessionId(text: string): boolean {
  return SESSION_ID.test(text) && !text.includes("..");
}

/** `main` when it is the transcript's path, `side` when it is one beside it. */
export function kindOfPath(path: string, files: SessionFiles, sessionId: string): "main" | "side" | undefined {
  const segments = path.split("/");
  if (Buffer.byteLength(path) > MAX_PATH_BYTES || !segments.every(isSafeSegment)) return undefined;
  if (matches(segments, patternOf(files.main, sessionId))) return "main";
  const side = patternOf(files.side, sessionId);
  return segments.length > side.length && matches(segments.slice(0, side.length), side) ? "side" : undefined;
}

/** The pattern's parts for one session; "*" stands for any one folder. */
export function patternOf(pattern: string, sessionId: string): string[] {
  return pattern
    .replaceAll("<id>", sessionId)
    .split("/")
    .filter((part) => part !== "" && part !== ".");
}

function matches(segments: readonly string[], pattern: readonly string[]): boolean {
  return segments.length === pattern.length && pattern.every((part, n) => part === "*" || part === segments[n]);
}

function isSafeSegment(segment: string): boolean {
  if (segment === "" || segment === "." || segment === ".." || segment.includes("\0")) return false;
  return Buffer.byteLength(segment) <= MAX_SEGMENT_BYTES && segment.isWellFormed();
}
