/**
 * Where the saves of one thread lie, on a volume that lies: what it took reaches the others seconds later, cut short or
 * never; its listings are old; every call may hang for ever. So the port promises little, and the store needs no more:
 *
 * - `list` shows what was there some time ago, and all that was written through this folder.
 * - `write` gives a name its bytes, once. Nothing is renamed, replaced or appended to. A write that failed may leave a
 *   file cut short under its name, which is then used up.
 * - `read` gives fewer bytes at the end of the file, and those alone: a file that vanished throws ENOENT, and what is no
 *   file (a folder, a link, a FIFO) EISDIR.
 * - `remove` of what is not there, or is a folder, is no error.
 *
 * Every failure is thrown with its errno name as `code`. No call is made twice for one step.
 */
export interface SaveFolder {
  /** All names, in no order. A folder that is not there has none. */
  list(): Promise<readonly string[]>;
  /** Undefined when there is no such file. */
  stat(name: string): Promise<FileFacts | undefined>;
  read(name: string, offset: number, length: number): Promise<Uint8Array>;
  write(name: string, pieces: readonly Uint8Array[]): Promise<void>;
  remove(name: string): Promise<void>;
}

export interface FileFacts {
  readonly bytes: number;
  /** Milliseconds since the epoch, by the volume's clock. */
  readonly modifiedAt: number;
}
