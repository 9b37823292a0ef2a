/** A session's files on this pod, as a save sees them. They may grow while it reads. */
export interface LocalFiles {
  /** The main transcript first, then the files beside it. Empty when there is no transcript, or an empty one. */
  find(sessionId: string): Promise<readonly LocalFile[]>;
  /** Exactly these bytes. Throws ESTALE when the file has become shorter. */
  read(path: string, from: number, to: number): Promise<Uint8Array>;
}

export interface LocalFile {
  /** Below the harness's configuration folder. */
  readonly path: string;
  readonly bytes: number;
  readonly inode: number;
  /** When anything of it changed last, by the pod's own file system: nobody can set it. */
  readonly changedAt: number;
}
