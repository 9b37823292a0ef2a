/** Lists of keys as a setting holds them: `kid:base64url` of 32 bytes each, the first for what is new, all for the old. */
import { Secret } from "./secret.ts";

export interface NamedKey {
  readonly id: string;
  /** 32 bytes, base64url. */
  readonly key: Secret;
}

const KEY = /^([A-Za-z0-9_-]{1,64}):([A-Za-z0-9_-]{43})$/;

/** A text says what is wrong, and never what the keys are. */
export function parseKeyList(text: string): readonly NamedKey[] | string {
  const keys: NamedKey[] = [];
  for (const [index, word] of text
    .split(/[\s,]+/)
    .filter(Boolean)
    .entries()) {
    const [, id, key] = KEY.exec(word.replace(/=+$/, "")) ?? [];
    if (id === undefined || key === undefined) return `key ${index + 1} is not kid:base64url of 32 bytes`;
    if (keys.some((known) => known.id === id)) return `key ${index + 1} has an id that another one has`;
    keys.push({ id, key: new Secret(key) });
  }
  return keys.length > 0 ? keys : "has no key in it";
}
