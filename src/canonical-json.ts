/**
 * RFC 8785: one spelling for one JSON value, so that it can be hashed and compared. `__proto__` is a key like any other:
 * objects are read by their own keys and never copied key by key. What has no such spelling is refused: lone
 * surrogates, numbers that are none, values that JSON does not have.
 */

/** Of arrays and objects within each other. No schema comes near it, and the stack holds many times as much. */
const MAX_DEPTH = 512;

export class CanonicalJsonError extends Error {
  constructor(readonly code: "lone_surrogate" | "too_deep" | "too_large" | "not_json") {
    super(CANONICAL_JSON_PROBLEMS[code]);
    this.name = "CanonicalJsonError";
  }
}

const CANONICAL_JSON_PROBLEMS = {
  lone_surrogate: "has half of a surrogate pair in it",
  too_deep: `is nested deeper than ${MAX_DEPTH} levels`,
  too_large: "is too large",
  not_json: "has something in it that JSON has no word for",
} as const;

/**
 * The canonical text of a value as JSON.parse gives them. Throws CanonicalJsonError; for what is longer than `maxBytes`
 * of UTF-8 without having read all of it.
 */
export function canonicalJson(value: unknown, maxBytes = Number.POSITIVE_INFINITY): string {
  return write(value, 0, { left: maxBytes });
}

/** How many bytes more the text may have. */
interface Budget {
  left: number;
}

function write(value: unknown, depth: number, budget: Budget): string {
  if (typeof value === "string") return writeText(value, budget);
  if (typeof value !== "object" || value === null) return writeLiteral(value, budget);
  if (depth >= MAX_DEPTH) throw new CanonicalJsonError("too_deep");
  if (Array.isArray(value)) {
    // The brackets and the commas.
    spend(1 + Math.max(1, value.length), budget);
    let text = "[";
    // By index: a hole is no value of JSON.
    for (let n = 0; n < value.length; n++) text += `${n > 0 ? "," : ""}${write(value[n], depth + 1, budget)}`;
    return `${text}]`;
  }
  // A date or a map would be spelled as an empty object.
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) throw new CanonicalJsonError("not_json");
  const keys = Object.keys(value);
  spend(1 + Math.max(1, 2 * keys.length), budget);
  let text = "";
  // Sorted by UTF-16 code units, as the RFC wants it.
  for (const key of keys.sort()) {
    const member = write((value as Record<string, unknown>)[key], depth + 1, budget);
    text += `${text === "" ? "" : ","}${writeText(key, budget)}:${member}`;
  }
  return `{${text}}`;
}

/** Numbers are spelled as ECMAScript spells them, which drops the sign of -0. */
function writeLiteral(value: unknown, budget: Budget): string {
  const isLiteral = value === null || typeof value === "boolean" || Number.isFinite(value);
  if (!isLiteral) throw new CanonicalJsonError("not_json");
  const text = String(value);
  spend(text.length, budget);
  return text;
}

function writeText(text: string, budget: Budget): string {
  // A character is one byte at least: what is too long need not be looked at.
  if (text.length > budget.left) throw new CanonicalJsonError("too_large");
  if (!text.isWellFormed()) throw new CanonicalJsonError("lone_surrogate");
  const quoted = JSON.stringify(text);
  spend(Buffer.byteLength(quoted), budget);
  return quoted;
}

function spend(bytes: number, budget: Budget): void {
  budget.left -= bytes;
  if (budget.left < 0) throw new CanonicalJsonError("too_large");
}

/** True when two values have the same canonical text. Reads no more than the smaller one. */
export function sameJson(one: unknown, other: unknown): boolean {
  return same(one, other, 0);
}

function same(one: unknown, other: unknown, depth: number): boolean {
  if (typeof one !== "object" || typeof other !== "object" || one === null || other === null) return one === other;
  if (depth >= MAX_DEPTH || Array.isArray(one) !== Array.isArray(other)) return false;
  const keys = Object.keys(one);
  if (keys.length !== Object.keys(other).length) return false;
  return keys.every(
    (key) =>
      Object.hasOwn(other, key) &&
      same((one as Record<string, unknown>)[key], (other as Record<string, unknown>)[key], depth + 1),
  );
}
