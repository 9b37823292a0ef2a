/** What signs is never the listed key itself: it would be the same for every purpose and every organization. */
import { hkdfSync } from "node:crypto";
import type { NamedKey } from "../key-list.ts";

/** 32 bytes, by HKDF-SHA256. No organization and one with an empty name are two. */
export function signingKeyOf({ key }: NamedKey, organizationId: string | undefined): Uint8Array {
  const purpose = "dispatchd suspension key\0";
  const info = Buffer.from(
    organizationId === undefined ? purpose : `${purpose}organization\0${organizationId}`,
    "utf8",
  );
  return new Uint8Array(hkdfSync("sha256", Buffer.from(key.reveal(), "base64url"), "", info, 32));
}
