/** Small files of the daemon's own on the pod's disk. Never for a path below APP_ROOT/org, which may hang. */
import { lstat, open, rename, rm } from "node:fs/promises";
import { errnoOf } from "./errors.ts";
import { randomHex } from "./random-hex.ts";

/** A file name for any text: two texts never share one, and no text can leave the folder. */
export function fileNameOf(text: string): string {
  return new Bun.CryptoHasher("sha256").update(text, "utf8").digest("hex").slice(0, 40);
}

/** Replaces a file as a whole: a reader, or a restart, finds the old content or the new one. */
export async function writeWhole(path: string, content: string): Promise<void> {
  const temporary = `${path}.${randomHex(6)}.tmp`;
  try {
    const handle = await open(temporary, "wx", 0o600);
    try {
      const bytes = Buffer.from(content, "utf8");
      for (let done = 0; done < bytes.length; ) {
        const { bytesWritten } = await handle.write(bytes, done, bytes.length - done);
        if (bytesWritten === 0) throw new Error("the disk takes no byte");
        done += bytesWritten;
      }
    } finally {
      await handle.close();
    }
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}

/** Is there anything of this name? A link counts by itself, and is not followed. */
export async function isThere(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    () => false,
  );
}

/**
 * Runs what it is given one after the other: of two changes to one file the one that was asked for last is the one that
 * stays. A failure is its caller's, and stops nothing that comes after it.
 */
export function oneAfterTheOther(): (work: () => Promise<void>) => Promise<void> {
  let last: Promise<void> = Promise.resolve();
  return (work) => {
    const done = last.then(work);
    last = done.catch(() => {}); // The caller hears of it.
    return done;
  };
}

/** The file's text, or undefined when there is none. */
export async function readIfThere(path: string): Promise<string | undefined> {
  try {
    const handle = await open(path, "r");
    try {
      return await handle.readFile("utf8");
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return undefined;
    throw error;
  }
}

/** JSON that a crash may have cut: undefined for anything that is no object. */
export function parseRecord(text: string | undefined): Record<string, unknown> | undefined {
  if (text === undefined) return undefined;
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : undefined;
  } catch {
    return undefined;
  }
}
