/** A transcript with some of its lines replaced: the old file or the new one, whenever one looks. */
import { constants } from "node:fs";
import { type FileHandle, open, rename, rm } from "node:fs/promises";
import type { Transcript } from "./open-transcript.ts";

const COPY_BYTES = 1 << 20;
const NEW = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;

/** Of the bytes from `start` to before `end`. */
export interface Replacement {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/** `addition` comes last. What an attempt that was killed left of its work is overwritten by the next one. */
export async function rewriteTranscript(
  transcript: Transcript,
  replacements: readonly Replacement[],
  addition: string,
): Promise<void> {
  const temporary = `${transcript.path}.tmp`;
  await rm(temporary, { force: true, recursive: true });
  const { mode, uid, gid } = await transcript.file.stat();
  const target = await open(temporary, NEW, 0o600);
  try {
    let at = 0;
    for (const { start, end, text } of [...replacements].sort((a, b) => a.start - b.start)) {
      await copy(transcript.file, target, at, start);
      await target.appendFile(text);
      at = end;
    }
    await copy(transcript.file, target, at, transcript.bytes);
    await target.appendFile(addition);
    if (uid !== process.getuid?.() || gid !== process.getgid?.()) await target.chown(uid, gid);
    await target.chmod(mode & 0o777);
    await target.close();
    await rename(temporary, transcript.path);
  } catch (error) {
    await target.close().catch(() => undefined); // It may be closed already.
    await rm(temporary, { force: true });
    throw error;
  }
}

async function copy(from: FileHandle, to: FileHandle, start: number, end: number): Promise<void> {
  const buffer = Buffer.allocUnsafe(Math.min(COPY_BYTES, end - start));
  for (let at = start; at < end; ) {
    const { bytesRead } = await from.read(buffer, 0, Math.min(buffer.length, end - at), at);
    if (bytesRead === 0) throw new Error("the transcript has become shorter");
    // Writes the rest of what a full disk took only in part, or throws.
    await to.appendFile(buffer.subarray(0, bytesRead));
    at += bytesRead;
  }
}
