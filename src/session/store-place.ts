import { join } from "node:path";
import { diskSaveFolder } from "./disk-save-folder.ts";
import type { SaveSource } from "./read-save.ts";
import type { SaveFolder } from "./save-folder.ts";
import { createSealer, type SessionKeys, threadFolders } from "./sealing.ts";

/** Which thread, and where on the volume. */
export interface StorePlace {
  /** `<home>/dispatchd-sessions`. */
  readonly store: string;
  readonly threadId: string;
  /** 32 bytes each, base64; the first seals. */
  readonly keys: readonly string[];
}

/** Of one thread, on a disk or a mount. The folder is closed by whoever asked. */
export interface DiskSource extends SaveSource {
  readonly threadId: string;
  readonly folder: SaveFolder & AsyncDisposable;
}

export function sourceOf({ store, threadId, keys }: StorePlace): DiskSource {
  return sourceIn(
    store,
    threadId,
    keys.map((key) => Buffer.from(key, "base64")),
  );
}

export function sourceIn(store: string, threadId: string, keys: SessionKeys): DiskSource {
  const [first, ...others] = threadFolders(threadId, keys);
  const folder = diskSaveFolder([join(store, first), ...others.map((path) => join(store, path))]);
  return { folder, threadId, sealer: createSealer(threadId, keys) };
}
