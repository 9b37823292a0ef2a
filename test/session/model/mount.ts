/** A volume that lies, tick by tick: a backend, and mounts with late write-back, stale listings and deletes at once. */
import type { SaveFolder } from "../../../src/session/save-folder.ts";
import type { Chance } from "./chance.ts";

export interface BackendFile {
  readonly bytes: Buffer;
  readonly cut: boolean;
}

export type Backend = Map<string, BackendFile>;

/** The flight was killed in this call. */
export class Killed extends Error {}

export function errno(code: string): Error {
  return Object.assign(new Error(code), { code });
}

interface Pending {
  readonly name: string;
  readonly bytes: Buffer;
  readonly due: number;
  readonly cut: boolean;
}

export interface MountTraits {
  /** How old a listing may be, in ticks. */
  readonly listingTicks: number;
  readonly slowTicks: number;
}

export class Mount implements SaveFolder {
  online = true;
  alive = true;
  /** Every read fails. */
  broken = false;
  /** The next write is killed half-way. */
  killWrite = false;
  #pending: Pending[] = [];
  #listing: { at: number; names: Set<string> } | undefined;

  constructor(
    readonly backend: Backend,
    readonly traits: MountTraits,
    readonly now: () => number,
    readonly chance: Chance,
  ) {}

  async list() {
    if (!this.#listing || this.now() - this.#listing.at >= this.traits.listingTicks) {
      if (!this.online) throw errno("EIO");
      const names = new Set([...this.backend.keys(), ...this.#pending.map(({ name }) => name)]);
      this.#listing = { at: this.now(), names };
    }
    return [...this.#listing.names];
  }
  async stat(name: string) {
    const bytes = this.#find(name);
    return bytes ? { bytes: bytes.length, modifiedAt: 0 } : undefined;
  }
  async read(name: string, offset: number, length: number) {
    if (this.broken) throw errno("EIO");
    const bytes = this.#find(name);
    if (!bytes) throw errno("ENOENT");
    return bytes.subarray(offset, offset + length);
  }
  async write(name: string, pieces: readonly Uint8Array[]) {
    const whole = Buffer.concat(pieces);
    const cut = this.killWrite;
    const bytes = cut ? whole.subarray(0, this.chance.below(whole.length)) : whole;
    const late = this.chance.of(0.03) ? this.chance.below(60) : 0;
    const due = this.now() + 5 + this.chance.below(this.traits.slowTicks) + late;
    this.#pending.push({ name, bytes, due, cut });
    this.#listing?.names.add(name);
    this.killWrite = false;
    if (cut) throw new Killed();
  }
  async remove(name: string) {
    const waiting = this.#pending.findIndex((file) => file.name === name);
    if (waiting >= 0) this.#pending.splice(waiting, 1);
    else if (!this.online) throw errno("EIO");
    else this.backend.delete(name);
    this.#listing?.names.delete(name);
  }

  tick(): void {
    if (!this.alive || !this.online) return;
    for (const { name, bytes, due, cut } of this.#pending) {
      if (due <= this.now()) this.backend.set(name, { bytes, cut });
    }
    this.#pending = this.#pending.filter(({ due }) => due > this.now());
  }

  /** The pod, or its sidecar, is gone: what it still held is lost, or lies cut under its name. */
  kill(): void {
    this.alive = false;
    for (const { name, bytes } of this.#pending) {
      if (this.chance.of(0.3)) this.backend.set(name, { bytes: bytes.subarray(0, bytes.length >> 1), cut: true });
    }
    this.#pending = [];
  }

  #find(name: string): Buffer | undefined {
    const waiting = this.#pending.find((file) => file.name === name);
    if (waiting) return waiting.bytes;
    if (this.#listing && !this.#listing.names.has(name)) return undefined;
    if (!this.online) throw errno("EIO");
    return this.backend.get(name)?.bytes;
  }
}
