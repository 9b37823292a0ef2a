/**
 * Ids of runs that somebody cancelled: refused for a while, also when the dispatch comes after the cancel, and also
 * when the daemon was restarted in between.
 */
import { readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import type { Clock } from "../clock/port.ts";
import { fileNameOf, oneAfterTheOther, parseRecord, readIfThere, writeWhole } from "../disk.ts";

const TOMBSTONE_MS = 60_000;

export class Tombstones {
  readonly #until = new Map<string, number>();
  readonly #inOrder = oneAfterTheOther();

  constructor(
    private readonly folder: string,
    private readonly clock: Clock,
  ) {}

  has(runId: string): boolean {
    const until = this.#until.get(runId);
    return until !== undefined && this.clock.now() < until;
  }

  /** In force at once; resolves when a restart will know it too. */
  async add(runId: string): Promise<void> {
    const until = this.clock.now() + TOMBSTONE_MS;
    this.#until.set(runId, until);
    await this.#inOrder(() => writeWhole(this.#path(runId), JSON.stringify({ runId, until })));
  }

  /** Reads what an earlier daemon left. */
  async load(): Promise<void> {
    for (const name of await readdir(this.folder)) {
      const record = parseRecord(await readIfThere(join(this.folder, name)));
      const { runId, until } = record ?? {};
      if (typeof runId === "string" && typeof until === "number" && until > this.clock.now()) {
        // The wall clock may have been set back meanwhile: never longer than a new one.
        this.#until.set(runId, Math.min(until, this.clock.now() + TOMBSTONE_MS));
      } else {
        await rm(join(this.folder, name), { force: true });
      }
    }
  }

  /** Forgets the ones that are over. Called now and then. */
  async sweep(): Promise<void> {
    for (const [runId, until] of this.#until) {
      if (this.clock.now() < until) continue;
      this.#until.delete(runId);
      await this.#inOrder(() => rm(this.#path(runId), { force: true }));
    }
  }

  #path(runId: string): string {
    return join(this.folder, fileNameOf(runId));
  }
}
