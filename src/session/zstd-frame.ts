/**
 * What a zstd frame (RFC 8878) says of itself, read before anything is decompressed. A decoder takes several frames in a
 * row, each with as much text as it likes; whoever can write into a store could make it fill the memory.
 */
const MAGIC = 0xfd2fb528;
const BLOCK_HEADER_BYTES = 3;
const CHECKSUM_BYTES = 4;
/** By the two bits in the header. */
const DICTIONARY_BYTES = [0, 1, 2, 4] as const;
const RLE_BLOCK = 1;
const RESERVED_BLOCK = 3;

/** The size of the text. Undefined unless the bytes are one frame, as a whole, whose header says it. */
export function textSizeOf(frame: Uint8Array): number | undefined {
  const view = new DataView(frame.buffer, frame.byteOffset, frame.byteLength);
  try {
    if (view.getUint32(0, true) !== MAGIC) return undefined;
    const descriptor = view.getUint8(4);
    const isSingleSegment = (descriptor & 0x20) !== 0;
    const sizeAt = 5 + (isSingleSegment ? 0 : 1) + (DICTIONARY_BYTES[descriptor & 3] ?? 0);
    const declared = declaredSize(view, sizeAt, descriptor >> 6, isSingleSegment);
    const end = declared && endOfBlocks(view, declared.end);
    const hasChecksum = (descriptor & 4) !== 0;
    return end === frame.length - (hasChecksum ? CHECKSUM_BYTES : 0) ? declared?.size : undefined;
  } catch (error) {
    if (error instanceof RangeError) return undefined; // Cut short.
    throw error;
  }
}

function declaredSize(
  view: DataView,
  at: number,
  flag: number,
  isSingleSegment: boolean,
): { size: number; end: number } | undefined {
  switch (flag) {
    case 0:
      return isSingleSegment ? { size: view.getUint8(at), end: at + 1 } : undefined;
    case 1:
      return { size: view.getUint16(at, true) + 256, end: at + 2 };
    case 2:
      return { size: view.getUint32(at, true), end: at + 4 };
    default:
      return { size: Number(view.getBigUint64(at, true)), end: at + 8 };
  }
}

function endOfBlocks(view: DataView, from: number): number | undefined {
  for (let at = from; ; ) {
    const header = view.getUint8(at) | (view.getUint8(at + 1) << 8) | (view.getUint8(at + 2) << 16);
    const type = (header >> 1) & 3;
    if (type === RESERVED_BLOCK) return undefined;
    at += BLOCK_HEADER_BYTES + (type === RLE_BLOCK ? 1 : header >> 3);
    if ((header & 1) === 1) return at;
  }
}
