/** A session's ports in memory: files of a pod, a staging folder, a state file. */
import type { LocalFiles } from "../../../src/session/local-files.ts";
import type { Staging } from "../../../src/session/restore-session.ts";
import type { StateFile, ThreadState } from "../../../src/session/thread-state.ts";

export interface MemoryFile {
  bytes: Buffer;
  inode: number;
  changedAt: number;
}

let inodes = 0;
let changes = 0;

export class MemoryLocalFiles implements LocalFiles {
  readonly files = new Map<string, MemoryFile>();

  set(path: string, bytes: Uint8Array): void {
    this.files.set(path, { bytes: Buffer.from(bytes), inode: ++inodes, changedAt: ++changes });
  }
  append(path: string, text: string): void {
    const file = this.files.get(path);
    if (!file) this.set(path, Buffer.from(text));
    else {
      file.bytes = Buffer.concat([file.bytes, Buffer.from(text)]);
      file.changedAt = ++changes;
    }
  }
  text(path: string): string {
    return this.files.get(path)?.bytes.toString() ?? "";
  }
  async find(sessionId: string) {
    const main = `projects/p/${sessionId}.jsonl`;
    if ((this.files.get(main)?.bytes.length ?? 0) === 0) return { files: [], unreadable: [] };
    const side = [...this.files.keys()].filter((path) => path.startsWith(`projects/p/${sessionId}/`)).sort();
    const files = [main, ...side].map((path) => {
      const { bytes = Buffer.alloc(0), inode = 0, changedAt = 0 } = this.files.get(path) ?? {};
      return { path, bytes: bytes.length, inode, changedAt };
    });
    return { files, unreadable: [] };
  }
  async read(path: string, from: number, to: number) {
    const bytes = this.files.get(path)?.bytes ?? Buffer.alloc(0);
    if (to > bytes.length) throw Object.assign(new Error("shorter"), { code: "ESTALE" });
    return bytes.subarray(from, to);
  }
}

export class MemoryStaging implements Staging {
  readonly files = new Map<number, Buffer>();
  async append(file: number, bytes: Uint8Array) {
    this.files.set(file, Buffer.concat([this.files.get(file) ?? Buffer.alloc(0), bytes]));
  }
  async truncate(file: number, bytes: number) {
    const old = this.files.get(file);
    if (old) this.files.set(file, old.subarray(0, bytes));
  }
  async remove(file: number) {
    this.files.delete(file);
  }
  async tail(file: number, bytes: number) {
    return (this.files.get(file) ?? Buffer.alloc(0)).subarray(-bytes);
  }
}

export class MemoryStateFile implements StateFile {
  state: ThreadState | undefined;
  async read() {
    return this.state;
  }
  async write(state: ThreadState) {
    this.state = structuredClone(state);
  }
}
