/** What stands in a suspension for a schema: SHA-256 of its canonical JSON, base64url. They throw CanonicalJsonError. */
import { createHash } from "node:crypto";
import { canonicalJson } from "../canonical-json.ts";
import type { ToolFacts } from "./port.ts";

export function toolHashOf({ name, kind, inputSchema, permission }: ToolFacts): string {
  return hashOf({ name, kind, inputSchema: inputSchema ?? null, permission: permission ?? "allow" });
}

/** Null: anything will do. */
export function schemaHashOf(schema: unknown): string {
  return hashOf(schema ?? null);
}

function hashOf(value: unknown): string {
  return createHash("sha256").update(canonicalJson(value), "utf8").digest("base64url");
}
