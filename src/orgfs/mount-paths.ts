/** Where volumes are. These texts go into the inputs of flights; no file call of the daemon ever gets one. */
import { join } from "node:path";

/** The volume that holds sessions and the org's own skills. */
export const HOME = "home";

export function orgRootOf(appRoot: string): string {
  return join(appRoot, "org");
}

export function mountPathOf(appRoot: string, volume: string): string {
  return join(orgRootOf(appRoot), volume);
}

const MAX_NAME_BYTES = 255;

/** True for what can be the name of one file, and so cannot lead anywhere else. */
export function isPathSegment(text: string): boolean {
  if (text === "" || text === "." || text === ".." || /[/\0]/.test(text)) return false;
  return Buffer.byteLength(text) <= MAX_NAME_BYTES && text.isWellFormed();
}
