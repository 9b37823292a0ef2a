import type { SaveFolder } from "../../../src/session/save-folder.ts";
import { errno } from "./mount.ts";

export type Fault = "EIO" | "ENOSPC" | "ESTALE" | "short write" | "killed before" | "killed after";
export const FAULTS: readonly Fault[] = ["EIO", "ENOSPC", "ESTALE", "short write", "killed before", "killed after"];

/** Counts operations of the ports of one flight, and lets the n-th go wrong. A killed flight does nothing any more. */
export class Saboteur {
  operations = 0;
  happened = false;
  #dead = false;
  readonly #killed = Promise.withResolvers<void>();
  constructor(
    readonly at: number,
    readonly fault: Fault,
  ) {}

  async run<T>(work: () => Promise<T>, halfWay?: () => Promise<unknown>): Promise<T> {
    if (this.#dead) return new Promise(() => {});
    if (++this.operations !== this.at) return work();
    this.happened = true;
    switch (this.fault) {
      case "killed before":
        return this.#kill();
      case "killed after":
        await work();
        return this.#kill();
      case "short write":
        await halfWay?.();
        throw errno("ENOSPC");
      default:
        throw errno(this.fault);
    }
  }

  /** The flight's result, or nothing when it was killed. */
  lasting<T>(flight: Promise<T>): Promise<T | undefined> {
    return Promise.race([flight, this.#killed.promise.then(() => undefined)]);
  }

  #kill(): Promise<never> {
    this.#dead = true;
    this.#killed.resolve();
    return new Promise(() => {});
  }

  folder(inner: SaveFolder): SaveFolder {
    return {
      list: () => this.run(() => inner.list()),
      stat: (name) => this.run(() => inner.stat(name)),
      read: (name, offset, length) => this.run(() => inner.read(name, offset, length)),
      remove: (name) => this.run(() => inner.remove(name)),
      write: (name, pieces) => {
        const half = Buffer.concat([...pieces]);
        return this.run(
          () => inner.write(name, pieces),
          () => inner.write(name, [half.subarray(0, half.length >> 1)]),
        );
      },
    };
  }
}
