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
  if (value === null || typeof value === "boolean") return spend(String(value), budget);
  // Numbers are spelled as ECMAScript spells them, which drops the sign of -0.
  if (typeof value === "number" && Number.isFinite(value)) return spend(String(value), budget);
  if (typeof value !== "object") throw new CanonicalJsonError("not_json");
  if (depth >= MAX_DEPTH) throw new CanonicalJsonError("too_deep");
  spend("[]", budget);
  if (Array.isArray(value)) {
    expectMembers(value.length, budget);
    // By index: a hole is no value of JSON.
    return `[${Array.from(value, (member) => write(member, depth + 1, budget)).join(",")}]`;
  }
  // A date or a map would be spelled as an empty object.
  if (![Object.prototype, null].includes(Object.getPrototypeOf(value))) throw new CanonicalJsonError("not_json");
  const keys = Object.keys(value);
  expectMembers(keys.length, budget);
  // Sorted by UTF-16 code units, as the RFC wants it.
  const members = keys.sort().map((key) => {
    const name = writeText(key, budget) + spend(":", budget);
    return name + write((value as Record<string, unknown>)[key], depth + 1, budget);
  });
  return `{${members.join(",")}}`;
}

function writeText(text: string, budget: Budget): string {
  // A character is one byte at least: what is too long need not be looked at.
  if (text.length > budget.left) throw new CanonicalJsonError("too_large");
  if (!text.isWellFormed()) throw new CanonicalJsonError("lone_surrogate");
  return spend(JSON.stringify(text), budget);
}

/** Pays for the commas; with the members themselves they are one byte each at least. */
function expectMembers(count: number, budget: Budget): void {
  if (2 * count - 1 > budget.left) throw new CanonicalJsonError("too_large");
  budget.left -= Math.max(0, count - 1);
}

function spend(text: string, budget: Budget): string {
  budget.left -= Buffer.byteLength(text);
  if (budget.left < 0) throw new CanonicalJsonError("too_large");
  return text;
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
