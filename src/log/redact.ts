/**
 * Secret values that must not leave the daemon in a log, a message or a metric. Values are known, not guessed: the
 * daemon's own and those of the live runs' environments.
 */

/** Shorter values would mask ordinary words. */
const MIN_SECRET_LENGTH = 8;

export class Redactor {
  readonly #counts = new Map<string, number>();
  #pattern: RegExp | undefined;

  /** Hides `values` until the returned function is called. */
  hide(values: Iterable<string>): () => void {
    const added = [...values].filter((value) => value.length >= MIN_SECRET_LENGTH);
    for (const value of added) this.#counts.set(value, (this.#counts.get(value) ?? 0) + 1);
    this.#pattern = undefined;
    let active = true;
    return () => {
      if (!active) return;
      active = false;
      for (const value of added) {
        const left = (this.#counts.get(value) ?? 1) - 1;
        if (left > 0) this.#counts.set(value, left);
        else this.#counts.delete(value);
      }
      this.#pattern = undefined;
    };
  }

  /** `text` with every known secret replaced. A secret is also known in its JSON-escaped form. */
  clean(text: string): string {
    if (this.#counts.size === 0) return text;
    this.#pattern ??= compile(this.#counts.keys());
    return text.replace(this.#pattern, "[secret]");
  }
}

function compile(values: Iterable<string>): RegExp {
  const forms = new Set<string>();
  for (const value of values) {
    forms.add(value);
    forms.add(JSON.stringify(value).slice(1, -1));
  }
  // Longest first: a secret that begins with another one must not leave its tail.
  const sorted = [...forms].sort((a, b) => b.length - a.length);
  return new RegExp(sorted.map((form) => form.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|"), "g");
}
