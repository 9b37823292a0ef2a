/**
 * What the mount shows: the backend's folder, as old as the listing cache allows, and over it the files that were
 * written here and have not reached the backend yet.
 */
import {
  closeSync,
  copyFileSync,
  existsSync,
  fstatSync,
  ftruncateSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readSync,
  renameSync,
  rmdirSync,
  rmSync,
  type Stats,
  truncateSync,
  unlinkSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";

export interface TreeSettings {
  /** The backend: what another pod's mount shows. */
  readonly backing: string;
  /** An empty folder of this mount alone, for what it has not written back. */
  readonly cache: string;
  /** From the close of a file to its way to the backend; null: every write goes there at once. */
  readonly writeBackMs: number | null;
  /** How long a listing is believed. */
  readonly listingMs: number;
}

/** A file that was opened for writing and has not reached the backend. */
interface Unwritten {
  readonly file: string;
  writers: number;
  dirty: boolean;
  due: number;
}

interface Listing {
  readonly at: number;
  readonly names: Map<string, Stats>;
}

export interface OpenFile {
  readonly fd: number;
  readonly unwritten: Unwritten | undefined;
}

class Refusal extends Error {
  constructor(readonly code: string) {
    super(code);
  }
}

export class Tree {
  #unwritten = new Map<string, Unwritten>();
  #listings = new Map<string, Listing>();
  #caches = 0;
  #free = Number.POSITIVE_INFINITY;

  constructor(private readonly settings: TreeSettings) {}

  /** Bytes that the backend still takes. */
  set freeBytes(bytes: number) {
    this.#free = bytes;
  }
  get freeBytes(): number {
    return Math.min(this.#free, 2 ** 50);
  }
  /** Paths that have not reached the backend. */
  get unwritten(): string[] {
    return [...this.#unwritten].filter(([, { dirty }]) => dirty).map(([path]) => path);
  }

  stat(path: string): Stats {
    const unwritten = this.#unwritten.get(path);
    if (unwritten) return lstatSync(unwritten.file);
    if (this.settings.listingMs === 0 || path === "") return lstatSync(this.#backing(path));
    const stats = this.#listing(parentOf(path)).get(nameOf(path));
    if (!stats) throw new Refusal("ENOENT");
    return stats;
  }

  list(path: string): Map<string, Stats> {
    const names = new Map(this.settings.listingMs === 0 ? this.#read(path) : this.#listing(path));
    for (const [other, { file }] of this.#unwritten) {
      if (parentOf(other) === path && other !== "") names.set(nameOf(other), lstatSync(file));
    }
    return names;
  }

  open(path: string, flags: number): OpenFile {
    const writes = (flags & 3) !== 0;
    const known = this.#unwritten.get(path);
    if (!writes) return { fd: openSync(known?.file ?? this.#backing(path), "r"), unwritten: undefined };
    const truncates = (flags & 0o1000) !== 0;
    if (this.settings.writeBackMs === null) {
      return { fd: openSync(this.#backing(path), truncates ? "w+" : "r+"), unwritten: undefined };
    }
    const unwritten = known ?? this.#newUnwritten(path);
    if (!known && !truncates) copyFileSync(this.#backing(path), unwritten.file);
    unwritten.writers++;
    if (truncates) unwritten.dirty = true;
    return { fd: openSync(unwritten.file, truncates ? "w+" : "r+"), unwritten };
  }

  create(path: string, flags: number, mode: number): OpenFile {
    if ((flags & 0o200) !== 0 && this.#shows(path)) throw new Refusal("EEXIST");
    if (this.#free <= 0) throw new Refusal("ENOSPC");
    if (this.settings.writeBackMs === null) {
      const fd = openSync(this.#backing(path), "w+", mode);
      this.#note(path, fstatSync(fd));
      return { fd, unwritten: undefined };
    }
    const unwritten = this.#unwritten.get(path) ?? this.#newUnwritten(path);
    unwritten.writers++;
    unwritten.dirty = true;
    return { fd: openSync(unwritten.file, "w+", mode), unwritten };
  }

  read(file: OpenFile, offset: number, size: number): Buffer {
    const buffer = Buffer.alloc(size);
    return buffer.subarray(0, readSync(file.fd, buffer, 0, size, offset));
  }

  /** Bytes that were taken: fewer than given when the space ends in between. */
  write(file: OpenFile, bytes: Buffer, offset: number): number {
    if (this.#free <= 0) throw new Refusal("ENOSPC");
    const taken = writeSync(file.fd, bytes, 0, Math.min(bytes.length, this.#free), offset);
    this.#free -= taken;
    if (file.unwritten) file.unwritten.dirty = true;
    return taken;
  }

  close({ fd, unwritten }: OpenFile, now: number): void {
    closeSync(fd);
    if (!unwritten) return;
    unwritten.writers--;
    if (unwritten.writers === 0) unwritten.due = now + (this.settings.writeBackMs ?? 0);
  }

  truncate(path: string, size: number, file: OpenFile | undefined): void {
    if (file) {
      ftruncateSync(file.fd, size);
      if (file.unwritten) file.unwritten.dirty = true;
      return;
    }
    const opened = this.open(path, 1);
    if (opened.unwritten) truncateSync(opened.unwritten.file, size);
    else ftruncateSync(opened.fd, size);
    if (opened.unwritten) opened.unwritten.dirty = true;
    this.close(opened, Date.now());
  }

  makeFolder(path: string, mode: number): void {
    mkdirSync(this.#backing(path), mode);
    this.#note(path, lstatSync(this.#backing(path)));
  }

  removeFolder(path: string): void {
    if (this.list(path).size > 0) throw new Refusal("ENOTEMPTY");
    rmdirSync(this.#backing(path));
    this.#forget(path);
  }

  /** Deletes reach the backend at once. */
  unlink(path: string): void {
    const unwritten = this.#unwritten.get(path);
    this.#unwritten.delete(path);
    if (unwritten) {
      rmSync(unwritten.file, { force: true });
      rmSync(this.#backing(path), { force: true });
    } else {
      unlinkSync(this.#backing(path));
    }
    this.#forget(path);
  }

  rename(from: string, to: string): void {
    const moved = this.stat(from);
    if (existsSync(this.#backing(from))) renameSync(this.#backing(from), this.#backing(to));
    for (const [path, unwritten] of [...this.#unwritten]) {
      if (path === to) this.#unwritten.delete(path);
      if (path !== from && !path.startsWith(`${from}/`)) continue;
      this.#unwritten.delete(path);
      this.#unwritten.set(to + path.slice(from.length), unwritten);
    }
    this.#forget(from);
    this.#note(to, moved);
  }

  /** Milliseconds until the next file is due for the backend, undefined when none is. */
  nextDue(now: number): number | undefined {
    const due = [...this.#unwritten.values()].filter(({ writers }) => writers === 0).map((one) => one.due - now);
    return due.length === 0 ? undefined : Math.max(0, Math.min(...due));
  }

  /**
   * Writes files back: those that are due, or all. With `keep` each reaches the backend cut to that part of its
   * length, under its final name, as a mount leaves it that is killed meanwhile.
   */
  writeBack(now: number, { all = false, keep = 1 }: { all?: boolean; keep?: number } = {}): number {
    let count = 0;
    for (const [path, unwritten] of [...this.#unwritten]) {
      const idle = unwritten.writers === 0;
      if (!all && (!idle || unwritten.due > now)) continue;
      if (unwritten.dirty) {
        copyFileSync(unwritten.file, this.#backing(path));
        if (keep < 1) truncateSync(this.#backing(path), Math.floor(lstatSync(unwritten.file).size * keep));
        this.#note(path, lstatSync(this.#backing(path)));
        count++;
      }
      if (!idle) continue;
      this.#unwritten.delete(path);
      rmSync(unwritten.file, { force: true });
    }
    return count;
  }

  forgetListings(): void {
    this.#listings.clear();
  }

  #backing(path: string): string {
    return join(this.settings.backing, path);
  }

  #newUnwritten(path: string): Unwritten {
    const file = join(this.settings.cache, String(this.#caches++));
    writeFileSync(file, "");
    const unwritten = { file, writers: 0, dirty: false, due: 0 };
    this.#unwritten.set(path, unwritten);
    return unwritten;
  }

  #shows(path: string): boolean {
    try {
      this.stat(path);
      return true;
    } catch {
      return false; // Whatever is wrong with it, it is not shown.
    }
  }

  #read(path: string): Map<string, Stats> {
    const names = new Map<string, Stats>();
    for (const name of readdirSync(this.#backing(path))) names.set(name, lstatSync(this.#backing(join(path, name))));
    return names;
  }

  #listing(path: string): Map<string, Stats> {
    const known = this.#listings.get(path);
    if (known && Date.now() - known.at < this.settings.listingMs) return known.names;
    const names = this.#read(path);
    this.#listings.set(path, { at: Date.now(), names });
    return names;
  }

  /** What was done through this mount, this mount shows. */
  #note(path: string, stats: Stats): void {
    this.#listings.get(parentOf(path))?.names.set(nameOf(path), stats);
  }
  #forget(path: string): void {
    this.#listings.get(parentOf(path))?.names.delete(nameOf(path));
    for (const other of [...this.#listings.keys()]) {
      if (other === path || other.startsWith(`${path}/`)) this.#listings.delete(other);
    }
  }
}

function parentOf(path: string): string {
  return path.split("/").slice(0, -1).join("/");
}
function nameOf(path: string): string {
  return path.split("/").at(-1) ?? "";
}
