/** Two JSON values as `JSON.parse` gives them: the same, whatever the order of their keys. */

/** Of values within each other: deeper ones are not the same as anything, so that nobody's input can use up the stack. */
const MAX_DEPTH = 512;

export function sameJson(one: unknown, other: unknown, depth = 0): boolean {
  if (typeof one !== "object" || typeof other !== "object" || one === null || other === null) return one === other;
  if (depth >= MAX_DEPTH || Array.isArray(one) !== Array.isArray(other)) return false;
  const keys = Object.keys(one);
  const others = new Map(Object.entries(other));
  if (keys.length !== others.size) return false;
  return Object.entries(one).every(([key, value]) => others.has(key) && sameJson(value, others.get(key), depth + 1));
}
