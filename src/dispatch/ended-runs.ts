/**
 * What is known of runs whose logs were dropped: id, outcome and last frame stay for a day, so that a late repetition
 * of a dispatch is told the outcome instead of running the turn again. One line a run in one file, read at the start.
 */
import { appendFile } from "node:fs/promises";
import type { Clock } from "../clock/port.ts";
import { oneAfterTheOther, parseRecord, readIfThere, writeWhole } from "../disk.ts";
import { errnoOf } from "../errors.ts";
import type { RunSummary } from "../frames/run-summary.ts";

const KEPT_MS = 24 * 3600_000;
const KEPT_RUNS = 10_000;

export class EndedRuns {
  readonly #runs = new Map<string, RunSummary>();
  #lines = 0;
  readonly #inOrder = oneAfterTheOther();

  constructor(
    private readonly path: string,
    private readonly clock: Clock,
  ) {}

  get(runId: string): RunSummary | undefined {
    const run = this.#runs.get(runId);
    if (run && this.#isOver(run)) {
      this.#runs.delete(runId);
      return undefined;
    }
    return run;
  }

  list(): RunSummary[] {
    return [...this.#runs.values()].filter((run) => !this.#isOver(run));
  }

  /** Known at once; resolves when a restart will know it too. */
  add(run: RunSummary): Promise<void> {
    this.#keep(run);
    return this.#inOrder(() => this.#store(run));
  }

  async load(): Promise<void> {
    const lines = ((await readIfThere(this.path)) ?? "").split("\n");
    for (const line of lines) {
      const run = parseRecord(line) as RunSummary | undefined;
      if (typeof run?.runId !== "string" || this.#isOver(run)) continue;
      this.#keep(run);
    }
    this.#lines = lines.length;
    try {
      await this.#compact();
    } catch (error) {
      // On a full disk the file stays as it is, and serves.
      if (errnoOf(error) !== "ENOSPC") throw error;
    }
  }

  #keep(run: RunSummary): void {
    this.#runs.delete(run.runId);
    this.#runs.set(run.runId, run);
    for (const oldest of this.#runs.keys()) {
      if (this.#runs.size <= KEPT_RUNS) break;
      this.#runs.delete(oldest);
    }
  }

  async #store(run: RunSummary): Promise<void> {
    // A line that a crash cut must not swallow the next one.
    await appendFile(this.path, `\n${JSON.stringify(run)}`, { mode: 0o600 });
    if (++this.#lines > 2 * KEPT_RUNS) await this.#compact();
  }

  async #compact(): Promise<void> {
    await writeWhole(
      this.path,
      this.list()
        .map((run) => JSON.stringify(run))
        .join("\n"),
    );
    this.#lines = this.#runs.size;
  }

  #isOver(run: RunSummary): boolean {
    return run.endedAt === undefined || this.clock.now() - Date.parse(run.endedAt) > KEPT_MS;
  }
}
