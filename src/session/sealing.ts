/**
 * Where a thread's saves are, and what makes them unreadable to everybody else who can read the volume. Without keys
 * they lie open. With keys the folder's name is an HMAC, and every head and frame is sealed with AES-256-GCM under a key
 * of the thread: 12 random bytes, the text, the 16 bytes of the tag. What it is and where it lies is bound in, so that a
 * piece of another thread, or of another save, does not open here.
 */
import { createCipheriv, createDecipheriv, createHash, createHmac, hkdfSync, randomBytes } from "node:crypto";

/** 32 bytes each; the first seals, all open. */
export type SessionKeys = readonly Uint8Array[];

export interface Sealer {
  readonly sealed: boolean;
  /** How many bytes sealing adds. */
  readonly overhead: number;
  seal(bytes: Uint8Array, place: string): Uint8Array;
  /** Undefined when it is not what was sealed for this place. */
  open(bytes: Uint8Array, place: string): Uint8Array | undefined;
}

/** Folders of the thread below the store, the one for new saves first: `ab/cd/abcd…`. */
export function threadFolders(threadId: string, keys: SessionKeys): [string, ...string[]] {
  const [first, ...others] = keys;
  if (!first) return [folderOf(createHash("sha256").update(threadId, "utf8").digest("hex"))];
  const sealedFolder = (key: Uint8Array): string =>
    folderOf(createHmac("sha256", key).update("dispatchd session folder\0").update(threadId, "utf8").digest("hex"));
  return [sealedFolder(first), ...others.map(sealedFolder)];
}

export function createSealer(threadId: string, keys: SessionKeys): Sealer {
  const threadKeys = keys.map((key) => threadKeyOf(key, threadId));
  const [first] = threadKeys;
  if (!first) return { sealed: false, overhead: 0, seal: (bytes) => bytes, open: (bytes) => bytes };
  const bound = (place: string): Buffer => Buffer.from(`dispatchd session\0${threadId}\0${place}`, "utf8");
  return {
    sealed: true,
    overhead: NONCE_BYTES + TAG_BYTES,
    seal(bytes, place) {
      const nonce = randomBytes(NONCE_BYTES);
      const cipher = createCipheriv("aes-256-gcm", first, nonce).setAAD(bound(place));
      return Buffer.concat([nonce, cipher.update(bytes), cipher.final(), cipher.getAuthTag()]);
    },
    open(bytes, place) {
      if (bytes.length < NONCE_BYTES + TAG_BYTES) return undefined;
      for (const key of threadKeys) {
        const opened = tryOpen(key, bytes, bound(place));
        if (opened) return opened;
      }
      return undefined;
    },
  };
}

const NONCE_BYTES = 12;
const TAG_BYTES = 16;

function tryOpen(key: Uint8Array, bytes: Uint8Array, bound: Uint8Array): Uint8Array | undefined {
  const end = bytes.length - TAG_BYTES;
  const decipher = createDecipheriv("aes-256-gcm", key, bytes.subarray(0, NONCE_BYTES), { authTagLength: TAG_BYTES });
  decipher.setAAD(bound).setAuthTag(bytes.subarray(end));
  try {
    return Buffer.concat([decipher.update(bytes.subarray(NONCE_BYTES, end)), decipher.final()]);
  } catch {
    // Its only failure is the tag's: sealed with another key, or changed.
    return undefined;
  }
}

function threadKeyOf(key: Uint8Array, threadId: string): Uint8Array {
  return new Uint8Array(hkdfSync("sha256", key, "", Buffer.from(`dispatchd session key\0${threadId}`, "utf8"), 32));
}

function folderOf(digest: string): string {
  return `${digest.slice(0, 2)}/${digest.slice(2, 4)}/${digest.slice(0, 40)}`;
}
