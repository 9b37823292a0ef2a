/** Frame lines as server-sent events: `id:` is the seq, `data:` the line. Works on pieces of lines as well. */

const NEWLINE = 0x0a;
const SEQ = /^\{"seq":(\d+)/;
const SEQ_BYTES = 32;
const END_OF_EVENT = Buffer.from("\n\n");

/** An event without content: the keepalive. */
export const SSE_KEEPALIVE = Buffer.from(":\n\n");

export class SseEncoder {
  #inLine = false;

  /** `bytes` go on where the last ones ended; a line's first 32 bytes come in one piece, or the whole line does. */
  encode(bytes: Buffer): Buffer {
    const out: Buffer[] = [];
    for (let at = 0; at < bytes.length; ) {
      if (!this.#inLine) {
        const seq = SEQ.exec(bytes.toString("latin1", at, at + SEQ_BYTES))?.[1] ?? "";
        out.push(Buffer.from(`id: ${seq}\ndata: `));
        this.#inLine = true;
      }
      const newline = bytes.indexOf(NEWLINE, at);
      const end = newline < 0 ? bytes.length : newline;
      out.push(bytes.subarray(at, end));
      if (newline >= 0) {
        out.push(END_OF_EVENT);
        this.#inLine = false;
      }
      at = end + 1;
    }
    return Buffer.concat(out);
  }
}
