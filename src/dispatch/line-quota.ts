/** What a harness prints for people goes to the log: so many characters a line, so many lines a second. */
import type { Clock } from "../clock/port.ts";
import type { Log } from "../log/port.ts";
import type { Redactor } from "../log/redact.ts";

const MAX_LINE_CHARS = 4096;
const LINES_PER_SECOND = 50;
const SECOND_MS = 1000;

export class LineQuota {
  #windowStart: number;
  #lines = 0;
  #dropped = 0;

  constructor(
    private readonly clock: Clock,
    private readonly sink: Log,
    private readonly redactor: Redactor,
  ) {
    this.#windowStart = clock.monotonic();
  }

  log(event: string, line: string, length = line.length): void {
    const now = this.clock.monotonic();
    if (now - this.#windowStart >= SECOND_MS) {
      this.report();
      this.#windowStart = now;
      this.#lines = 0;
    }
    if (++this.#lines > LINES_PER_SECOND) {
      this.#dropped++;
      return;
    }
    // Before the cut, which would leave half a secret that nobody recognizes.
    const shown = this.redactor.clean(line);
    const cut = length > line.length || shown.length > MAX_LINE_CHARS;
    this.sink.info(event, { line: shown.slice(0, MAX_LINE_CHARS), ...(cut ? { cutFrom: length } : {}) });
  }

  /** Says how many lines were dropped since the last report, if any. */
  report(): void {
    if (this.#dropped > 0) this.sink.warn("harness lines dropped", { lines: this.#dropped });
    this.#dropped = 0;
  }
}
