/** A session's files on this pod, as a save sees them. They may grow while it reads. */
import { errnoOf } from "../errors.ts";

export interface LocalFiles {
  find(sessionId: string): Promise<FoundFiles>;
  /** Exactly these bytes. Throws ESTALE when the file has become shorter. */
  read(path: string, from: number, to: number): Promise<Uint8Array>;
}

export interface FoundFiles {
  /** The main transcript first, then the files beside it. Empty when there is no transcript, or an empty one. */
  readonly files: readonly LocalFile[];
  /** Files and folders beside the transcript that could not be looked at. */
  readonly unreadable: readonly string[];
}

export interface LocalFile {
  /** Below the harness's configuration folder. */
  readonly path: string;
  readonly bytes: number;
  readonly inode: number;
  /** When anything of it changed last, by the pod's own file system: nobody can set it. */
  readonly changedAt: number;
}

/** Closed to the daemon, damaged, or not any more what it was a moment ago. Whatever else fails is not the file's fault. */
const FAULTS_OF_A_FILE: ReadonlySet<string | undefined> = new Set([
  "EACCES",
  "EPERM",
  "EIO",
  "ENOENT",
  "ENOTDIR",
  "EISDIR",
  "ELOOP",
  "ENXIO",
  "ESTALE",
]);

/** Undefined: the file, or the folder, cannot be read. */
export async function ifReadable<T>(look: () => Promise<T>): Promise<T | undefined> {
  try {
    return await look();
  } catch (error) {
    if (FAULTS_OF_A_FILE.has(errnoOf(error))) return undefined;
    throw error;
  }
}
