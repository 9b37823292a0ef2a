import { join } from "node:path";
import { diskSaveFolder } from "./disk-save-folder.ts";
import type { SaveSource } from "./read-save.ts";
import { createSealer, threadFolders } from "./sealing.ts";

/** Which thread, and where on the volume. */
export interface StorePlace {
  /** `<home>/dispatchd-sessions`. */
  readonly store: string;
  readonly threadId: string;
  /** 32 bytes each, base64; the first seals. */
  readonly keys: readonly string[];
}

export function sourceOf({ store, threadId, keys }: StorePlace): SaveSource & { readonly threadId: string } {
  const bytes = keys.map((key) => Buffer.from(key, "base64"));
  const [first, ...others] = threadFolders(threadId, bytes);
  const folder = diskSaveFolder([join(store, first), ...others.map((path) => join(store, path))]);
  return { folder, threadId, sealer: createSealer(threadId, bytes) };
}
