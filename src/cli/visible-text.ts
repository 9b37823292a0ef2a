/**
 * Text of a model for somebody who is to decide about it: nothing of it is hidden or left out. What would not be seen,
 * or would change how the rest is shown, is written as an escape, and each line is marked, so that none of it can be
 * taken for ours.
 */

/** Control and format characters, what no font has, and separators of lines but for the one that we fold at. */
const INVISIBLE = /[^\n\P{C}]|[\u2028\u2029]/gu;
const MARK = "  │ ";
const MIN_WIDTH = 20;

export function visibleJson(value: unknown): string {
  return visible(JSON.stringify(value, null, 2) ?? "nothing");
}

export function visible(text: string): string {
  return withEscapes(text.replaceAll("\r\n", "\n").replaceAll("\t", "    "));
}

/** All of it, ends of lines from elsewhere and tabs too, for whoever looks for what was changed. */
export function withEscapes(text: string): string {
  return text.replace(INVISIBLE, escapeOf);
}

/** Lines that begin with the mark and fit into the terminal. `text` is visible already. */
export function marked(text: string, columns: number): string {
  const width = Math.max(MIN_WIDTH, columns - MARK.length - 1);
  const lines = text.split("\n").flatMap((line) => foldLine(line, width));
  return lines.map((line) => `${MARK}${line}\n`).join("");
}

function escapeOf(char: string): string {
  return Array.from({ length: char.length }, (_, n) => `\\u${char.charCodeAt(n).toString(16).padStart(4, "0")}`).join(
    "",
  );
}

/** Folded by us: what the terminal folds has no mark. */
function foldLine(line: string, width: number): string[] {
  const folded: string[] = [];
  let piece = "";
  let used = 0;
  for (const char of line) {
    const wide = Bun.stringWidth(char);
    if (used + wide > width) {
      folded.push(piece);
      piece = "";
      used = 0;
    }
    piece += char;
    used += wide;
  }
  return [...folded, piece];
}
