/**
 * Secret values that must not leave the daemon in a log, a message or a metric. Values are known, not guessed: the
 * daemon's own and those of the live runs' environments. A dispatch may bring megabytes of them, so they are looked for
 * one by one: a pattern of all of them takes a second to compile, or cannot be.
 */

/** Shorter values would mask ordinary words. */
const MIN_SECRET_CHARS = 8;
/** A longer value is never seen whole, because what is shown is cut before: it is known by its beginning, in pieces. */
const MAX_WHOLE_CHARS = 4096;
const LONG_HEAD_CHARS = 16_384;
const PIECE_CHARS = 64;

export class Redactor {
  /** What is looked for, and how many hide it. */
  readonly #forms = new Map<string, number>();
  #longestFirst: readonly string[] = [];

  /** Hides `values` until the returned function is called. */
  hide(values: Iterable<string>): () => void {
    const added = [...values].flatMap(formsOf);
    for (const form of added) this.#forms.set(form, (this.#forms.get(form) ?? 0) + 1);
    this.#sort();
    let active = true;
    return () => {
      if (!active) return;
      active = false;
      for (const form of added) {
        const left = (this.#forms.get(form) ?? 1) - 1;
        if (left > 0) this.#forms.set(form, left);
        else this.#forms.delete(form);
      }
      this.#sort();
    };
  }

  /** `text` with every known secret replaced: as it is, as it looks within JSON, and each line of it. */
  clean(text: string): string {
    let cleaned = text;
    for (const form of this.#longestFirst) {
      if (form.length <= cleaned.length && cleaned.includes(form)) cleaned = cleaned.replaceAll(form, "[secret]");
    }
    return cleaned;
  }

  /** A secret that begins with another one must not leave its tail. */
  #sort(): void {
    this.#longestFirst = [...this.#forms.keys()].sort((a, b) => b.length - a.length);
  }
}

function formsOf(value: string): string[] {
  const pieces = value.length > MAX_WHOLE_CHARS ? piecesOf(value.slice(0, LONG_HEAD_CHARS)) : [value];
  // Logs are lines: a key of several lines is printed one by one.
  const lines = value.length > MAX_WHOLE_CHARS ? [] : value.split(/\r?\n/).map((line) => line.trim());
  const forms = new Set([...pieces, ...lines].flatMap((form) => [form, JSON.stringify(form).slice(1, -1)]));
  return [...forms].filter((form) => form.length >= MIN_SECRET_CHARS);
}

function piecesOf(head: string): string[] {
  const pieces: string[] = [];
  for (let at = 0; at < head.length; at += PIECE_CHARS) pieces.push(head.slice(at, at + PIECE_CHARS));
  return pieces;
}
