/** Text of so many characters, with some in it that take more than a byte, or a token of their own. */
export function longText(chars: number): string {
  return "Größe <b>, 漢字; ".repeat(Math.ceil(chars / 14)).slice(0, chars);
}
