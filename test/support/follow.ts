/** Follows a body line by line while the test does something else. */
import type { Frame } from "../../src/frames/frame.ts";

export class Follower {
  /** Whole lines as they came, without their newlines; keepalives are empty ones. */
  readonly lines: string[] = [];
  /** Those of frames alone. */
  readonly frameLines: string[] = [];
  /** True when the body ended as a body does, false when the connection broke. */
  whole: boolean | undefined;
  readonly ended: Promise<void>;
  #waiting: (() => void)[] = [];

  constructor(response: Response) {
    this.ended = this.#read(response);
  }

  get frames(): Frame[] {
    return this.frameLines.map((line) => JSON.parse(line) as Frame);
  }

  /** Resolves when `fits` holds for what has come; rejects when the body ends before. */
  async until(fits: (follower: this) => boolean): Promise<void> {
    while (!fits(this)) {
      if (this.whole !== undefined) throw new Error(`the body ended before: ${this.lines.slice(-5).join("\n")}`);
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }

  async #read(response: Response): Promise<void> {
    const decoder = new TextDecoder();
    let carry = "";
    try {
      for await (const piece of response.body ?? []) {
        const lines = (carry + decoder.decode(piece as Uint8Array, { stream: true })).split("\n");
        carry = lines.pop() ?? "";
        this.lines.push(...lines);
        for (const line of lines) if (line !== "") this.frameLines.push(line);
        this.#wake();
      }
      this.whole = true;
    } catch {
      this.whole = false;
    }
    this.#wake();
  }

  #wake(): void {
    for (const wake of this.#waiting.splice(0)) wake();
  }
}
