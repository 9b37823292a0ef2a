/**
 * Text of a model or a tool, made safe for a terminal: without escape sequences, control characters, and the marks
 * that turn the direction of writing around, with which a line can show something else than it says. Sequences are
 * followed over the pieces that they come in.
 */

/** A sequence that does not end is given up after this: it must not swallow the rest of the text. */
const MAX_SEQUENCE_CHARS = 256;
const ESC = 0x1b;
const BELL = 0x07;
const STRING_TERMINATOR = 0x9c;

type State = "text" | "escape" | "control" | "string" | "string-escape";

export class SafeText {
  #state: State = "text";
  #length = 0;

  /** The printable part of `piece`. Newlines and tabs stay. */
  push(piece: string): string {
    let safe = "";
    for (const char of piece) safe += this.#char(char, char.codePointAt(0) ?? 0);
    return safe;
  }

  #char(char: string, code: number): string {
    if (this.#state !== "text" && (code === 0x0a || ++this.#length > MAX_SEQUENCE_CHARS)) this.#enter("text");
    switch (this.#state) {
      case "text":
        return this.#text(char, code);
      case "escape":
        if (code === 0x5b) this.#enter("control");
        else if (code === 0x5d || code === 0x50 || code === 0x58 || code === 0x5e || code === 0x5f)
          this.#enter("string");
        // Intermediate bytes come before the final one.
        else if (code < 0x20 || code > 0x2f) this.#enter("text");
        return "";
      case "control":
        if (code >= 0x40 && code <= 0x7e) this.#enter("text");
        return "";
      case "string":
        if (code === BELL || code === STRING_TERMINATOR) this.#enter("text");
        else if (code === ESC) this.#state = "string-escape";
        return "";
      case "string-escape":
        if (code === 0x5c) this.#enter("text");
        else if (code !== ESC) this.#state = "string";
        return "";
    }
  }

  #text(char: string, code: number): string {
    if (code === ESC) this.#enter("escape");
    else if (code === 0x9b) this.#enter("control");
    else if (code === 0x90 || code === 0x98 || code === 0x9d || code === 0x9e || code === 0x9f) this.#enter("string");
    else if (isPrintable(code)) return char;
    return "";
  }

  #enter(state: State): void {
    this.#state = state;
    this.#length = 0;
  }
}

/** A whole text made safe. */
export function safeText(text: string): string {
  return new SafeText().push(text);
}

/** A whole text made safe and brought to one line of at most `maxChars`. */
export function safeLine(text: string, maxChars: number): string {
  // What is cut off need not be looked at: a tool's output may be megabytes.
  const line = safeText(text.slice(0, maxChars * 4))
    .replace(/\s+/g, " ")
    .trim();
  const chars = [...line];
  return chars.length <= maxChars ? line : `${chars.slice(0, Math.max(0, maxChars - 1)).join("")}…`;
}

function isPrintable(code: number): boolean {
  if (code === 0x0a || code === 0x09) return true;
  if (code < 0x20 || (code >= 0x7f && code <= 0x9f)) return false;
  // Embeddings, overrides and isolates of direction; a lone surrogate is no character.
  if ((code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069)) return false;
  return code !== 0x200e && code !== 0x200f && code !== 0x061c && !(code >= 0xd800 && code <= 0xdfff);
}
