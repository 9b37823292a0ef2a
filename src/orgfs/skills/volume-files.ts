/**
 * File work on a volume, within a worker. Each call has a time limit of its own: the first that passes it condemns the
 * volume for this attempt, so that what else was brought is told before the process is lost.
 *
 * Whoever can write the volume may put anything at any name: no link is followed in the last one, and nothing but a
 * regular file is read or written (a FIFO would hang, and count as the volume's hanging).
 */
import { constants } from "node:fs";
import { type FileHandle, lstat, mkdir, open, readdir, unlink } from "node:fs/promises";
import { errnoOf } from "../../errors.ts";

const { O_CREAT, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_TRUNC, O_WRONLY } = constants;

export interface VolumeFile {
  readonly size: number;
  readonly mtimeMs: number;
}

export interface VolumeFiles {
  /** Names in a folder; undefined when there is no such folder. Throws ELOOP for a link. */
  list(path: string): Promise<readonly string[] | undefined>;
  /** Undefined: there is nothing. "folder" and "other": no regular file. Links are not followed. */
  look(path: string): Promise<VolumeFile | "folder" | "other" | undefined>;
  /** The whole file. Throws EFBIG when it has more than `maxBytes`. */
  read(path: string, maxBytes: number): Promise<Buffer>;
  /** Writes a file at its final name; folders on the way have to be there. */
  write(path: string, bytes: Uint8Array): Promise<void>;
  makeFolder(path: string): Promise<void>;
  /** A file; one that is gone already is no error. */
  remove(path: string): Promise<void>;
}

/** Thrown by the call that took too long, and by every later one. */
export class VolumeHangs extends Error {
  readonly code = "hangs";
  /** `waited`: it was this very call that took too long. */
  constructor(readonly waited: boolean) {
    super("the volume does not answer");
  }
}

export const diskFiles: VolumeFiles = {
  async list(path) {
    const handle = await open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW).catch(
      ignoring(["ENOENT", "ENOTDIR", "ELOOP"]),
    );
    if (!handle) {
      const found = await lstat(path).catch(ignoring(["ENOENT", "ENOTDIR"]));
      if (found?.isSymbolicLink()) throw Object.assign(new Error("it is a link"), { code: "ELOOP" });
      return undefined;
    }
    try {
      return await readdir(`/proc/self/fd/${handle.fd}`);
    } finally {
      await handle.close();
    }
  },
  async look(path) {
    const found = await lstat(path).catch(ignoring(["ENOENT", "ENOTDIR"]));
    if (!found) return undefined;
    if (found.isFile()) return { size: found.size, mtimeMs: found.mtimeMs };
    return found.isDirectory() ? "folder" : "other";
  },
  async read(path, maxBytes) {
    const handle = await openRegular(path, O_RDONLY);
    try {
      const pieces: Buffer[] = [];
      for (let total = 0; ; ) {
        const piece = Buffer.alloc(Math.min(1 << 20, maxBytes + 1));
        const { bytesRead } = await handle.read(piece, 0, piece.length, total);
        if (bytesRead === 0) return Buffer.concat(pieces);
        total += bytesRead;
        if (total > maxBytes) throw Object.assign(new Error("the file is too large"), { code: "EFBIG" });
        pieces.push(piece.subarray(0, bytesRead));
      }
    } finally {
      await handle.close();
    }
  },
  async write(path, bytes) {
    const handle = await openRegular(path, O_WRONLY | O_CREAT | O_TRUNC);
    try {
      // One write may be short without an error.
      for (let done = 0; done < bytes.length; ) {
        const { bytesWritten } = await handle.write(bytes, done, bytes.length - done);
        if (bytesWritten === 0) throw Object.assign(new Error("the volume takes no byte"), { code: "ENOSPC" });
        done += bytesWritten;
      }
    } finally {
      await handle.close();
    }
  },
  async makeFolder(path) {
    await mkdir(path, { recursive: true });
  },
  async remove(path) {
    await unlink(path).catch(ignoring(["ENOENT"]));
  },
};

async function openRegular(path: string, flags: number): Promise<FileHandle> {
  const handle = await open(path, flags | O_NOFOLLOW | O_NONBLOCK, 0o666);
  try {
    if (!(await handle.stat()).isFile()) throw Object.assign(new Error("it is no regular file"), { code: "ENXIO" });
  } catch (error) {
    await handle.close();
    throw error;
  }
  return handle;
}

/** The same files, each call with a time limit. */
export function limitCalls(files: VolumeFiles, callMs: number): VolumeFiles {
  let hangs = false;
  async function limited<T>(call: () => Promise<T>): Promise<T> {
    if (hangs) throw new VolumeHangs(false);
    const { promise: late, reject } = Promise.withResolvers<never>();
    const timer = setTimeout(() => {
      hangs = true;
      reject(new VolumeHangs(true));
    }, callMs);
    try {
      return await Promise.race([call(), late]);
    } finally {
      clearTimeout(timer);
    }
  }
  return {
    list: (path) => limited(() => files.list(path)),
    look: (path) => limited(() => files.look(path)),
    read: (path, maxBytes) => limited(() => files.read(path, maxBytes)),
    write: (path, bytes) => limited(() => files.write(path, bytes)),
    makeFolder: (path) => limited(() => files.makeFolder(path)),
    remove: (path) => limited(() => files.remove(path)),
  };
}

function ignoring(codes: readonly string[]): (error: unknown) => undefined {
  return (error) => {
    if (codes.includes(errnoOf(error) ?? "")) return undefined;
    throw error;
  };
}
