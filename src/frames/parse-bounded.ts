/**
 * JSON from outside the pod, of which nothing is made before it is known to be no burden: an object of a million keys
 * takes half a second to build, and again to be sent to another thread. No sensible body comes near the bounds.
 */
import { JsonScanner } from "./json-scanner.ts";

/** What is signed may be 512 levels deep, and lies some levels deep in a body. */
export const BODY_BOUNDS = { depth: 600, keys: 10_000, values: 1_000_000 };

/** Throws SyntaxError for what is no JSON, JsonRefusal for what is too much of it. */
export function parseBounded(bytes: Buffer): unknown {
  const scanner = new JsonScanner(bytes, BODY_BOUNDS);
  scanner.skip();
  scanner.end();
  return JSON.parse(bytes.toString("utf8"));
}
