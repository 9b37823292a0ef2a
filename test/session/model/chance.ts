/** Random numbers from a seed: the same world every time. */
export class Chance {
  #state: number;
  constructor(seed: number) {
    this.#state = seed >>> 0;
  }
  /** From 0 up to 1. */
  next(): number {
    this.#state = (this.#state * 1664525 + 1013904223) >>> 0;
    return this.#state / 4294967296;
  }
  below(limit: number): number {
    return Math.floor(this.next() * limit);
  }
  of(probability: number): boolean {
    return this.next() < probability;
  }
  pick<T>(items: readonly T[]): T | undefined {
    return items[this.below(items.length)];
  }
}
